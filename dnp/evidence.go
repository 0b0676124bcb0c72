package dnp

import (
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// Anybody who knows the address and port of a peer can send datagrams in its name. So there is
// a rule:
//
// Nothing that a connection depends on (its owner, the way of its datagrams, its end, its
// checkpoint, its budget, the admission of others) changes because of a datagram that somebody
// could have written who does not see what we send. Such a datagram is at most a reason to ask
// the peer, by all ways that are known.
//
// Evidence of the peer is
//
//   - a number that a stranger can hardly guess (Endpoint.Evident): it keeps a connection alive, gets
//     through when there are too many datagrams, and lets an edge take a session from another
//     one that lives but cannot be reached. A command that came before is evidence for as long as
//     libraries repeat one: peers that say little have low numbers, and a stranger could repeat one for ever;
//   - the answer to a question (below), which takes a random number: it decides the way of
//     datagrams, and whether the peer has the history that the log has;
//   - silence after questions, for as long as answers may get lost (lossEstimate.silence): it
//     ends a connection after a ConnectionClose, a second request or a contradiction of the log;
//   - the answer to a hello or a greeting (proof.go), before there is a connection.

// An evidence says how likely a datagram is the peer's.
type evidence uint8

const (
	noEvidence evidence = iota
	// A repeat that comes later than those of libraries, or a request to repeat a command of
	// ours: a stranger who has guessed one number can send it again and again.
	doubtful
	repeat     // it repeats one of them: the acknowledgement may have been lost
	newCommand // it has one of the next numbers of the peer
	awaited    // it answers a command or a question of ours, which then awaits no other answer
)

// Repeats of the peer: how far behind the next number they may be, and for how long they come after the latest
// command. Libraries give up after three seconds.
const (
	repeatsBehind = 16
	repeatsFor    = 3500 * time.Millisecond
)

// Evident reports whether a datagram that is not empty answers a command or a question of ours, or has
// one of the next or latest numbers of the peer, which a stranger can hardly guess.
func (e *Endpoint) Evident(c *Conn, p []byte) bool { return e.evidence(c, p) >= repeat }

func (e *Endpoint) evidence(c *Conn, p []byte) evidence {
	cmd, r := wire.Command(p[0]), wire.NewReader(p[1:])
	seq, profile := wire.Seq(r.Uint16()), e.cfg.Profile
	switch {
	case r.Err() != nil:
	case cmd == wire.CommandLinkUp, cmd == wire.CommandLinkDown:
		if c.links.question.asks(wire.LinkID(seq)) {
			return awaited
		}
	case cmd == wire.CommandReliableAck:
		n, ok := profile.Unwrap(seq, c.send.next)
		switch o := c.send.find(n); {
		case !ok || o == nil || o.sends == 0:
		case len(p) > 3 && wire.AckCode(p[3]) != wire.AckSuccess:
			return doubtful
		default:
			return awaited
		}
	case isReliable(cmd, profile):
		switch n, a := c.recv.judge(profile, seq); {
		case a == arrivalRepeat && c.recv.repeats(n, e.clock.now):
			return repeat
		case a == arrivalRepeat && n+repeatsBehind >= c.recv.next:
			return doubtful
		case a == arrivalDue, a == arrivalEarly:
			if _, reason := checkReliable(cmd, p[1:]); reason == dropNothing {
				return newCommand
			}
		}
	}
	return noEvidence
}

// LoggedEvident returns what [Endpoint.Evident] would for the connection that a snapshot and the
// changes behind it describe. Its owner sends a command as soon as the log has it, so each counts
// as sent. The log does not say when a command of the peer came, so each of the latest may be repeated.
func LoggedEvident(snapshot []byte, changes []Changes, datagram []byte) bool {
	c := loggedConn(snapshot, changes, unresolved)
	if c == nil {
		return false
	}
	for i := range c.send.flight {
		c.send.flight[i].sends = max(c.send.flight[i].sends, 1)
	}
	return c.e.Evident(c, datagram)
}

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
