package publisher

import "maps"

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
