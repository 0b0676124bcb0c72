package viewer

import (
	"errors"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/lludp"
	"github.com/dnprelay/dnprelay/lludp/wire"
)

// Bounds of an outbox. A message that finds no room is dropped and counted.
const (
	outboxMax      = 256
	outboxBytesMax = 128 << 10
	triesMax       = 5 // times that the circuit gives a message up, after four sendings each
)

// A control is a message that must arrive: it waits for room in the circuit, and then for its acknowledgement.
type control struct {
	number wire.Number
	body   []byte
	token  uint64
	later  bool // not before the viewer shows the region
	sent   bool
	tries  int
}

// An outbox holds such messages, oldest first.
type outbox struct {
	l       []*control
	bytes   int
	blocked bool // the circuit has no room
}

// add reports whether there was room.
func (b *outbox) add(c *control) bool {
	if len(b.l) >= outboxMax || b.bytes+len(c.body) > outboxBytesMax {
		return false
	}
	b.l = append(b.l, c)
	b.bytes += len(c.body)
	return true
}

// send sends what may be sent.
func (b *outbox) send(now time.Time, shown bool, c *lludp.Circuit, p *pace, out lludp.Sender) {
	for _, m := range b.l {
		if m.sent || m.later && !shown {
			continue
		}
		if m.later && !p.ready() {
			return
		}
		err := c.Send(now, lludp.Message{Number: m.number, Body: m.body, Reliable: true, ZeroCode: m.number.ZeroCoded(), Token: m.token}, out)
		if errors.Is(err, lludp.ErrBacklog) {
			b.blocked = true // until something is acknowledged
			return
		}
		m.sent = true // any other error is final, as would be that of a repeat: the circuit has ended
		p.sent(len(m.body))
	}
}

// waits reports whether a message may leave as soon as the pace allows.
func (b *outbox) waits(shown bool) bool {
	return !b.blocked && slices.ContainsFunc(b.l, func(m *control) bool { return !m.sent && (shown || !m.later) })
}

// outcome notes what became of a message. It returns whether it was one of these, and whether it is given up.
func (b *outbox) outcome(token uint64, arrived bool) (known, givenUp bool) {
	for i, m := range b.l {
		if m.token != token {
			continue
		}
		if m.tries++; !arrived && m.tries < triesMax {
			m.sent = false
			return true, false
		}
		b.bytes -= len(m.body)
		b.l = append(b.l[:i], b.l[i+1:]...)
		return true, !arrived
	}
	return false, false
}

func (b *outbox) empty() bool { return len(b.l) == 0 }
