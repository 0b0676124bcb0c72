package sessionlog

import (
	"bytes"

	"github.com/dnprelay/dnprelay/dnp"
)

// kept are the messages of the client that are not known to have reached the game
// servers. They are in every checkpoint, because the records that have them too are
// deleted then.
type undelivered struct {
	list  []Message
	bytes int
	next  uint64 // number of the newest message that was taken, plus one
	first uint64 // number of the message before the first of list, plus one
	upTo  uint64 // messages with lower numbers are delivered
}

// take keeps a message. It reports false for one that is delivered or was taken.
func (k *undelivered) add(ev *dnp.Event) (Message, bool) {
	if !ev.Reliable || ev.Number < k.next {
		return Message{}, false
	}
	m := Message{Number: ev.Number, Previous: k.next, Data: bytes.Clone(ev.Data)}
	k.next = ev.Number + 1
	if ev.Number < k.upTo {
		k.first = k.next
		return m, false
	}
	k.list = append(k.list, m)
	k.bytes += len(m.Data)
	return m, true
}

// delivered forgets the messages up to number. It reports whether there were any.
func (k *undelivered) remove(number uint64) bool {
	n := 0
	for n < len(k.list) && k.list[n].Number <= number {
		k.first = k.list[n].Number + 1
		k.bytes -= len(k.list[n].Data)
		n++
	}
	k.list = append(k.list[:0], k.list[n:]...)
	k.upTo = max(k.upTo, k.first)
	return n > 0
}

// restore takes over what the owner before kept, and returns what is to be delivered
// again.
func (k *undelivered) restore(c *Checkpoint, upTo uint64) []Message {
	*k = undelivered{next: c.Previous, first: c.Previous, upTo: upTo}
	for _, m := range c.Undelivered {
		k.next = m.Number + 1
		if m.Number < upTo {
			k.first = k.next
			continue
		}
		m.Data = bytes.Clone(m.Data)
		k.list = append(k.list, m)
		k.bytes += len(m.Data)
	}
	return k.list
}
