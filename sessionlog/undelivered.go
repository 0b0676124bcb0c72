package sessionlog

import (
	"bytes"

	"github.com/dnprelay/dnprelay/dnp"
)

// undelivered are the messages of the client that are not known to have reached the game
// servers. Every checkpoint has them, because it lets the records be deleted that have them
// too.
type undelivered struct {
	list     []Message
	bytes    int
	next     uint64 // number of the newest message, plus one
	previous uint64 // number of the message before the first of list, plus one
	upTo     uint64 // messages with lower numbers are delivered
}

// add adds a message. It reports false for a message that is delivered or was added before.
func (u *undelivered) add(ev *dnp.Event) (Message, bool) {
	if !ev.Reliable || ev.Number < u.next {
		return Message{}, false
	}
	m := Message{Number: ev.Number, Previous: u.next, Data: bytes.Clone(ev.Data)}
	return m, u.push(m)
}

// push adds a message behind the others. It reports false for one that is delivered.
func (u *undelivered) push(m Message) bool {
	u.next = m.Number + 1
	if m.Number < u.upTo {
		u.previous = u.next
		return false
	}
	u.list = append(u.list, m)
	u.bytes += len(m.Data)
	return true
}

// full reports whether no further message should come in, given how many bytes there is room
// for. One is always let in.
func (u *undelivered) full(bytesMax int) bool {
	return len(u.list) >= undeliveredMax || len(u.list) > 0 && u.bytes >= bytesMax
}

// remove removes the messages up to number, which are delivered. It reports whether there were
// any.
func (u *undelivered) remove(number uint64) bool {
	n := 0
	for n < len(u.list) && u.list[n].Number <= number {
		u.previous = u.list[n].Number + 1
		u.bytes -= len(u.list[n].Data)
		n++
	}
	u.list = append(u.list[:0], u.list[n:]...)
	u.upTo = max(u.upTo, u.previous)
	return n > 0
}

// restore replaces the messages by those of a checkpoint that are not delivered yet, and
// returns them.
func (u *undelivered) restore(c *Checkpoint, upTo uint64) []Message {
	*u = undelivered{next: c.Previous, previous: c.Previous, upTo: upTo}
	for _, m := range c.Undelivered {
		m.Data = bytes.Clone(m.Data)
		u.push(m)
	}
	return u.list
}
