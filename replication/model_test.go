package replication

import (
	"container/heap"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/netstate"
)

// A world is a holder, some replicas and the channel between them, in one goroutine with
// simulated time. The channel loses, repeats and delays messages; different delays also reorder
// them.
type world struct {
	testing.TB
	rand     *rand.Rand
	now      time.Time
	store    *Store
	replicas []*Replica
	watchers []*watcher
	twin     twin
	loss     float64
	queue    deliveries
	count    int
	nextHead time.Time
}

type delivery struct {
	at  time.Time
	nth int // order of deliveries at one time
	do  func()
}

type deliveries []delivery

func (q deliveries) Len() int { return len(q) }
func (q deliveries) Less(i, j int) bool {
	if q[i].at.Equal(q[j].at) {
		return q[i].nth < q[j].nth
	}
	return q[i].at.Before(q[j].at)
}
func (q deliveries) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *deliveries) Push(x any)   { *q = append(*q, x.(delivery)) }
func (q *deliveries) Pop() any {
	d := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return d
}

func newWorld(t testing.TB, seed uint64, replicas int) *world {
	w := &world{TB: t, rand: rand.New(rand.NewPCG(seed, 1)), now: time.Unix(1000, 0), twin: newTwin()}
	w.store = NewStore(StoreConfig{Space: "s", Epoch: 10, Tick: 10 * time.Millisecond, Limits: modelLimits})
	for range replicas {
		o := newWatcher(t)
		w.watchers = append(w.watchers, o)
		w.replicas = append(w.replicas, NewReplica("s", o))
	}
	return w
}

// carry delivers by calling do, unless the channel loses the message; it may call do more than once.
func (w *world) carry(do func()) {
	copies := 1
	if w.loss > 0 {
		switch p := w.rand.Float64(); {
		case p < w.loss:
			copies = 0
		case p < w.loss+0.1:
			copies = 2
		}
	}
	for range copies {
		delay := time.Millisecond
		if w.loss > 0 {
			delay = time.Duration(w.rand.IntN(30)) * time.Millisecond
		}
		w.count++
		heap.Push(&w.queue, delivery{w.now.Add(delay), w.count, do})
	}
}

// step lets store and replicas do what is due, and then advances time.
func (w *world) step(d time.Duration) {
	for end := w.now.Add(d); w.now.Before(end); w.now = w.now.Add(time.Millisecond) {
		for len(w.queue) > 0 && !w.queue[0].at.After(w.now) {
			heap.Pop(&w.queue).(delivery).do()
		}
		w.flush()
		for i, r := range w.replicas {
			w.request(i, r)
		}
		if !w.now.Before(w.nextHead) {
			w.nextHead = w.now.Add(250 * time.Millisecond)
			epoch, seq := w.store.Position()
			for _, r := range w.replicas {
				w.carry(func() { r.ApplyHead(w.now, epoch, seq) })
			}
		}
	}
}

func (w *world) flush() {
	for _, o := range w.store.Advance(w.now) {
		if o.Kind != OutputBatch {
			continue
		}
		for _, r := range w.replicas {
			w.carry(func() { r.Apply(w.now, o.Data) })
		}
	}
}

func (w *world) request(i int, r *Replica) {
	q, ok := r.Advance(w.now)
	if !ok {
		return
	}
	w.carry(func() {
		for _, part := range w.store.Repair(w.now, q) {
			w.carry(func() { w.replicas[i].ApplyReply(w.now, part) })
		}
		w.flush()
	})
}

// newHolder replaces the store by one with the next epoch that restores the stored states.
// Messages of the old one in transit still arrive.
func (w *world) newHolder(durable map[uint64][]byte) {
	epoch, _ := w.store.Position()
	epoch += 1 + uint64(w.rand.IntN(3))
	next := NewStore(StoreConfig{Space: "s", Epoch: epoch, FirstNumber: epoch << 20, Tick: 10 * time.Millisecond, Limits: modelLimits})
	for _, n := range slices.Sorted(maps.Keys(durable)) {
		if _, err := next.Restore(n, durable[n]); err != nil {
			w.Fatalf("state %d was not restored: %v", n, err)
		}
	}
	w.store = next
	for _, c := range modelClients {
		next.Join(c, "session-"+c)
	}
}

// equal fails unless every replica and every observer equals the store and the twin, by bytes
// and by checksum.
func (w *world) equal(why string) {
	w.Helper()
	for ended := uint64(0); ended != w.store.stats.Expired; {
		ended = w.store.stats.Expired
		w.step(500 * time.Millisecond) // replicas have to learn of a state that ends at the last moment
	}
	for len(w.queue) > 0 { // a batch may have left at the last moment
		w.step(time.Millisecond)
	}
	w.twin.equal(w, w.store)
	epoch, seq := w.store.Position()
	for i, r := range w.replicas {
		if e, s := r.Position(); e != epoch || s != seq || !r.Complete() {
			w.Fatalf("%s: replica %d is at (%d, %d), complete %v, the store at (%d, %d)", why, i, e, s, r.Complete(), epoch, seq)
		}
		if len(r.states.byNumber) != len(w.store.states.byKey) {
			w.Fatalf("%s: replica %d has %d states, the store %d", why, i, len(r.states.byNumber), len(w.store.states.byKey))
		}
		for key, st := range w.store.states.byKey {
			w.equalState(fmt.Sprintf("%s: replica %d, state %q", why, i, key), r.states.byKey[key], st)
		}
		w.watchers[i].equal(r)
	}
}

func (w *world) equalState(what string, got *State, want *stored) {
	w.Helper()
	if got == nil || got.Number != want.Number || got.sum != want.sum {
		w.Fatalf("%s: got %+v, want number %d and describe sum %08x", what, got, want.Number, want.sum)
	}
	for i := range want.schema.defs {
		if string(got.Values.Value(i)) != string(want.Values.Value(i)) || got.IsNull(i) != want.IsNull(i) {
			w.Fatalf("%s: value %d is %x (null %v), want %x (null %v)", what, i,
				got.Values.Value(i), got.IsNull(i), want.Values.Value(i), want.IsNull(i))
		}
	}
	for _, rg := range want.schema.ranges {
		if got.crc(new([]byte), rg) != want.crc(new([]byte), rg) {
			w.Fatalf("%s: checksums of %v differ", what, rg)
		}
	}
}

// A watcher is an Observer that builds its own copy from the calls.
type watcher struct {
	testing.TB
	copies map[uint64]*netstate.State
	states map[uint64]*State
	groups map[string][]string

	interests map[string]*Interest
	eyes      map[string]bool // clients about whom something was told
}

func newWatcher(t testing.TB) *watcher {
	return &watcher{t, map[uint64]*netstate.State{}, map[uint64]*State{}, map[string][]string{}, map[string]*Interest{}, map[string]bool{}}
}

func (o *watcher) Added(s *State) {
	if o.copies[s.Number] != nil || s.hidden {
		o.Fatalf("state %d was added twice, or is hidden", s.Number)
	}
	c := netstate.NewState(s.Values.Layout())
	for i := range c.Layout().Len() {
		c.Set(i, s.Values.Value(i))
	}
	o.copies[s.Number], o.states[s.Number] = c, s
}

func (o *watcher) Changed(s *State, m netstate.Mask) {
	c := o.copies[s.Number]
	for i, ok := m.Next(0); ok; i, ok = m.Next(i + 1) {
		c.Set(i, s.Values.Value(i))
	}
}

func (o *watcher) Described(s *State) {
	if o.copies[s.Number] == nil {
		o.Fatalf("state %d was described before it was added", s.Number)
	}
}

func (o *watcher) Removed(s *State) {
	if o.copies[s.Number] == nil {
		o.Fatalf("state %d was removed but not added", s.Number)
	}
	delete(o.copies, s.Number)
	delete(o.states, s.Number)
}

func (o *watcher) Groups(client string, groups []string) {
	o.groups[client] = groups
	if len(groups) == 0 {
		delete(o.groups, client)
	}
}

func (o *watcher) Interest(name string, x *Interest) {
	if o.interests[name] = x; x == nil {
		delete(o.interests, name)
	}
}

func (o *watcher) Eyes(client string) { o.eyes[client] = true }

// equal fails unless the copy of the observer equals the replica.
func (o *watcher) equal(r *Replica) {
	o.Helper()
	n := 0
	for st := range r.All() {
		n++
		c := o.copies[st.Number]
		if c == nil || o.states[st.Number] != st {
			o.Fatalf("the observer was not called for state %d", st.Number)
		}
		for i := range c.Layout().Len() {
			if string(c.Value(i)) != string(st.Values.Value(i)) {
				o.Fatalf("state %d value %d: the observer has %x, the replica %x", st.Number, i, c.Value(i), st.Values.Value(i))
			}
		}
	}
	if n != len(o.copies) {
		o.Fatalf("the observer has %d states, the replica %d", len(o.copies), n)
	}
	for key := range r.states.byKey {
		if name, ok := strings.CutPrefix(key, interestToken+"."); ok {
			n--
			if !reflect.DeepEqual(o.interests[name], r.Interest(name)) {
				o.Fatalf("the observer has interest %q %+v, the replica %+v", name, o.interests[name], r.Interest(name))
			}
		}
		if client, ok := strings.CutPrefix(key, eyesToken+"."); ok && !o.eyes[client] {
			o.Fatalf("the observer was not told of the eyes of %q", client)
		}
	}
	if n += len(o.interests) - len(o.copies); n != 0 {
		o.Fatalf("the observer has %d interests more than the replica", n)
	}
	for c, groups := range o.groups {
		if !slices.Equal(groups, r.Groups(c)) {
			o.Fatalf("the observer has groups %v of %q, the replica %v", groups, c, r.Groups(c))
		}
	}
}
