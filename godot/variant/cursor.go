package variant

// A Cursor goes over the elements of a container:
//
//	for c := v.Elements(); c.Next(); {
//		use(c.Key(), c.Value())
//	}
type Cursor struct {
	d          Dialect
	rest       []byte
	left       int
	keyed      bool
	key, value Value
}

// Elements returns a cursor over an Array or a Dictionary, in the order in which
// they were written. Of any other value it is empty.
func (v Value) Elements() Cursor {
	t := v.Type()
	if t != Array && t != Dictionary {
		return Cursor{}
	}
	return Cursor{d: v.d, rest: v.p[v.countAt()+4:], left: v.Len(), keyed: t == Dictionary}
}

// Next goes to the next element and reports whether there is one.
func (c *Cursor) Next() bool {
	if c.left == 0 {
		return false
	}
	c.left--
	if c.keyed {
		c.key = c.take()
	}
	c.value = c.take()
	return true
}

func (c *Cursor) take() Value {
	v := valueAt(c.d, c.rest)
	c.rest = c.rest[len(v.p):]
	return v
}

// Len returns how many elements are left.
func (c *Cursor) Len() int { return c.left }

// Key returns the key of the pair, or Nil in an array.
func (c *Cursor) Key() Value { return c.key }

// Value returns the element, or the value of the pair.
func (c *Cursor) Value() Value { return c.value }

// countAt returns where the count of a container is, behind its types.
func (v Value) countAt() int {
	s := scanner{d: v.d, p: v.p, off: 4, quiet: true}
	s.elements(0, kind(v.d, v.header(), kindShift))
	if v.Type() == Dictionary {
		s.elements(0, kind(v.d, v.header(), kindValueShift))
	}
	return s.off
}

// Strings returns the texts of a PackedStringArray. They are copies.
func (v Value) Strings() []string {
	if v.Type() != PackedStringArray {
		return nil
	}
	all := make([]string, 0, v.Len())
	t := texts{p: v.p, off: 8}
	for range v.Len() {
		all = append(all, string(t.next()))
	}
	return all
}

// texts goes over texts that follow each other and are known to be there.
type texts struct {
	p   []byte
	off int
}

func (t *texts) next() []byte {
	n := int(word(t.p, t.off))
	at := t.off + 4
	t.off = at + (n+3)&^3
	return upToNUL(t.p[at : at+n])
}
