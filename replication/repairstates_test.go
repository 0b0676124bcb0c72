package replication

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/replication/view"
)

// crowd returns a test whose replica has all states of a space of n.
func crowd(t testing.TB, n int) *replicaTest {
	r := newReplicaTest(t)
	r.store.Store = NewStore(StoreConfig{Space: "s", Epoch: 7})
	for i := range n {
		r.store.ok(tower(fmt.Sprint("tower.", i), u8(byte(i)), u8(2), str("some text")))
	}
	r.batches(time.Second)
	r.repair()
	r.log = nil
	return r
}

// heals delivers requests and answers until the replica wants nothing more, and returns their bytes and how
// many there were.
func (t *replicaTest) heals(why string, kinds ...RepairKind) (asked, answered int) {
	t.Helper()
	var got []RepairKind
	for range 20 {
		t.now = t.now.Add(askAfter)
		q, ok := t.Advance(t.now)
		if !ok {
			break
		}
		got = append(got, RepairKind(q[1]))
		asked += len(q)
		for _, p := range t.store.Repair(t.store.now, q) {
			answered += len(p)
			t.ApplyReply(t.now, p)
		}
	}
	if !slices.Equal(got, kinds) || !t.Complete() {
		t.Fatalf("%s: asked for %v, complete %v, want %v", why, got, t.Complete(), kinds)
	}
	return asked, answered
}

// equalsStore fails unless the replica has exactly what the store has.
func (t *replicaTest) equalsStore(why string) {
	t.Helper()
	for key, st := range t.store.states.byKey {
		got := t.states.byKey[key]
		if got == nil || got.Number != st.Number || got.sum != st.sum || got.sumOf(new([]byte)) != st.sumOf(new([]byte)) {
			t.Fatalf("%s: state %s is %+v, want %+v", why, key, got, st)
		}
	}
	if t.Len() != len(t.store.states.byKey) {
		t.Fatalf("%s: %d states, want %d", why, t.Len(), len(t.store.states.byKey))
	}
}

// TestBytesOfOneValue counts the bytes with which one damaged value among 5,000 states is healed, however it
// is found.
func TestBytesOfOneValue(t *testing.T) {
	const most = 2000
	r := crowd(t, 5000)
	sum := func(why string, asked, answered int) {
		t.Helper()
		t.Logf("%s: %d bytes asked, %d answered", why, asked, answered)
		if asked+answered > most {
			t.Errorf("%s: %d bytes, want at most %d", why, asked+answered, most)
		}
		r.equalsStore(why)
	}
	damage := func() { r.ByKey("tower.4711").Values.Set(0, []byte{0xEE}) }

	damage()
	r.Apply(r.now, r.publish(set("tower.4711", "owner", u8(3)))[0])
	r.silent("nothing shows the damage yet")
	r.Apply(r.now, r.batches(time.Second)[0])
	asked, answered := r.heals("a checksum in the stream", RepairStates)
	sum("a checksum in the stream", asked, answered)

	damage()
	r.doubtAll()
	asked, answered = r.heals("something is wrong", RepairSums, RepairStates)
	sum("something is wrong, it is not known what", asked, answered)

	damage()
	asked, answered = 0, 0
	for range 3 {
		before := r.stats.AskedBytes
		r.now = r.now.Add(auditEvery)
		q, ok := r.Advance(r.now)
		if !ok {
			t.Fatal("no audit")
		}
		for _, p := range r.store.Repair(r.store.now, q) {
			answered += len(p)
			r.ApplyReply(r.now, p)
		}
		if r.wants() {
			_, more := r.heals("an audit", RepairStates)
			answered += more
		}
		asked += int(r.stats.AskedBytes - before)
	}
	sum("audits of the whole space, in a state that is quiet", asked, answered)

	damage()
	r.broken = true
	asked, answered = r.heals("the last resort", RepairKeyframes)
	t.Logf("the whole space: %d bytes asked, %d answered", asked, answered)
}

// An audit finds what no checksum in the stream tells.
func TestAuditFinds(t *testing.T) {
	for _, c := range []struct {
		why    string
		damage func(r *replicaTest)
	}{
		{"a value", func(r *replicaTest) { r.ByKey("tower.7").Values.Set(0, []byte{0xEE}) }},
		{"a missing state", func(r *replicaTest) { r.remove(r.ByKey("tower.7")) }},
		{"a state too much", func(r *replicaTest) { r.addExtra(9999, "extra") }},
		{"a state in place of another", func(r *replicaTest) { r.addExtra(8000, "tower.7") }},
		{"another layout", func(r *replicaTest) { r.addExtra(r.ByKey("tower.7").Number, "tower.7") }},
		{"another description", func(r *replicaTest) { r.ByKey("tower.7").sum++ }},
		{"all of it", func(r *replicaTest) {
			r.ByKey("tower.1").Values.Set(0, []byte{0xEE})
			r.remove(r.ByKey("tower.2"))
			r.addExtra(9999, "extra")
			r.addExtra(r.ByKey("tower.7").Number, "tower.7")
		}},
	} {
		r := crowd(t, 100)
		r.silent("the time of the next audit is set")
		c.damage(r)
		r.now = r.now.Add(auditEvery)
		r.heals(c.why, RepairSums, RepairStates)
		r.equalsStore(c.why)
	}
}

// addExtra gives the replica a state that the store does not have, with one value of three bytes less.
func (t *replicaTest) addExtra(number uint64, key string) {
	defs := []ValueDef{{Name: "odd", Type: typ("uint16")}}
	d := &Description{Key: key, Message: []byte(key), Values: defs}
	c := t.schemas.acquire(defs, 0)
	st := newState(number, d, c)
	t.insert(&st)
}

// An answer is true at one position. The replica holds it until then, and does not apply one that
// live batches overtook.
func TestStatesInTime(t *testing.T) {
	r := joined(t)
	diverge := func() []byte {
		r.now = r.now.Add(time.Second)
		r.ByKey("a").Values.Set(0, []byte{0xEE})
		r.doubtState(1, 1)
		r.settle(r.now)
		return r.asks("in doubt", RepairStates)
	}
	q := diverge()
	late := r.publish(set("a", "hp", u8(5)))[0]
	parts := r.store.Repair(r.store.now, q)
	r.ApplyReply(r.now, parts[0])
	r.said("the answer is ahead of the replica")
	r.Apply(r.now, late)
	r.said("the batch, and then the answer, which has the same", "changed a 0=05")
	r.at("healed", 7, 2, true)

	parts = r.store.Repair(r.store.now, diverge())
	r.Apply(r.now, r.publish(set("a", "hp", u8(7)))[0])
	r.said("a batch overtakes the answer", "changed a 0=07")
	r.ApplyReply(r.now, parts[0])
	r.said("the answer would put the value back")
	r.at("still in doubt", 7, 3, false)
	r.silent("not at once")
	r.heals("asks again", RepairStates)
	r.equalsStore("healed")
	r.said("nothing was wrong any more")
}

// A holder does not answer requests for states, or all answers are lost: the replica asks for everything.
func TestUnansweredDoubt(t *testing.T) {
	r := crowd(t, 50)
	for range 2 {
		r.ByKey("tower.7").Values.Set(0, []byte{0xEE})
		r.Apply(r.now, r.publish(set("tower.7", "owner", u8(byte(r.store.batch.seq))))[0])
		r.Apply(r.now, r.batches(time.Second)[0])
		var kinds []RepairKind
		for range 10 {
			r.now = r.now.Add(askAfterMax)
			q, ok := r.Advance(r.now)
			if !ok {
				break
			}
			kinds = append(kinds, RepairKind(q[1]))
			if RepairKind(q[1]) > RepairKeyframes {
				continue // lost
			}
			for _, p := range r.store.Repair(r.store.now, q) {
				r.ApplyReply(r.now, p)
			}
		}
		if !slices.Equal(kinds, []RepairKind{3, 3, 3, 2}) {
			t.Errorf("asked for %v, want three times for the state and then for everything", kinds)
		}
		r.equalsStore("healed")
		r.now = r.now.Add(time.Second)
	}
}

// Requests for another epoch get an answer that tells the epoch, and costs nothing.
func TestStatesOfAnotherEpoch(t *testing.T) {
	r := crowd(t, 50)
	for _, kind := range []RepairKind{RepairStates, RepairSums} {
		q := RepairRequest{Kind: kind, Space: "s", Epoch: 6, groups: groupSet{of: 1, n: 1}}
		parts := r.store.Repair(r.store.now, q.append(nil))
		if len(parts) != 1 || len(parts[0]) > view.HeaderMax {
			t.Errorf("kind %d: the answer is %x, want only a position", kind, parts)
		}
	}
}

// Of a state with many views only the one that differs is sent.
func TestViewsOfWideStates(t *testing.T) {
	r := newReplicaTest(t)
	r.publish(Op{Kind: OpPut, Key: "wide", Values: putValues(manyDefs(1000, "uint64"))})
	r.repair()
	r.ByKey("wide").Values.Set(700, []byte{1, 2, 3, 4, 5, 6, 7, 8})
	r.now = r.now.Add(time.Second)
	r.Apply(r.now, r.batches(time.Second)[0])
	asked, answered := r.heals("one of 8 views", RepairStates)
	r.equalsStore("healed")
	if asked+answered > 1400 {
		t.Errorf("%d bytes asked, %d answered, for one view of 1 kB", asked, answered)
	}
}

// TestLargeStates heals more than fits into one answer.
func TestLargeStates(t *testing.T) {
	r := large(t, 40)
	r.repair()
	for i := range 40 {
		r.remove(r.ByKey(fmt.Sprint("big", i)))
		r.doubtState(uint64(i+1), 0)
	}
	r.log = nil
	asked, answered := r.heals("40 states of 16,000 bytes, 16 of which fit", RepairStates, RepairStates, RepairStates)
	r.equalsStore("healed")
	t.Logf("%d bytes asked, %d answered", asked, answered)
}

// TestDamageHeals damages replicas at random, several ways at a time, while the space changes and the channel
// loses messages. Every damage heals, mostly without asking for the whole space.
func TestDamageHeals(t *testing.T) {
	seeds(t, func(t *testing.T, seed uint64) { damageHeals(newWorld(t, seed, 2)) })
}

func damageHeals(w *world) {
	for _, c := range modelClients {
		w.store.Join(c, "session-"+c)
	}
	w.loss = 0.1
	for i := range 300 {
		for range w.rand.IntN(4) {
			w.op()
		}
		w.step(time.Duration(w.rand.IntN(20)) * time.Millisecond)
		if i%20 == 0 {
			for range 1 + w.rand.IntN(4) {
				w.damage(w.replicas[w.rand.IntN(2)])
			}
		}
	}
	w.loss = 0
	w.step(2*auditEvery + 3*time.Second)
	w.equal("two audits were made")
	var sum ReplicaStats
	for _, r := range w.replicas {
		sum.StateRequests += r.stats.StateRequests
		sum.AuditRequests += r.stats.AuditRequests
		sum.KeyframeRequests += r.stats.KeyframeRequests
		sum.Divergence += r.stats.Divergence
	}
	if sum.StateRequests == 0 || sum.AuditRequests == 0 {
		w.Fatalf("%+v, so little was tested", sum)
	}
	w.Logf("%d views or groups differed; requests for states %d, for keyframes %d", sum.Divergence, sum.StateRequests, sum.KeyframeRequests)
}

// damage changes something in the copy of a replica.
func (w *world) damage(r *Replica) {
	all := slices.DeleteFunc(slices.Clone(r.states.all), func(st *State) bool { return st.dead || st.hidden })
	if len(all) == 0 || r.asm.number != 0 {
		return
	}
	st := all[w.rand.IntN(len(all))]
	switch w.rand.IntN(6) {
	case 0, 1:
		i := w.rand.IntN(len(st.schema.defs))
		st.set(i, randomValue(w.rand, st.schema.defs[i].Type), false)
		changed := netstate.NewMask(len(st.schema.defs)) // as by a wrong batch: if the holder sets the same value later, nothing changes for the replica
		changed.Set(i)
		r.obs.Changed(st, changed)
	case 2:
		r.remove(st)
	case 3:
		w.add(r, 1<<40+w.rand.Uint64N(1<<10), fmt.Sprint("extra", w.rand.IntN(3)))
	case 4:
		w.add(r, st.Number, st.Desc.Key)
	case 5:
		if n := len(r.refs); n > 2 {
			a, b := 1+w.rand.IntN(n-1), 1+w.rand.IntN(n-1)
			r.refs[a], r.refs[b] = r.refs[b], r.refs[a]
		}
	}
}

// add gives a replica a state with a random layout.
func (w *world) add(r *Replica, number uint64, key string) {
	defs := modelKinds[w.rand.IntN(len(modelKinds))]
	c := r.schemas.acquire(defs, 3000)
	d := &Description{Key: key, Message: []byte(key), Values: c.defs, ValueMax: 3000}
	st := newState(number, d, c)
	st.sum = rand.Uint32()
	r.insert(&st)
}
