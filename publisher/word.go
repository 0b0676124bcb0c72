package publisher

import "slices"

// A topic is what a word is about: a state, the audience of a state that somebody else
// put, or the groups of a client.
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

// A word is something about a topic that no relay has accepted yet. It says what is to
// be said, not how: the values are taken from the copy when it is sent, so that what is
// said again is the newest.
type word struct {
	topic   topic
	op      string // the newest op that is in it, for errors
	put     bool
	fresh   bool            // the state does not exist
	sets    map[string]bool // values, by index, or by name if somebody else put the state
	tries   int             // answers that asked for another word
	waiters []*waiter
}

// triesMax is how often the relay may contradict itself about one word: each time it
// does not know a state that it was just told of.
const triesMax = 5

// merge adds what a later word about the same topic says.
func (w *word) merge(later *word) {
	w.op = later.op
	w.put = w.put || later.put
	w.fresh = w.fresh || later.fresh
	for name := range later.sets {
		if w.sets == nil {
			w.sets = map[string]bool{}
		}
		w.sets[name] = true
	}
	w.waiters = append(w.waiters, later.waiters...)
	w.tries = max(w.tries, later.tries)
}

// A waiter is a call that waits until its words are accepted. The Space's goroutine
// owns it until done is closed.
type waiter struct {
	words    int
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
	if w.words--; w.words == 0 {
		close(w.done)
	}
}

// add lets a waiter wait for a word.
func (w *word) add(x *waiter) {
	if x != nil {
		x.words++
		w.waiters = append(w.waiters, x)
	}
}

func (w *word) settle(pos Position, err error) {
	for _, x := range w.waiters {
		x.settle(pos, err)
	}
	w.waiters = nil
}

// An outbox is the words that are to be sent, in the order in which they were first
// said. There is one word for each topic.
type outbox struct {
	words map[topic]*word
	order []topic
}

func (o *outbox) push(w *word) {
	if old, ok := o.words[w.topic]; ok {
		old.merge(w)
		return
	}
	o.words[w.topic] = w
	o.order = append(o.order, w.topic)
}

// unshift puts words back that were sent and not accepted, before all others.
func (o *outbox) unshift(list []*word) {
	var front []topic
	for _, w := range list {
		if later, ok := o.words[w.topic]; ok {
			w.merge(later)
		} else {
			front = append(front, w.topic)
		}
		o.words[w.topic] = w
	}
	o.order = append(front, o.order...)
}

func (o *outbox) pop() *word {
	t := o.order[0]
	o.order = slices.Delete(o.order, 0, 1)
	w := o.words[t]
	delete(o.words, t)
	return w
}

func (o *outbox) empty() bool { return len(o.order) == 0 }
