package edge

import (
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/sessionlog"
)

// A mailbox takes to a worker what must not get lost, unlike tasks: answers of the log,
// without which a session stands still for ever, what game servers have, and what a drain
// needs to come to its end. It holds three letters per session at most, because a session
// asks one question of the log at a time, and one of an edge, and what is delivered replaces
// what was delivered before; and a few of the whole edge.
//
// The mutex is there because letters come from the goroutines of adapters.
type mailbox struct {
	mu          sync.Mutex
	list, spare []letter
}

// A letter is an answer, the number of the last message that was delivered, or something
// to do.
type letter struct {
	to     *kept
	answer sessionlog.Answer   // Verdict is 0 if this is no answer
	do     func(now time.Time) // nil if there is nothing to do
}

// put adds an answer.
func (m *mailbox) put(to *kept, a sessionlog.Answer) {
	m.mu.Lock()
	m.list = append(m.list, letter{to: to, answer: a})
	m.mu.Unlock()
}

// must adds something to do.
func (m *mailbox) must(do func(now time.Time)) {
	m.mu.Lock()
	m.list = append(m.list, letter{do: do})
	m.mu.Unlock()
}

// delivered adds that the message with this number and all before are delivered.
func (m *mailbox) delivered(to *kept, number uint64) {
	m.mu.Lock()
	if !to.told {
		to.told = true
		m.list = append(m.list, letter{to: to})
	}
	to.number = number
	m.mu.Unlock()
}

// number returns the newest number that is delivered.
func (m *mailbox) number(x *kept) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	x.told = false
	return x.number
}

// empty takes all letters. They are valid until the next call.
func (m *mailbox) empty() []letter {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.spare)
	list := m.list
	m.list, m.spare = m.spare[:0], list
	return list
}
