package edge

import (
	"sync"

	sessionlog "github.com/dnprelay/dnprelay/session"
)

// A mailbox takes to a worker what must not get lost, unlike tasks: answers of the log,
// without which a session stands still for ever, and what game servers have. It holds
// two letters per session at most, because a session asks one question at a time and
// what is delivered replaces what was delivered before.
//
// The mutex is there because letters come from the goroutines of adapters.
type mailbox struct {
	mu          sync.Mutex
	list, spare []letter
}

// A letter is an answer, or the number of the last message that was delivered.
type letter struct {
	to     *kept
	answer sessionlog.Answer // Verdict is 0 if this is no answer
}

// put adds an answer.
func (m *mailbox) put(to *kept, a sessionlog.Answer) {
	m.mu.Lock()
	m.list = append(m.list, letter{to, a})
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
