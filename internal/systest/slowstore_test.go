package systest

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/replication"
)

// TestSlowStore plays three relays over a durable store that is slow, brings loads in parts, falls silent in the middle of them, and
// has two states of one key here and there, while game servers change and remove states and relays die, stand still and leave.
// A relay never begins to serve a shard with fewer states than were stored when its epoch began, nor with an older value than was
// stored, or than the same relay acknowledged if no other one held the shard since.
func TestSlowStore(t *testing.T) {
	var sum slowCounts
	worlds := 0
	repeated(t, 30, func(t *testing.T, seed uint64) {
		s := slowStore(t, seed)
		worlds++
		sum.served += s.served
		sum.again += s.again
		sum.interrupted += s.interrupted
		sum.replaced += s.replaced
	})
	t.Logf("%+v", sum)
	if worlds >= 20 && (sum.served < 10*worlds || sum.again < worlds/4 || sum.interrupted < worlds || sum.replaced < worlds) {
		t.Errorf("in %d worlds %+v: too little was tested", worlds, sum)
	}
}

// slowCounts say how much a simulation has tried.
type slowCounts struct {
	served      int // shards that a relay began to serve
	again       int // of those, held again with the states that the relay had
	interrupted int // loads in whose middle the store fell silent for longer than a lease lasts
	replaced    int // stored states that later ones with the same keys replaced
}

// A slowWorld is a ring over a slow store, and what is known about its states.
type slowWorld struct {
	*ring
	slowCounts
	rng    *rand.Rand
	epochs map[uint64]slowEpoch
	before map[int][]uint64 // epochs of a shard, in order
	states map[string]*slowState
	list   []*slowState
	most   time.Duration        // that the store takes at this time
	quiet  bool                 // no further fault
	seen   map[uint64]time.Time // the newest head, by epoch
}

// A slowEpoch is an ownership as the store knows it.
type slowEpoch struct {
	relay  *leaseNode
	stored []cluster.Keyframe // when it began
}

// A slowState is a state of which each value is above all former ones.
type slowState struct {
	space, key string
	n          int  // of the newest value
	removed    bool // its end was asked for
	acked      int  // the newest value that was acknowledged
	epoch      uint64
}

const (
	slowSpaces = 8
	slowKeys   = 4 // of each, at one time
)

func slowStore(t *testing.T, seed uint64) slowCounts {
	w := &slowWorld{
		rng: rand.New(rand.NewPCG(seed, 5)), epochs: make(map[uint64]slowEpoch), before: make(map[int][]uint64),
		states: make(map[string]*slowState), seen: make(map[uint64]time.Time),
	}
	w.ring = newRing(t, seed, 3)
	w.leases.Part = 3
	w.leases.Slow = func() time.Duration {
		if w.most == 0 {
			return 0
		}
		return time.Duration(w.rng.Int64N(int64(w.most)))
	}
	w.leases.OnAcquire, w.leases.OnLoad = w.acquired, w.loading
	published := w.hub.Tap
	w.hub.Tap = func(from string, m bus.Msg) {
		published(from, m)
		w.published(from, m)
	}
	for space := range slowSpaces {
		for range slowKeys {
			w.put(w.add(fmt.Sprint("space", space)))
		}
	}
	w.net.Run(3 * time.Second)
	w.anew(w.twins)
	for range 1500 {
		w.change()
		w.net.Run(50 * time.Millisecond)
		if w.rng.IntN(30) == 0 {
			w.trouble()
		}
	}
	w.quiet, w.most = true, 0
	w.heal()
	w.net.Run(15 * time.Second)
	w.anew(func() {})
	w.net.Run(10 * time.Second)
	w.finish()
	w.audit.check()
	return w.slowCounts
}

func (w *slowWorld) add(space string) *slowState {
	s := &slowState{space: space, key: fmt.Sprint("k", len(w.list))}
	w.states[space+"/"+s.key] = s
	w.list = append(w.list, s)
	return s
}

// put gives a state its next value. The relay that has lost a state makes it anew.
func (w *slowWorld) put(s *slowState) {
	s.n++
	n := s.n
	w.game.Request(bus.Msg{
		Subject: w.subjects.Publish(s.space, ""),
		Data:    fmt.Appendf(nil, `{"op":"put","key":%q,"values":[{"name":"n","type":"uint16","value":%d}]}`, s.key, n),
	}, time.Second, func(answer bus.Msg, err error) {
		var epoch, seq uint64
		if err != nil || strings.Contains(string(answer.Data), "error") {
			return
		}
		if _, err := fmt.Sscanf(string(answer.Data), `{"epoch":%d,"seq":%d`, &epoch, &seq); err != nil {
			w.Errorf("answer %s: %v", answer.Data, err)
		}
		if n > s.acked {
			s.acked, s.epoch = n, epoch
		}
	})
}

// change changes some states, and now and then ends one and begins another.
func (w *slowWorld) change() {
	for range 2 {
		if s := w.list[w.rng.IntN(len(w.list))]; !s.removed {
			w.put(s)
		}
	}
	if w.rng.IntN(40) > 0 {
		return
	}
	s := w.list[w.rng.IntN(len(w.list))]
	if !s.removed {
		s.removed = true
		w.fire(s.space, fmt.Sprintf(`{"op":"remove","key":%q}`, s.key))
		w.put(w.add(s.space))
	}
}

// anew kills all relays, does something, and starts them again.
func (w *slowWorld) anew(do func()) {
	for _, r := range w.relays {
		w.die(r)
	}
	do()
	for _, r := range w.relays {
		w.start(r)
	}
	w.tell()
}

// twins puts older states with the keys of others into the store, as a relay without them left them.
func (w *slowWorld) twins() {
	for shard := range simShards {
		stored := w.leases.shard(shard)
		for _, k := range stored.keyframes() {
			if len(k.Data) == 0 || w.rng.IntN(3) > 0 {
				continue
			}
			st := restored(w.T, k)
			old := replication.NewStore(replication.StoreConfig{Space: k.Space, Epoch: 1, FirstNumber: 1 + uint64(len(stored.states))})
			old.Publish(w.net.Now(), replication.Publish{Ops: []replication.Op{{Kind: replication.OpPut, Key: st.Desc.Key, Values: []replication.PutValue{{ValueDef: st.Desc.Values[0]}}}}})
			old.Advance(w.net.Now())
			d := old.TakeDirty(nil, 1)[0]
			stored.states[stateKey{k.Space, d.Number}] = cluster.Keyframe{Space: k.Space, Number: d.Number, Data: d.Data}
			w.replaced++
		}
	}
}

// restored returns a stored state.
func restored(t *testing.T, k cluster.Keyframe) *replication.State {
	t.Helper()
	s := replication.NewStore(replication.StoreConfig{Space: k.Space, Epoch: 1})
	if _, err := s.Restore(k.Number, k.Data); err != nil {
		t.Fatalf("state %d of %s cannot be read: %v", k.Number, k.Space, err)
	}
	return s.List("", 1).States[0]
}

func number(st *replication.State) int {
	v := st.Values.Value(0)
	return int(v[0]) | int(v[1])<<8
}

// acquired notes what was stored when an epoch began.
func (w *slowWorld) acquired(n *leaseNode, shard int, epoch uint64, stored []cluster.Keyframe) {
	w.epochs[epoch] = slowEpoch{n, stored}
	w.before[shard] = append(w.before[shard], epoch)
}

// loading lets the store fall silent in the middle of some loads.
func (w *slowWorld) loading() {
	if w.quiet || w.leases.silent || w.rng.IntN(3) > 0 {
		return
	}
	long := time.Second + time.Duration(w.rng.Int64N(int64(29*time.Second)))
	if long > 13*time.Second {
		w.interrupted++
	}
	w.net.Schedule(time.Duration(w.rng.Int64N(int64(w.most+5*time.Millisecond))), func() {
		if !w.quiet {
			w.leases.SetSilent(true)
		}
	})
	w.net.Schedule(long, func() { w.leases.SetSilent(false) })
}

// published looks at a relay that says for the first time that it serves a shard, or again after a pause.
func (w *slowWorld) published(from string, m bus.Msg) {
	shard, ok := w.subjects.ParseShard(m.Subject)
	if !ok || m.Subject != w.subjects.Head(shard) {
		return
	}
	epoch, _ := replication.HeadEpoch(m.Data)
	begun, ok := w.epochs[epoch]
	last := w.seen[epoch]
	if w.seen[epoch] = w.net.Now(); !ok || w.net.Now().Sub(last) < 2*time.Second { // it served all the time
		return
	}
	for _, r := range w.relays {
		if r.node == from && !r.dead {
			w.serves(r, shard, epoch, begun)
		}
	}
}

// serves compares what a relay begins to serve with what was stored and acknowledged.
func (w *slowWorld) serves(r *simRelay, shard int, epoch uint64, begun slowEpoch) {
	w.served++
	have := make(map[string]int)
	for space := range slowSpaces {
		name := fmt.Sprint("space", space)
		if store := r.store(name); store != nil && cluster.Shard(name, simShards) == shard {
			for _, st := range store.List("", 1<<10).States {
				have[name+"/"+st.Desc.Key] = number(st)
			}
		}
	}
	check := func(s *slowState, least int, why string) {
		switch n, ok := have[s.space+"/"+s.key]; {
		case !ok && !s.removed:
			w.Errorf("at %v %s begins to serve shard %d in epoch %d without %s of %s, which %s as %d", w.net.Elapsed(), r.node, shard, epoch, s.key, s.space, why, least)
		case ok && n < least:
			w.Errorf("at %v %s begins to serve shard %d in epoch %d with %s of %s as %d, which %s as %d", w.net.Elapsed(), r.node, shard, epoch, s.key, s.space, n, why, least)
		}
	}
	for _, k := range begun.stored {
		if len(k.Data) > 0 {
			st := restored(w.T, k)
			check(w.states[k.Space+"/"+st.Desc.Key], number(st), "was stored")
		}
	}
	again := false
	for _, s := range w.list {
		if s.acked > 0 && cluster.Shard(s.space, simShards) == shard && w.alone(shard, s.epoch, epoch) {
			again = true
			check(s, s.acked, "it acknowledged")
		}
	}
	if again {
		w.again++
	}
}

// alone reports whether one process of a relay began all epochs of a shard between two, these included.
func (w *slowWorld) alone(shard int, first, last uint64) bool {
	for _, epoch := range w.before[shard] {
		if epoch >= first && epoch <= last && w.epochs[epoch].relay != w.epochs[last].relay {
			return false
		}
	}
	_, ok := w.epochs[first]
	return ok && first <= last
}

// trouble lets something fail for a while.
func (w *slowWorld) trouble() {
	r := w.relays[w.rng.IntN(len(w.relays))]
	later := func(most time.Duration, f func()) {
		w.net.Schedule(time.Duration(w.rng.Int64N(int64(most))), func() {
			if !w.quiet {
				f()
			}
		})
	}
	if r.dead || r.paused {
		return
	}
	switch w.rng.IntN(6) {
	case 0:
		w.die(r)
		later(8*time.Second, func() { w.restart(r) })
	case 1:
		w.pause(r)
		later(20*time.Second, func() { w.wake(r) })
	case 2:
		w.leases.Cut(r.name, true)
		w.net.Schedule(detection, w.tell)
		later(20*time.Second, func() {
			w.leases.Cut(r.name, false)
			w.net.Schedule(detection, w.tell)
		})
	case 3: // mostly for longer than a lease lasts
		w.leases.SetSilent(true)
		w.net.Schedule(8*time.Second, func() { later(20*time.Second, func() { w.leases.SetSilent(false) }) })
	case 4:
		w.most = []time.Duration{0, time.Millisecond, 100 * time.Millisecond, time.Second, 5 * time.Second, 30 * time.Second}[w.rng.IntN(6)]
		later(15*time.Second, func() { w.most = 0 })
	case 5:
		w.drain(r)
		later(5*time.Second, func() {
			if r.leaves {
				r.kill()
				w.restart(r)
			}
		})
	}
}

// finish wants every state to be served by the holder of its space, as it was acknowledged and is stored, and one state of a key to
// be stored.
func (w *slowWorld) finish() {
	for _, s := range w.list {
		if !s.removed {
			w.put(s)
		}
	}
	w.net.Run(5 * time.Second)
	keys := make(map[string]int)
	for shard := range simShards {
		for _, k := range w.leases.shard(shard).keyframes() {
			if len(k.Data) == 0 {
				continue
			}
			st := restored(w.T, k)
			name := k.Space + "/" + st.Desc.Key
			if _, ok := keys[name]; ok {
				w.Errorf("two states with the key %s of %s are stored in the end", st.Desc.Key, k.Space)
			}
			keys[name] = number(st)
		}
	}
	for _, s := range w.list {
		if n, ok := keys[s.space+"/"+s.key]; !s.removed && (!ok || n != s.n || s.acked != s.n) {
			w.Errorf("%s of %s is %d, %d was acknowledged, %d (%v) is stored in the end", s.key, s.space, s.n, s.acked, n, ok)
		}
	}
}
