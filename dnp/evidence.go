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
		if id := wire.LinkID(seq); c.links.question.asks(id) || c.links.answersTrial(id) {
			return awaited
		}
	case cmd == wire.CommandReliableAck:
		n, ok := profile.Unwrap(seq, c.send.next)
		switch o := c.send.awaits(n); {
		case !ok || o == nil:
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
	again   instant     // when the next question is due; never
	rest    instant     // no series begins before
	first   wire.LinkID // the first answer to the trial that is under way; 0 for none
	unclear wire.LinkID // of the latest trial that was acknowledged as a part and has no verdict; 0 for none
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
	q.list = append(q.list, inquiry{id: id})
	q.links.send.question = &outgoing{kind: SentFrozen, takeDown: true, link: id, data: standIn(id)}
}

// newID returns an id that the peer was not asked with lately, and that no link has.
func (q *question) newID() wire.LinkID {
	for {
		id := questionFirst + wire.LinkID(q.links.core.cfg.Rand.UintN(questionIDs))
		if _, used := q.links.slotOf(id); !used && !q.links.send.asks(id) {
			return id
		}
	}
}

// advance asks again if that is due. It reports true if the peer acknowledged all questions and
// answered none, unless they stand behind a trial. copies is how often a repeat is sent on the path.
func (q *question) advance(now instant, copies int) (unanswered bool) {
	if q.nextTimeout() > now {
		return false
	}
	q.again = never
	q.links.send.pressTrial(now, copies, q.first, &q.links.core.cfg)
	if len(q.list) == questionsMax {
		q.open = false
		return q.links.send.untried() && !slices.ContainsFunc(q.list, func(a inquiry) bool { return a.acked && a.answered })
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
	if w := q.links.send; w.long == longTried && w.unanswered(q.first) > 0 { // the next question may not get through
		q.again = min(q.again, now.add(questionPatience))
	}
}

// receive takes LinkUp or LinkDown of an id, and reports whether it answers a question.
func (q *question) receive(id wire.LinkID) bool {
	if q == nil || !q.open {
		return false
	}
	for i := range q.list {
		if a := &q.list[i]; a.id == id && a.number > 0 {
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

// Java acknowledges the first part of a long message and never counts its number, so it is stuck there for
// good, and nothing else tells it from peers that take long messages (dnp/PROTOCOL.md, Long messages). So a
// trial comes before the first long message to a client. Its number is sent as a first part that no
// application sees, because the next one empties the buffer. A question stands behind it. Who takes long
// messages answers that. If it has no answer, the number of the trial is sent as a question: Java takes that,
// answers, and goes on.
//
// Both forms mean nothing to an application, so the log and snapshots have the question, marked with
// PartFirst, and any owner sends it. An acknowledgement of the number shows only that one of the forms
// arrived. Late ones reach a successor, too. So the number counts as acknowledged only when the peer has
// answered two of it and the questions behind it, or acknowledged a number so far ahead that it must have counted
// this one. A single answer may be a guess, or a late one to an earlier question with the same id.

// A longState is what is known of whether the peer takes long messages.
type longState uint8

const (
	longUnknown longState = iota
	longTried             // a trial is in flight, sent as a part
	longAsked             // as a question; the part was acknowledged before
	longVague             // as a question; the part was not, so it may have got lost
	longTaken
	longLimited
)

// trialsMax bounds the trials of a connection that find nothing out, because answers got lost.
const trialsMax = 4

// trialPart is what a trial has as a part: Java's buffer has one byte.
var trialPart = []byte{0, 0}

// tries reports whether a command is a trial that the peer is not known to have counted.
func (o *outgoing) tries() bool { return o.kind == SentFrozen && o.flags != 0 && !o.acked }

// trial returns the place of the trial in flight, or -1. There is one at most.
func (w *sendWindow) trial() int {
	for i := range w.flight {
		if w.flight[i].tries() {
			return i
		}
	}
	return -1
}

// needsTrial reports whether it is not known whether the peer takes the first message of the queue.
func (w *sendWindow) needsTrial(cfg *Config) bool {
	return w.long < longTaken && len(w.queue) > 0 && len(w.queue[0].data) > w.partless(cfg) && cfg.Profile.Long()
}

// heldUp reports whether that message waits for a trial that is under way, and all behind it.
func (w *sendWindow) heldUp(cfg *Config) bool { return w.needsTrial(cfg) && w.trying() }

// untried reports whether this owner has no trial under way.
func (w *sendWindow) untried() bool { return w.long == longUnknown || w.long >= longTaken }

// trying reports whether a trial is under way, of this owner or an earlier one.
func (w *sendWindow) trying() bool { return !w.untried() || w.trial() >= 0 }

func isQuestion(id wire.LinkID) bool { return id >= questionFirst && id < questionFirst+questionIDs }

// sentQuestion returns the place of the question with this id in flight, or -1.
func (w *sendWindow) sentQuestion(id wire.LinkID) int {
	return slices.IndexFunc(w.flight, func(o outgoing) bool { return o.kind == SentFrozen && o.link == id && o.sends > 0 })
}

// asks reports whether a question with this id is in flight or about to be.
func (w *sendWindow) asks(id wire.LinkID) bool {
	return w.sentQuestion(id) >= 0 || w.question != nil && w.question.link == id
}

// answersTrial reports whether LinkUp or LinkDown of this id is an answer of a peer that has counted the trial.
func (w *sendWindow) answersTrial(id wire.LinkID) bool {
	i := w.trial()
	if i < 0 || !isQuestion(id) {
		return false
	}
	at := w.sentQuestion(id)
	return at > i || at == i && w.long != longTried
}

// reopen lets the series go on, or begins another.
func (q *question) reopen() {
	if !q.open || len(q.list) == questionsMax {
		q.open, q.answers, q.list = true, 0, q.list[:0]
	}
}

// answersTrial reports whether LinkUp or LinkDown of this id is one of the two answers that decide a trial.
func (t *linkTable) answersTrial(id wire.LinkID) bool {
	return t.send.answersTrial(id) && !(t.question != nil && t.question.first == id)
}

// try makes the trial o, and asks the question behind it.
func (q *question) try(o *outgoing) {
	w := q.links.send
	q.reopen()
	q.again = never
	q.next()
	o.link = q.newID()
	o.data = standIn(o.link)
	w.long, q.first = longTried, 0
	w.trials++
}

// rests reports whether a command is a trial that was acknowledged as a part. As a question it is sent again
// until it or one behind it is answered.
func (w *sendWindow) rests(o *outgoing) bool { return o.seen && w.long == longTried }

// unanswered returns how many questions behind the trial the peer acknowledged and did not answer. It answered the one with the
// id answered, if that is not 0.
func (w *sendWindow) unanswered(answered wire.LinkID) (n int) {
	if i := w.trial(); i >= 0 {
		for _, o := range w.flight[i+1:] {
			if o.acked && o.kind == SentFrozen && isQuestion(o.link) && o.link != answered {
				n++
			}
		}
	}
	return n
}

// pressTrial has the trial sent as a question from now on, if the peer did not answer those behind it: as many
// of them as the path needs copies, because answers get lost, or as the window has room for. See unanswered.
func (w *sendWindow) pressTrial(now instant, copies int, answered wire.LinkID, cfg *Config) {
	n := w.unanswered(answered)
	if w.long != longTried || n == 0 || n < copies && len(w.flight) < sendWindowSize {
		return
	}
	o := &w.flight[w.trial()]
	if w.long = longVague; o.seen {
		w.long = longAsked
	}
	o.last = now - instant(cfg.ReliableResend) // due at once
}

// receiveAnswer takes a LinkUp or LinkDown, and reports whether it answers a question or a trial. p is what
// follows the command byte.
func (t *linkTable) receiveAnswer(p []byte, now instant) bool {
	m, err := wire.ParseLinkUp(p) // both have the same fields
	if err != nil {
		return false // counted by who parses it next
	}
	tried := t.answersTrial(m.Link)
	if tried {
		t.asker().judgeTrial(m.Link)
	} else if q := t.question; q != nil && q.unclear != 0 && m.Link == q.unclear { // another trial may be under way
		t.send.long, q.unclear, tried = longLimited, 0, true
	}
	if tried {
		t.log.want(needSoon)
		t.commandsProcessed(now)
	}
	return t.question.receive(m.Link) || tried
}

// judgeTrial notes that the peer answered the question with this id. After the second answer it has counted the
// trial. As a part it was counted only by a peer that takes long messages. One that answers the trial itself, after
// it acknowledged the part, did not count that. Its answer may come after those to questions behind it.
func (q *question) judgeTrial(id wire.LinkID) {
	w := q.links.send
	o := &w.flight[w.trial()]
	if q.first == 0 {
		q.first = id
		q.reopen()
		q.again = q.links.core.clock.now
		return
	}
	switch {
	case w.long == longTried:
		w.long, o.takeDown = longTaken, false // it was no offer
	case w.long == longAsked && (id == o.link || q.first == o.link):
		w.long = longLimited
	case w.long == longAsked:
		q.unclear = o.link
	}
	q.first = 0
	if !o.seen {
		w.repeated() // its acknowledgement may follow
	}
	w.acknowledged(o)
}

// refuseLong takes the messages out of the queue that a limited peer does not take.
func (t *linkTable) refuseLong() {
	w := t.send
	if w.long != longLimited {
		return
	}
	w.queue = slices.DeleteFunc(w.queue, func(m outgoing) bool {
		if len(m.data) <= w.partless(&t.core.cfg) {
			return false
		}
		w.bytes -= int32(len(m.data))
		if m.takeDown {
			t.takeDown(m.link)
		}
		t.core.event(t.conn, Event{Kind: EventTooLarge, Token: m.token})
		return true
	})
}
