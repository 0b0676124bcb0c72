package edge

import (
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/internal/edge/takeover"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// A letter takes to a worker what must not get lost, unlike tasks: an answer of the log,
// without which a session stands still for ever, news from a feed, or something to do, such
// as to handle an answer of the affinity or of another edge. Letters need no bound of their
// own: a session asks one question of the log at a time, the others are bounded where they
// are asked, and of what is delivered only the newest number counts.
type letter struct {
	answer sessionlog.Answer
	to     *takeover.Session
	feed   *sessionFeed
	do     func(now time.Time)
}

// A sessionFeed is the feed of a session that tells its worker what is delivered.
type sessionFeed struct {
	takeover.Feed
	session *takeover.Session
	worker  *Worker

	posted atomic.Bool   // a letter is on its way
	number atomic.Uint64 // of the newest message that is delivered
}

// delivered notes, from any goroutine, that the message with this number and all before it
// are delivered.
func (f *sessionFeed) delivered(number uint64) {
	f.number.Store(number)
	if f.posted.CompareAndSwap(false, true) {
		f.worker.mail.Put(letter{feed: f})
	}
}

// Deliver implements takeover.Feed.
func (f *sessionFeed) Deliver(m sessionlog.Message) {
	f.worker.spaces.Counts().MessagesIn++
	f.Feed.Deliver(m)
}

// must has something done on a turn of the worker. Unlike a task it does not get lost. It
// may be called from any goroutine.
func (w *Worker) must(do func(now time.Time)) {
	w.mail.Put(letter{do: do})
}

// openMail handles what came since the last turn.
func (w *Worker) openMail(now time.Time) {
	for _, l := range w.mail.Take() {
		switch {
		case l.do != nil:
			l.do(now)
		case l.feed != nil:
			l.feed.posted.Store(false)
			w.takeover.Delivered(now, l.feed.session, l.feed.number.Load())
		default:
			w.takeover.Answer(now, l.to, l.answer)
		}
	}
}
