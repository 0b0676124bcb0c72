package publisher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats.go"
	oteltrace "go.opentelemetry.io/otel/trace"
)

// A topic is what a pending op is about: a state, the audience of a state that another
// program put, the groups or the eyes of a client, or an interest.
type topic struct {
	kind topicKind
	name string
}

type topicKind uint8

const (
	topicState topicKind = iota
	topicAudience
	topicGroups
	topicInterest
	topicEyes
)

// ofState reports whether the topic is about a state.
func (t topic) ofState() bool { return t.kind == topicState || t.kind == topicAudience }

// A pendingOp names something about a topic that no relay has accepted yet. It has no
// values: the Space writes them from its copy whenever it sends the op, so that a repeated
// op carries the newest ones.
type pendingOp struct {
	topic   topic
	state   *state          // what the topic is about, if it is known; (*copied).of looks it up otherwise
	verb    string          // of the newest Op in it
	trace   trace           // of the newest Op in it that has one
	put     bool            // the game server put the state
	assert  bool            // what the copy has, which the relay takes where it has nothing newer
	changed bool            // the game server changed what the topic is about
	sets    map[string]bool // values that it changed, by index, or by name if another program put the state
	tries   int             // refusals of this op
	waiters []*waiter
	next    *pendingOp // with the same topic, of those that wait for answers
}

// asserts reports whether the op has nothing new.
func (p *pendingOp) asserts() bool { return p.assert && !p.changed }

// changes reports whether an op of a list changes value i of a state.
func (p *pendingOp) changes(i int) bool {
	for ; p != nil; p = p.next {
		if p.put || len(p.sets) > 0 && p.sets[strconv.Itoa(i)] {
			return true
		}
	}
	return false
}

// triesMax is from how many refusals of one op a Space recovers, for a relay may
// contradict itself: it accepts a state and then does not know it.
const triesMax = 5

// merge adds a later op about the same topic.
func (p *pendingOp) merge(later *pendingOp) {
	p.verb = later.verb
	p.trace = later.trace.or(p.trace)
	p.put = p.put || later.put
	p.assert = p.assert || later.assert
	p.changed = p.changed || later.changed
	if p.sets == nil {
		p.sets = later.sets
	} else {
		maps.Copy(p.sets, later.sets)
	}
	p.waiters = append(p.waiters, later.waiters...)
	p.tries = max(p.tries, later.tries)
}

// addWaiter lets w wait for the op; w may be nil.
func (p *pendingOp) addWaiter(w *waiter) {
	if w != nil {
		w.ops++
		p.waiters = append(p.waiters, w)
	}
}

// settle tells the waiters that the op is accepted, or refused if err is not nil.
func (p *pendingOp) settle(pos Position, err error) {
	for _, w := range p.waiters {
		w.settle(pos, err)
	}
	p.waiters = nil
}

// A waiter is a call that waits until its ops are settled. The Space's goroutine owns it
// until done is closed.
type waiter struct {
	ops      int // not settled yet
	position Position
	errs     []error
	done     chan struct{}
}

func (w *waiter) settle(pos Position, err error) {
	if pos.After(w.position) {
		w.position = pos
	}
	if err != nil {
		w.errs = append(w.errs, err)
	}
	if w.ops--; w.ops == 0 {
		close(w.done)
	}
}

// An outbox holds the ops that are to be sent, one for each topic, in the order in which
// their topics came up.
type outbox struct {
	ops   map[topic]*pendingOp
	order []*pendingOp // pop moves its start, so that no entry is copied
}

func (o *outbox) push(p *pendingOp) {
	if earlier, ok := o.ops[p.topic]; ok {
		earlier.merge(p)
		return
	}
	o.ops[p.topic] = p
	o.order = append(o.order, p)
}

// pushFront puts ops that were sent and not accepted before all others.
func (o *outbox) pushFront(list []*pendingOp) {
	var front []*pendingOp
	for _, p := range list {
		if later, ok := o.ops[p.topic]; ok {
			p.merge(later)
			*later = *p // which keeps its place
			continue
		}
		o.ops[p.topic] = p
		front = append(front, p)
	}
	if len(front) > 0 {
		o.order = append(front, o.order...)
	}
}

func (o *outbox) pop() *pendingOp {
	p := o.order[0]
	o.order[0] = nil // frees it
	o.order = o.order[1:]
	delete(o.ops, p.topic)
	return p
}

func (o *outbox) first() *pendingOp { return o.order[0] }

func (o *outbox) empty() bool { return len(o.order) == 0 }

// Bounds of a publish: the relay accepts 10,000 ops, and NATS 1 MiB by default. The last
// op may exceed bytesMax.
const (
	opsMax   = 500
	bytesMax = 256 << 10
	opBytes  = 320 // a guess, with the position of a put of three values
)

// backoffMax is the longest pause between attempts. It is a compromise: an election of
// NATS takes 4 to 9 s, and the takeover from a dead relay 3 s.
const backoffMax = time.Second

// A request waits for its answer. The relay applies each op of a publish separately, so
// that a bad one does not hold up the others.
type request struct {
	ops      []*pendingOp // in the order of the payload; none if it asks for the position
	deadline time.Time
	trace    trace // of the first op that has one
	doubted  bool  // its answer did not come in time, and the relay is asked for it
}

// A transmission is a request on its way to NATS, or the question for its answer.
type transmission struct {
	id  uint64
	msg *nats.Msg
}

// sendable reports whether the window and the pause allow to send pending ops.
func (s *Space) sendable(now time.Time) bool {
	return !s.out.empty() && len(s.sent) < s.p.cfg.Window && !now.Before(s.pausedUntil)
}

// flush returns the next publish, if something is pending that may be sent.
func (s *Space) flush(now time.Time) *transmission {
	for len(s.doubts) > 0 {
		id := s.doubts[0]
		if s.doubts = s.doubts[1:]; s.sent[id] != nil {
			again := nats.Header{subject.HeaderAgain: {"answer"}}
			return &transmission{id, &nats.Msg{Subject: s.p.subjects.Publish(s.name, ""), Reply: s.in.reply(id), Header: again}}
		}
	}
	for s.sendable(now) {
		r := &request{deadline: now.Add(s.p.cfg.Timeout)}
		if body := s.compose(r); body != nil {
			return s.send(r, s.p.subjects.Publish(s.name, ""), body)
		}
	}
	return nil
}

// compose moves ops from the outbox into r and returns the payload; nil if no op has
// anything to say.
func (s *Space) compose(r *request) []byte {
	b := make([]byte, 0, min(bytesMax+4<<10, 64+opBytes*min(opsMax, len(s.out.ops))))
	b = append(b, `{"atomic":false,"ops":[`...)
	for !s.out.empty() && len(r.ops) < opsMax && len(b) < bytesMax {
		if r.trace.parent != "" && !r.trace.joins(s.out.first().trace) {
			break
		}
		p := s.out.pop()
		before := len(b)
		if len(r.ops) > 0 {
			b = append(b, ',')
		}
		start := len(b)
		if b = s.appendPending(b, p); len(b) == start {
			b = b[:before]
			p.settle(Position{}, nil)
			continue
		}
		r.ops = append(r.ops, p)
		r.trace = r.trace.or(p.trace)
	}
	if len(r.ops) == 0 {
		return nil
	}
	return append(b, `]}`...)
}

// send begins to wait for the answer to a request, which run then transmits.
func (s *Space) send(r *request, subject string, body []byte) *transmission {
	s.last++
	s.sent[s.last] = r
	for _, p := range r.ops {
		p.next, s.inFlight[p.topic] = s.inFlight[p.topic], p
	}
	return &transmission{s.last, &nats.Msg{Subject: subject, Reply: s.in.reply(s.last), Data: body, Header: r.trace.header()}}
}

// transmitted takes what NATS says to a request.
func (s *Space) transmitted(now time.Time, t *transmission, err error) {
	r := s.sent[t.id]
	switch {
	case err == nil || r == nil || r.doubted:
	case errors.Is(err, nats.ErrMaxPayload):
		s.unsend(t.id)
		s.refuseAll(r, replication.CodeTooLarge, fmt.Sprintf("%d bytes exceed what NATS accepts (max_payload)", len(t.msg.Data)))
	default:
		s.unsend(t.id)
		s.fail(now, r, err)
	}
}

// unsend ends the wait for the answer to a request.
func (s *Space) unsend(id uint64) {
	for _, p := range s.sent[id].ops {
		s.inFlight[p.topic] = s.inFlight[p.topic].without(p)
		if s.inFlight[p.topic] == nil {
			delete(s.inFlight, p.topic)
		}
	}
	delete(s.sent, id)
}

// without returns the list of ops that begins with p without another one.
func (p *pendingOp) without(gone *pendingOp) *pendingOp {
	if p == gone {
		rest := gone.next
		gone.next = nil
		return rest
	}
	for x := p; x != nil; x = x.next {
		if x.next == gone {
			x.next, gone.next = gone.next, nil
			break
		}
	}
	return p
}

// probe returns the question for the relay's position if the relay was silent for too long.
func (s *Space) probe(now time.Time) *transmission {
	if len(s.states) == 0 || now.Sub(s.heard) < s.p.cfg.Probe || len(s.sent) > 0 {
		return nil
	}
	s.heard = now
	s.forgetRemoved(now)
	return s.send(&request{deadline: now.Add(s.p.cfg.Timeout)}, s.p.subjects.Get(s.name, ""), []byte(`{"max":1}`))
}

// expire asks for answers that are overdue. The relay may have applied what they answer, and clients may have written since.
func (s *Space) expire(now time.Time) {
	for id, r := range s.sent {
		switch {
		case now.Before(r.deadline):
		case len(r.ops) == 0:
			s.unsend(id)
			s.fail(now, r, errNoAnswer)
		default:
			r.doubted, r.deadline = true, now.Add(s.p.cfg.Timeout)
			s.doubts = append(s.doubts, id)
			s.outage.begin(now, errNoAnswer)
		}
	}
}

// fail puts the ops of a request back. Whether the relay applied them is unknown; to send
// what the copy says is right in both cases.
func (s *Space) fail(now time.Time, r *request, cause error) {
	s.out.pushFront(r.ops)
	s.counters.Repeated += uint64(len(r.ops))
	s.outage.begin(now, cause)
	if !now.Before(s.pausedUntil) {
		s.pausedUntil = now.Add(s.backoff)
		s.backoff = min(2*s.backoff, backoffMax)
	}
}

// pauseFor sends nothing for as long as an error asks, at least for Config.Retry.
func (s *Space) pauseFor(now time.Time, e *payload.AnswerError) {
	s.pausedUntil = now.Add(max(s.p.cfg.Retry, time.Duration(e.RetryAfter)*time.Millisecond))
}

// answered handles the answer to a request. It ignores one that comes after expire put
// the ops back.
func (s *Space) answered(now time.Time, reply *nats.Msg) {
	id, err := strconv.ParseUint(strings.TrimPrefix(reply.Subject, s.in.inbox), 10, 64)
	r := s.sent[id]
	if err != nil || r == nil {
		return
	}
	absent := reply.Header.Get("Status") == "503"
	if absent && r.doubted {
		s.outage.begin(now, errNoRelay)
		return // it is asked again
	}
	s.unsend(id)
	var a payload.Answer
	switch err := json.Unmarshal(reply.Data, &a); {
	case absent, err != nil:
		s.fail(now, r, errNoRelay)
		return
	case a.Epoch < s.epoch:
		s.fail(now, r, errOldRelay)
		return
	}
	s.heard = now
	s.outage.end()
	s.follow(a.Epoch)
	switch {
	case a.Error != nil && a.Error.Code == replication.CodeBusy:
		s.fail(now, r, errBusy)
		s.pauseFor(now, a.Error)
	case a.Error != nil:
		s.refuseAll(r, a.Error.Code, a.Error.Message)
	case len(a.Results) != len(r.ops):
		s.fail(now, r, errNoAnswer)
	default:
		s.backoff, s.pausedUntil = s.p.cfg.Retry, time.Time{}
		s.results(now, r, a)
	}
	for _, p := range r.ops {
		for _, ev := range s.unplaced.take(p.topic) {
			s.written(ev, true)
		}
	}
}

// results settles each op of a request, or recovers from its refusal, if another form of the op
// or a pause helps.
func (s *Space) results(now time.Time, r *request, a payload.Answer) {
	var again []*pendingOp
	for i, p := range r.ops {
		err := a.Results[i].Error
		if err == nil {
			s.accept(p, Position{Epoch: a.Epoch, Seq: a.Seq})
			continue
		}
		p.tries++
		code := err.Code
		st := s.of(p)
		ours := p.topic.ofState() && st != nil && st.put != nil
		switch {
		case code == replication.CodeBusy:
			again = append(again, p)
			s.pauseFor(now, err)
		case code == replication.CodeUnknownState && ours && !st.removedAt.IsZero(): // the relay has what the op asks for
			s.accept(p, Position{Epoch: a.Epoch, Seq: a.Seq})
		case code == replication.CodeUnknownState && p.asserts() && st != nil && st.put == nil && p.tries <= foreignTries:
			s.delayed.add(now.Add(min(s.p.cfg.Retry<<min(p.tries, 16), foreignPause)), p) // its client or its program has yet to tell the relay of it
		case p.tries > triesMax:
			s.refuse(p, code, err.Message)
		case ours && (!p.put || code == replication.CodeUnknownState) && slices.Contains(contradictions, code):
			// The relay lost the state, or has an older form of it; or it was removed, and put again meanwhile.
			if p.topic.kind == topicAudience {
				again = append(again, &pendingOp{topic: topic{topicState, p.topic.name}, verb: "put", assert: true})
			}
			p.assert = p.assert || p.topic.kind == topicState
			again = append(again, p)
		case code == replication.CodeUnknownClient && (p.topic.kind == topicGroups || p.topic.kind == topicEyes): // the relay has yet to hear of the client
			s.delayed.add(now.Add(s.p.cfg.Retry), p)
		default:
			s.refuse(p, code, err.Message)
		}
	}
	s.out.pushFront(again)
}

// contradictions are the refusals of values that were checked which show that the relay's state
// differs from the copy, or is missing.
var contradictions = []replication.Code{
	replication.CodeUnknownState, replication.CodeBadRequest, replication.CodeTypeMismatch, replication.CodeOutOfRange,
}

// A Space repeats what it said about a state of others, which the relay does not know, for about a minute: with growing pauses up to foreignPause,
// foreignTries times.
const (
	foreignPause = 2 * time.Second
	foreignTries = 40
)

// A schedule has ops in the order in which they are due.
type schedule []delayedOp

func (l *schedule) add(at time.Time, p *pendingOp) {
	i, _ := slices.BinarySearchFunc(*l, at, func(d delayedOp, at time.Time) int { return d.at.Compare(at) })
	*l = slices.Insert(*l, i, delayedOp{at, p})
}

// A delayedOp is sent again at a time.
type delayedOp struct {
	at time.Time
	op *pendingOp
}

// pushDelayed moves the ops that are due to the outbox.
func (s *Space) pushDelayed(now time.Time) {
	for len(s.delayed) > 0 && !s.delayed[0].at.After(now) {
		s.out.push(s.delayed[0].op)
		s.delayed = s.delayed[1:]
	}
}

// accept ends an op that the relay accepted, and forgets what the copy needs no longer.
func (s *Space) accept(p *pendingOp, pos Position) {
	s.counters.Accepted++
	s.counters.Position = pos
	p.settle(pos, nil)
	name := p.topic.name
	if p.topic.kind == topicGroups {
		s.forgetLeft(name)
	} else if p.topic.kind == topicInterest && s.interests[name].gone && !s.pending(p.topic) {
		delete(s.interests, name)
	} else if st := s.of(p); p.topic.ofState() && st != nil {
		st.accepted = st.accepted || p.put || p.assert && st.put != nil
		st.know(p, pos)
		s.forgetForeign(s.keep(st))
	}
}

// know notes that a relay has accepted an op: of what it changed the copy knows at which position that was.
func (st *state) know(p *pendingOp, pos Position) {
	later := func(known *Position) {
		if pos.After(*known) {
			*known = pos
		}
	}
	switch {
	case p.topic.kind == topicAudience:
		if p.changed {
			later(&st.knownWho)
		}
	case !st.removedAt.IsZero():
		if p.changed {
			later(&st.knownPut)
		}
	case st.put == nil:
		for name := range p.sets {
			if pos.After(st.knownOf[name]) {
				st.knownOf[name] = pos
			}
		}
	case p.put:
		later(&st.knownPut)
		later(&st.knownWho)
		for i := range st.known {
			later(&st.known[i])
		}
	default:
		for name := range p.sets {
			if i, err := strconv.Atoi(name); err == nil && i < len(st.known) {
				later(&st.known[i])
			}
		}
	}
}

// keep remembers what the Space said about a state of others, for relays to come, and returns the key of the oldest one beyond foreignMax, or nothing.
func (s *copied) keep(st *state) (oldest string) {
	if st.put != nil || st.kept || st.gone || !st.removedAt.IsZero() {
		return ""
	}
	st.kept = true
	if s.foreign = append(s.foreign, st.key); len(s.foreign) <= foreignMax {
		return ""
	}
	oldest, s.foreign = s.foreign[0], s.foreign[1:]
	if old := s.states[oldest]; old != nil {
		old.kept = false
	}
	return oldest
}

// madeBy returns the foreign states that a client made.
func (s *copied) madeBy(client string) (keys []string) {
	for _, key := range s.foreign {
		if strings.HasPrefix(key, "client."+client+".") {
			keys = append(keys, key)
		}
	}
	return keys
}

func (s *Space) refuseAll(r *request, code replication.Code, text string) {
	for _, p := range r.ops {
		s.refuse(p, code, text)
	}
}

// refuse ends an op that the relay does not accept.
func (s *Space) refuse(p *pendingOp, code replication.Code, text string) {
	err := &Error{Op: p.verb + " " + p.topic.name, Code: Code(code), Message: text}
	s.counters.Refused++
	if len(p.waiters) == 0 && !p.asserts() {
		s.untold = append(s.untold, func() { s.p.cfg.Refused(s.name, err) })
	}
	p.settle(Position{}, err)
	name := p.topic.name
	st := s.states[name]
	switch {
	case p.topic.kind == topicGroups:
		if code == replication.CodeUnknownClient {
			delete(s.groups, name)
		}
	case p.topic.kind == topicEyes:
		if code == replication.CodeUnknownClient {
			delete(s.eyes, name)
		}
	case p.topic.kind == topicInterest:
		delete(s.interests, name)
	case st != nil && st.put != nil && p.put && !st.accepted: // no relay ever had the state
		st.bound.end()
		s.forget(name)
	default:
		s.forgetForeign(name)
	}
}

// forgetForeign forgets the state of another program unless an op about it is pending.
func (s *Space) forgetForeign(name string) {
	st := s.states[name]
	if st != nil && st.put == nil && !s.pending(topic{topicState, name}) && !s.pending(topic{topicAudience, name}) {
		s.forget(name)
	}
}

// forgetLeft forgets the groups that a client left unless an op about them is pending.
func (s *Space) forgetLeft(client string) {
	if s.pending(topic{topicGroups, client}) {
		return
	}
	groups := s.groups[client]
	maps.DeleteFunc(groups, func(_ string, in bool) bool { return !in })
	if len(groups) == 0 {
		delete(s.groups, client)
	}
}

// pending reports whether something about a topic is not settled yet.
func (s *Space) pending(t topic) bool { return s.out.ops[t] != nil || s.inFlight[t] != nil }

// follow notes the epoch of an answer or event. A higher one is of another relay, which
// may lack what the relay before it had not stored.
func (s *Space) follow(epoch uint64) {
	if epoch > s.epoch && s.epoch != 0 {
		s.reassert()
	}
	s.epoch = max(epoch, s.epoch)
}

// A trace is the W3C Trace Context of a call. The zero value is none.
type trace struct{ parent, state string }

// traceOf returns the trace of the span in a context.
func traceOf(ctx context.Context) trace {
	sc := oteltrace.SpanContextFromContext(ctx)
	if !sc.IsValid() {
		return trace{}
	}
	return trace{"00-" + sc.TraceID().String() + "-" + sc.SpanID().String() + "-" + sc.TraceFlags().String(), sc.TraceState().String()}
}

// or returns t, or else u if there is no trace in t.
func (t trace) or(u trace) trace {
	if t.parent == "" {
		return u
	}
	return t
}

// joins reports whether an op with u may be in the publish with t: a publish has one trace.
func (t trace) joins(u trace) bool { return t.parent == "" || u.parent == "" || t == u }

// header returns the headers of a message, nil without a trace.
func (t trace) header() nats.Header { return t.add(nil) }

// add adds a trace to headers.
func (t trace) add(h nats.Header) nats.Header {
	if t.parent == "" {
		return h
	}
	if h == nil {
		h = nats.Header{}
	}
	h["traceparent"] = []string{t.parent}
	if t.state != "" {
		h["tracestate"] = []string{t.state}
	}
	return h
}
