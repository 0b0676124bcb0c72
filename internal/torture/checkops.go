package torture

import "slices"

// An opSum is what was counted of one operation.
type opSum struct {
	n       uint64
	seconds float64
	spoken  int // reliable messages meanwhile
}

// operation takes what was counted in the while before a record.
func (c *checker) operation(r Record) {
	o := c.ops[r.Note]
	if o == nil {
		o = &opSum{}
		c.ops[r.Note] = o
	}
	o.n += r.N
	o.seconds += float64(r.D) / 1e6
	for _, at := range slices.Backward(c.spoken) {
		if at < r.At-r.D {
			break
		}
		o.spoken++
	}
}

func (c *checker) finishOperations() {
	for _, what := range sortedNames(c.ops) {
		if o := c.ops[what]; o.seconds > 0 && o.spoken > 0 {
			c.v.Operations = append(c.v.Operations, Operation{what, float64(o.n) / o.seconds, float64(o.n) / float64(o.spoken)})
		}
	}
}
