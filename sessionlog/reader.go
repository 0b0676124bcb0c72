package sessionlog

import (
	"encoding/binary"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// A reader reads the fields of records. The first failure sticks and turns all that
// follows into zeros.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) fail() { r.bad, r.b = true, nil }

// more reports whether another element follows.
func (r *reader) more() bool { return !r.bad && len(r.b) > 0 }

func (r *reader) byte() byte {
	if len(r.b) == 0 {
		r.fail()
		return 0
	}
	v := r.b[0]
	r.b = r.b[1:]
	return v
}

func (r *reader) uint() uint64 { return r.limit(1<<64 - 1) }

func (r *reader) limit(most uint64) uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > most {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

func (r *reader) bytes() []byte {
	n := int(r.limit(uint64(len(r.b))))
	if n > len(r.b) {
		r.fail()
		return nil
	}
	p := r.b[:n:n]
	r.b = r.b[n:]
	return p
}

// name takes the rest.
func (r *reader) name() *string {
	s := string(r.b)
	r.b = nil
	return &s
}

func (r *reader) sent() dnp.SentCommand {
	s := dnp.SentCommand{Number: r.uint(), Kind: dnp.CommandKind(r.byte()), Flags: wire.PartFlags(r.byte())}
	flags := r.byte()
	s.TakeDown, s.ReadOnly, s.HasRef = flags&sentTakeDown != 0, flags&sentReadOnly != 0, flags&sentHasRef != 0
	if flags >= sentHasRef<<1 || s.Kind > dnp.SentFrozen {
		r.fail()
	}
	s.Link, s.Ref, s.Token, s.Data = wire.LinkID(r.limit(0xFFFF)), r.uint(), r.uint(), r.bytes()
	return s
}

func (r *reader) checkpoint() *Checkpoint {
	c := &Checkpoint{}
	if len(r.b) < len(c.Info.ID) {
		r.fail()
		return c
	}
	r.b = r.b[copy(c.Info.ID[:], r.b):]
	if c.Info.Addr.UnmarshalBinary(r.bytes()) != nil {
		r.fail()
	}
	c.Info.About = r.bytes()
	c.Node = string(r.bytes())
	if len(c.Info.About) > AboutMax {
		r.fail()
	}
	c.Snapshot, c.Token, c.Previous = r.bytes(), r.uint(), r.uint()
	previous := c.Previous
	for r.more() {
		m := Message{Number: r.uint(), Previous: previous, Data: r.bytes()}
		if m.Number < previous {
			r.fail()
		}
		previous = m.Number + 1
		c.Undelivered = append(c.Undelivered, m)
	}
	return c
}
