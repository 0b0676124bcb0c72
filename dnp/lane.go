package dnp

import "github.com/dnprelay/dnprelay/dnp/wire"

// A lane holds unreliable messages until the next Advance. When it is full, the
// newcomer is dropped: nobody may rely on it anyway.
type lane struct {
	buf  []byte
	ends []int
}

// SendUnreliable queues an unreliable message of 1 to MessageMax bytes, which it
// copies, for the next Advance. It is dropped, and counted, when too many wait.
// Errors are ErrEmpty, ErrTooLarge and ErrClosed.
func (c *Conn) SendUnreliable(data []byte) error {
	switch l := &c.lane; {
	case len(data) == 0:
		return ErrEmpty
	case len(data) > c.e.cfg.MessageMax:
		return ErrTooLarge
	case c.over():
		return ErrClosed
	case len(l.ends) >= laneMessages || len(l.buf)+len(data) > laneBytes:
		c.e.drop(DropLaneFull)
	default:
		l.buf = append(l.buf, data...)
		l.ends = append(l.ends, len(l.buf))
		c.wake()
	}
	return nil
}

func (l *lane) drain(c *Conn, out Sender) {
	start := 0
	for _, end := range l.ends {
		data := l.buf[start:end]
		if c.budget.spent > c.e.clock.now { // they go before values have to wait longer
			c.e.drop(DropBudget)
			start = end
			continue
		}
		c.emit(wire.AppendMessage(out.Datagram(1+len(data)), data), out)
		start = end
	}
	l.ends = l.ends[:0]
	if l.buf = l.buf[:0]; cap(l.buf) > 4096 {
		l.buf = nil
	}
}
