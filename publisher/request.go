package publisher

import (
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
	"github.com/nats-io/nats.go"
)

// A topic is what a pending op is about: a state, the audience of a state that another
// program put, or the groups of a client.
type topic struct {
	kind topicKind
	name string
}

type topicKind uint8

const (
	topicState topicKind = iota
	topicAudience
	topicGroups
)

// A pendingOp names something about a topic that no relay has accepted yet. It has no
// values: the Space writes them from its copy whenever it sends the op, so that a repeated
// op carries the newest ones.
type pendingOp struct {
	topic   topic
	source  string // the newest Op in it, as errors name it
	put     bool
	fresh   bool            // the relay does not have the state
	sets    map[string]bool // values, by index, or by name if another program put the state
	tries   int             // refusals of this op
	waiters []*waiter
}

// triesMax is from how many refusals of one op a Space recovers, for a relay may
// contradict itself: it accepts a state and then does not know it.
const triesMax = 5

// merge adds a later op about the same topic.
func (p *pendingOp) merge(later *pendingOp) {
	p.source = later.source
	p.put = p.put || later.put
	p.fresh = p.fresh || later.fresh
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
	if pos.after(w.position) {
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
	order []topic // pop moves its start, so that no entry is copied
}

func (o *outbox) push(p *pendingOp) {
	if earlier, ok := o.ops[p.topic]; ok {
		earlier.merge(p)
		return
	}
	o.ops[p.topic] = p
	o.order = append(o.order, p.topic)
}

// pushFront puts ops that were sent and not accepted before all others.
func (o *outbox) pushFront(list []*pendingOp) {
	var front []topic
	for _, p := range list {
		if later, ok := o.ops[p.topic]; ok {
			p.merge(later)
		} else {
			front = append(front, p.topic)
		}
		o.ops[p.topic] = p
	}
	if len(front) > 0 {
		o.order = append(front, o.order...)
	}
}

func (o *outbox) pop() *pendingOp {
	t := o.order[0]
	o.order[0] = topic{} // frees its name
	o.order = o.order[1:]
	p := o.ops[t]
	delete(o.ops, t)
	return p
}

func (o *outbox) empty() bool { return len(o.order) == 0 }

// Bounds of a publish: the relay accepts 10,000 ops, and NATS 1 MiB by default. The last
// op may exceed bytesMax.
const (
	opsMax   = 500
	bytesMax = 256 << 10
)

// backoffMax is the longest pause between attempts. It is a compromise: an election of
// NATS takes 4 to 9 s, and the takeover from a dead relay 3 s.
const backoffMax = time.Second

// A request waits for its answer. The relay applies each op of a publish separately, so
// that a bad one does not hold up the others.
type request struct {
	ops      []*pendingOp // in the order of the payload; none if it asks for the position
	deadline time.Time
}

// flush sends pending ops as far as the window and the pause allow.
func (s *Space) flush(now time.Time) {
	for !s.out.empty() && len(s.sent) < s.p.cfg.Window && !now.Before(s.pausedUntil) {
		r := &request{deadline: now.Add(s.p.cfg.Timeout)}
		if body := s.compose(r); body != nil {
			s.send(now, r, s.p.subjects.Publish(s.name, ""), body)
		}
	}
}

// compose moves ops from the outbox into r and returns the payload; nil if no op has
// anything to say.
func (s *Space) compose(r *request) []byte {
	b := []byte(`{"atomic":false,"ops":[`)
	for !s.out.empty() && len(r.ops) < opsMax && len(b) < bytesMax {
		p := s.out.pop()
		form := s.encodePending(p)
		if form == nil {
			p.settle(Position{}, nil)
			continue
		}
		if len(r.ops) > 0 {
			b = append(b, ',')
		}
		b = append(b, mustMarshal(form)...)
		r.ops = append(r.ops, p)
	}
	if len(r.ops) == 0 {
		return nil
	}
	return append(b, `]}`...)
}

func (s *Space) send(now time.Time, r *request, subject string, body []byte) {
	s.last++
	err := s.p.nc.PublishRequest(subject, s.inbox+strconv.FormatUint(s.last, 10), body)
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		s.refuseAll(r, replication.CodeTooLarge, fmt.Sprintf("%d bytes exceed what NATS accepts (max_payload)", len(body)))
	case err != nil:
		s.fail(now, r)
	default:
		s.sent[s.last] = r
		for _, p := range r.ops {
			s.inFlight[p.topic]++
		}
	}
}

// unsend ends the wait for the answer to a request.
func (s *Space) unsend(id uint64) {
	for _, p := range s.sent[id].ops {
		if s.inFlight[p.topic]--; s.inFlight[p.topic] == 0 {
			delete(s.inFlight, p.topic)
		}
	}
	delete(s.sent, id)
}

// probe asks for the relay's position if the relay was silent for too long.
func (s *Space) probe(now time.Time) {
	if len(s.states) == 0 || now.Sub(s.heard) < s.p.cfg.Probe || len(s.sent) > 0 {
		return
	}
	s.heard = now
	s.forgetRemoved(now)
	s.send(now, &request{deadline: now.Add(s.p.cfg.Timeout)}, s.p.subjects.Get(s.name, ""), []byte(`{"max":1}`))
}

// expire gives up answers that are overdue.
func (s *Space) expire(now time.Time) {
	for id, r := range s.sent {
		if !now.Before(r.deadline) {
			s.unsend(id)
			s.fail(now, r)
		}
	}
}

// fail puts the ops of a request back. Whether the relay applied them is unknown; to send
// what the copy says is right in both cases.
func (s *Space) fail(now time.Time, r *request) {
	s.out.pushFront(r.ops)
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
	id, err := strconv.ParseUint(strings.TrimPrefix(reply.Subject, s.inbox), 10, 64)
	r := s.sent[id]
	if err != nil || r == nil {
		return
	}
	s.unsend(id)
	var a payload.Answer
	if json.Unmarshal(reply.Data, &a) != nil || a.Epoch < s.epoch {
		s.fail(now, r) // NATS reports that there is no relay, or the relay does not know of its successor
		return
	}
	s.heard = now
	s.follow(a.Epoch)
	switch {
	case a.Error != nil && a.Error.Code == replication.CodeBusy:
		s.fail(now, r)
		s.pauseFor(now, a.Error)
	case a.Error != nil:
		s.refuseAll(r, a.Error.Code, a.Error.Message)
	case len(a.Results) != len(r.ops):
		s.fail(now, r)
	default:
		s.backoff, s.pausedUntil = s.p.cfg.Retry, time.Time{}
		s.results(now, r, a)
	}
}

// results settles each op of a request, or recovers from its refusal, if another form of the op
// or a pause helps.
func (s *Space) results(now time.Time, r *request, a payload.Answer) {
	var again []*pendingOp
	for i, p := range r.ops {
		err := a.Results[i].Error
		if err == nil {
			s.accept(p, Position{a.Epoch, a.Seq})
			continue
		}
		p.tries++
		code := err.Code
		st := s.states[p.topic.name]
		ours := p.topic.kind != topicGroups && st != nil && st.put != nil
		switch {
		case code == replication.CodeBusy:
			again = append(again, p)
			s.pauseFor(now, err)
		case code == replication.CodeUnknownState && ours && !st.removedAt.IsZero(): // the relay has what the op asks for
			s.accept(p, Position{a.Epoch, a.Seq})
		case p.tries > triesMax:
			s.refuse(p, code, err.Message)
		case ours && (!p.put || code == replication.CodeUnknownState) && slices.Contains(contradictions, code):
			// The relay lost the state, or has an older form of it; or it was removed, and put again meanwhile.
			p.topic.kind, p.put, p.fresh = topicState, true, true
			again = append(again, p)
		case code == replication.CodeUnknownClient && p.topic.kind == topicGroups: // the relay has yet to hear of the client
			s.delayed = append(s.delayed, delayedOp{now.Add(s.p.cfg.Retry), p})
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
	p.settle(pos, nil)
	name := p.topic.name
	if p.topic.kind == topicGroups {
		s.forgetLeft(name)
	} else if st := s.states[name]; st != nil {
		st.accepted = st.accepted || p.put
		s.forgetForeign(name)
	}
}

func (s *Space) refuseAll(r *request, code replication.Code, text string) {
	for _, p := range r.ops {
		s.refuse(p, code, text)
	}
}

// refuse ends an op that the relay does not accept.
func (s *Space) refuse(p *pendingOp, code replication.Code, text string) {
	err := &Error{Op: p.source, Code: string(code), Message: text}
	if len(p.waiters) == 0 {
		s.p.cfg.Refused(s.name, err)
	}
	p.settle(Position{}, err)
	name := p.topic.name
	st := s.states[name]
	switch {
	case p.topic.kind == topicGroups:
		if code == replication.CodeUnknownClient {
			delete(s.groups, name)
		}
	case st != nil && st.put != nil && p.put && !st.accepted: // no relay ever had the state
		delete(s.states, name)
	default:
		s.forgetForeign(name)
	}
}

// forgetForeign forgets the state of another program unless an op about it is pending.
func (s *Space) forgetForeign(name string) {
	st := s.states[name]
	if st != nil && st.put == nil && !s.pending(topic{topicState, name}) && !s.pending(topic{topicAudience, name}) {
		delete(s.states, name)
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
func (s *Space) pending(t topic) bool { return s.out.ops[t] != nil || s.inFlight[t] > 0 }

// follow notes the epoch of an answer or event. A higher one is of another relay, which
// may lack what the relay before it had not stored.
func (s *Space) follow(epoch uint64) {
	if epoch > s.epoch && s.epoch != 0 {
		s.reassert()
	}
	s.epoch = max(epoch, s.epoch)
}
