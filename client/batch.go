package client

// A batch is datagrams in one buffer, one after the other.
type batch struct {
	data []byte
	ends []int
}

// batchKept is how many bytes an empty batch keeps.
const batchKept = 64 << 10

func (b *batch) empty() bool { return len(b.ends) == 0 }

func (b *batch) add(p []byte) {
	b.data = append(b.data, p...)
	b.ends = append(b.ends, len(b.data))
}

func (b *batch) all(yield func([]byte) bool) {
	start := 0
	for _, end := range b.ends {
		if !yield(b.data[start:end:end]) {
			return
		}
		start = end
	}
}

func (b *batch) reset() {
	if cap(b.data) > batchKept {
		*b = batch{}
	}
	b.data, b.ends = b.data[:0], b.ends[:0]
}

// A collector is where a carrier keeps what it is given until flush.
type collector struct {
	scratch   []byte // of Datagram
	collected batch
}

// Datagram is that of dnp.Sender.
func (c *collector) Datagram(size int) []byte {
	if cap(c.scratch) < size {
		c.scratch = make([]byte, 0, size)
	}
	return c.scratch[:0]
}
