package edge

import (
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/internal/edge/takeover"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// A mailbox takes to a worker what must not get lost, unlike tasks: answers of the log,
// without which a session stands still for ever, answers of the affinity and of other
// edges, what game servers have, and what a drain needs to come to its end. It needs no
// bound of its own: a session asks one question of the log at a time, the others are
// bounded where they are asked, and of what is delivered only the newest number counts.
//
// The mutex is there because letters come from the goroutines of adapters.
type mailbox struct {
	mu          sync.Mutex
	list, spare []letter
}

// A letter is one of: an answer of the log, news from a feed, something to do.
type letter struct {
	answer sessionlog.Answer
	to     *takeover.Session
	feed   *sessionFeed
	do     func(now time.Time)
}

func (m *mailbox) put(l letter) {
	m.mu.Lock()
	m.list = append(m.list, l)
	m.mu.Unlock()
}

// putDelivered adds that the message of a session with this number, and all before it, are
// delivered.
func (m *mailbox) putDelivered(f *sessionFeed, number uint64) {
	m.mu.Lock()
	if !f.posted {
		f.posted = true
		m.list = append(m.list, letter{feed: f})
	}
	f.number = number
	m.mu.Unlock()
}

// delivered returns the newest number that is delivered.
func (m *mailbox) delivered(f *sessionFeed) uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	f.posted = false
	return f.number
}

// empty removes all letters and returns them. They are valid until the next call.
func (m *mailbox) empty() []letter {
	m.mu.Lock()
	defer m.mu.Unlock()
	clear(m.spare)
	list := m.list
	m.list, m.spare = m.spare[:0], list
	return list
}

// A sessionFeed is the feed of a session that tells its worker what is delivered.
type sessionFeed struct {
	takeover.Feed
	session *takeover.Session
	worker  *Worker

	// Of the mailbox.
	posted bool   // a letter is on its way
	number uint64 // of the newest message that is delivered
}

// Deliver implements takeover.Feed.
func (f *sessionFeed) Deliver(m sessionlog.Message) {
	f.worker.counts.MessagesIn++
	f.Feed.Deliver(m)
}

// must has something done on a turn of the worker. Unlike a task it does not get lost. It
// may be called from any goroutine.
func (w *Worker) must(do func(now time.Time)) {
	w.mail.put(letter{do: do})
	w.wake()
}

// openMail handles what came since the last turn.
func (w *Worker) openMail(now time.Time) {
	for _, l := range w.mail.empty() {
		switch {
		case l.do != nil:
			l.do(now)
		case l.feed != nil:
			number := w.mail.delivered(l.feed)
			w.takeover.Delivered(now, l.feed.session, number)
		default:
			w.takeover.Answer(now, l.to, l.answer)
		}
	}
}
