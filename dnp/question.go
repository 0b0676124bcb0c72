package dnp

import (
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// The numbers of reliable commands count from 0 and can be guessed, so an acknowledgement
// alone does not show that its sender receives what the peer is sent. A question does: it
// is an offer of a link without values, under a random LinkId. The peer acknowledges it,
// and refuses or accepts the link. Only who sees the offer can name its number and its id.
// Every library answers so, and no application needs to know: the link is taken down.

const (
	questionsMax     = 6                      // in a series
	answersMin       = 2                      // that end a series
	questionPatience = 400 * time.Millisecond // for the answer to a question that was acknowledged
	questionPause    = time.Second            // between an answer and the next series: who makes us ask pays for little
	questionFirst    = 0x1000                 // the ids from here on are for questions alone
	questionIDs      = 0x4000
)

// A question is a series of questions to one peer. LinkUp and LinkDown are not repeated, and
// a peer answers only the first offer under an id, so a question without an answer is
// followed by another. So is the first that is answered: who sends many LinkUps may hit an id
// by chance, but hardly two in a row. A nil question asks nothing.
type question struct {
	links   *linkTable // of the connection
	open    bool       // the series goes on
	answers uint8      // of the series, of which EventAnswered told
	list    []inquiry
	again   instant // when the next question is due; never
	rest    instant // no series begins before
}

// An inquiry is one question.
type inquiry struct {
	id       wire.LinkID
	number   uint64 // plus one; 0 before it has one
	acked    bool
	answered bool // the peer named id
}

// ask starts a series, unless one is under way.
func (q *question) ask() {
	if !q.open {
		q.open, q.answers, q.list, q.again = true, 0, q.list[:0], max(q.rest, q.links.core.clock.now)
		q.links.core.conns[q.links.conn].wake()
	}
}

// askIfAlive asks for evidence of the peer, and reports whether it can. To a peer that is not
// known to understand a probe, a question serves as one, unless the address of the peer may be
// forged.
func (q *question) askIfAlive() bool {
	switch w, cfg := q.links.send, &q.links.core.cfg; {
	case w.peerLong:
		w.queueProbe(cfg)
	case w.unsure(cfg):
		return false
	default:
		q.ask()
	}
	return true
}

// next queues the next question.
func (q *question) next() {
	id := q.newID()
	for _, used := q.links.slotOf(id); used; _, used = q.links.slotOf(id) { // by the peer, or by an earlier release
		id = q.newID()
	}
	q.list = append(q.list, inquiry{id: id})
	q.links.send.question = &outgoing{kind: SentFrozen, takeDown: true, link: id, data: standIn(id)}
}

func (q *question) newID() wire.LinkID {
	return questionFirst + wire.LinkID(q.links.core.cfg.Rand.UintN(questionIDs))
}

// advance asks again if that is due. It reports true if the peer acknowledged all questions and
// answered none.
func (q *question) advance(now instant) (unanswered bool) {
	if q.nextTimeout() > now {
		return false
	}
	q.again = never
	if len(q.list) == questionsMax {
		q.open = false
		return !slices.ContainsFunc(q.list, func(a inquiry) bool { return a.acked && a.answered })
	}
	q.next()
	return false
}

// askedAt returns when the peer is asked, if it is to be asked now.
func (q *question) askedAt(now instant) instant { return max(now, q.rest) }

func (q *question) nextTimeout() instant {
	if q == nil {
		return never
	}
	return q.again
}

// numbered notes the number of the question with this id.
func (q *question) numbered(id wire.LinkID, n uint64) {
	if q == nil {
		return
	}
	for i := range q.list {
		if q.list[i].id == id {
			q.list[i].number = n + 1
		}
	}
}

// acknowledged notes which questions the peer has acknowledged, or has because it acknowledged a number far beyond
// (sendWindow.infer).
func (q *question) acknowledged(now instant) {
	if q == nil || !q.open {
		return
	}
	for i := range q.list {
		if a := &q.list[i]; a.number > 0 && !a.acked && q.links.send.find(a.number-1) == nil {
			a.acked = true
			q.again = now.add(questionPatience)
			q.settle(a)
		}
	}
}

// receive takes a LinkUp or LinkDown, and reports whether it answers a question. p is what
// follows the command byte.
func (q *question) receive(p []byte) bool {
	if q == nil || !q.open {
		return false
	}
	m, err := wire.ParseLinkUp(p) // both have the same fields
	if err != nil {
		return false // counted by who parses it next
	}
	for i := range q.list {
		if a := &q.list[i]; a.id == m.Link && a.number > 0 {
			if !a.answered {
				a.answered = true
				q.answers++
				q.links.core.event(q.links.conn, Event{Kind: EventAnswered})
				q.settle(a)
			}
			return true
		}
	}
	return false
}

// asks reports whether a LinkUp or LinkDown of this id answers a question that has no answer.
func (q *question) asks(id wire.LinkID) bool {
	return q != nil && q.open && slices.ContainsFunc(q.list, func(a inquiry) bool { return a.id == id && a.number > 0 && !a.answered })
}

// settle takes the answer to a question, if a has one.
func (q *question) settle(a *inquiry) {
	if !a.acked || !a.answered {
		return
	}
	now := q.links.core.clock.now
	if q.answers >= answersMin {
		q.open, q.again, q.rest = false, never, now.add(questionPause)
		q.links.core.conns[q.links.conn].life.answered(now)
	} else {
		q.again = now
	}
	q.links.log.believe()
}
