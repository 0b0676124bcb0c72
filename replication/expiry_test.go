package replication

import (
	"fmt"
	"reflect"
	"testing"
	"time"
)

// mortal is a put with a time to live.
func mortal(key string, ttl time.Duration) Op {
	op := tower(key, u8(1))
	op.HasTTL, op.TTL = true, ttl
	return op
}

// has fails unless these states are left.
func (t *storeTest) has(why string, want ...string) {
	t.Helper()
	var got []string
	for _, l := range t.List("", 1000).States {
		got = append(got, l.Desc.Key)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("%s: the states are %v, want %v", why, got, want)
	}
}

// passes lets time pass as an owner does that calls Advance exactly when NextTimeout says so.
func (t *storeTest) passes(d time.Duration) {
	for end := t.now.Add(d); ; {
		at, ok := t.NextTimeout()
		if !ok || at.After(end) {
			t.now = end
			return
		}
		if at.After(t.now) {
			t.now = at
		}
		t.Advance(t.now)
	}
}

// TestTTL: a state ends when its time to live is over, and each op of a publisher about it begins
// the time again.
func TestTTL(t *testing.T) {
	s := newStoreTest(t, Limits{})
	s.ok(mortal("a", 3*time.Second))
	s.ok(mortal("b", 3*time.Second))
	s.ok(tower("stays", u8(1)))
	s.passes(2900 * time.Millisecond)
	s.has("before the time is over", "a", "b", "stays")
	s.ok(Op{Kind: OpSet, Key: "a", Sets: []SetValue{{Name: "0", Value: u8(1)}}})
	s.passes(200 * time.Millisecond)
	s.has("a set began the time of a again, although it changes nothing", "a", "stays")
	for _, op := range []Op{
		{Kind: OpAudience, Key: "a", HasAudience: true},
		tower("a", u8(2)),
	} {
		s.passes(2500 * time.Millisecond)
		s.ok(op)
	}
	s.passes(2900 * time.Millisecond)
	s.has("an audience and a put without ttl did, too, and left it as it was", "a", "stays")
	s.passes(100 * time.Millisecond)
	s.has("3 s after the last op", "stays")
	if n := s.Stats().Expired; n != 2 {
		t.Fatalf("%d states are counted, want 2", n)
	}
	s.ok(mortal("a", 2*time.Second))
	s.passes(2 * time.Second)
	s.has("a state of the same key has a time of its own", "stays")
	if at, ok := s.expiries.next(); ok {
		t.Fatalf("no state has a time to live, and one is due at %v", at)
	}
}

// TestTTLEnds: replicas, the durable store and game servers learn that a state ended.
func TestTTLEnds(t *testing.T) {
	s := newStoreTest(t, Limits{})
	s.ok(mortal("a", time.Second))
	s.passes(900 * time.Millisecond)
	s.TakeDirty(nil, 9)
	s.sends("the end is a batch", 100*time.Millisecond, "batch 7 3<2 1:6:", "event expired  a (7, 3)")
	if d := s.TakeDirty(nil, 9); len(d) != 1 || d[0].Data != nil {
		t.Fatalf("the durable store gets %+v, want the removal", d)
	}
}

// TestTTLTogether: states that end at once do so in several batches, each with a bounded number of events behind it,
// and publishes are answered meanwhile. One that is mentioned before its turn stays.
func TestTTLTogether(t *testing.T) {
	const each = 1000 // as INTERFACES.md says
	s := newStoreTest(t, Limits{Waiting: each + 1})
	const all = 2*each + 5
	var ops []Op
	for i := range all {
		ops = append(ops, mortal(fmt.Sprintf("%04d", i), time.Second))
	}
	if err := publish(s.Store, s.now, ops...); err != nil {
		t.Fatal(err)
	}
	s.Advance(s.now)
	s.now = s.now.Add(2 * time.Second)
	events := map[string]bool{}
	ended := func(why string, want int) {
		t.Helper()
		n := 0
		for _, o := range s.Advance(s.now) {
			if o.Kind == OutputEvent && o.Event.Type == EventExpired && !events[o.Event.Key] {
				events[o.Event.Key] = true
				n++
			}
		}
		if n != want {
			t.Fatalf("%s: %d states ended, want %d", why, n, want)
		}
	}
	ended("the first batch", each)
	at, ok := s.NextTimeout()
	if !ok || at.After(s.now) {
		t.Fatalf("more states are due, and the next timeout is %v, %v", at, ok)
	}
	ended("the same moment: the tick has not passed", 0)
	ended("again", 0)
	if at, ok = s.NextTimeout(); !ok || !at.After(s.now) {
		t.Fatalf("the next batch is due at %v, %v, which would keep the owner busy", at, ok)
	}
	last := ""
	for _, l := range s.List("", all).States {
		last = l.Desc.Key
	}
	s.ok(Op{Kind: OpAudience, Key: last, HasAudience: true})
	s.now = at
	ended("the second batch", each)
	s.passes(900 * time.Millisecond)
	s.has("one was mentioned before its turn", last)
	if n := s.Stats().Expired; n != all-1 {
		t.Fatalf("%d states are counted, want %d", n, all-1)
	}
}

// TestTTLChanges: a put changes or removes the time to live, alone or with another layout.
func TestTTLChanges(t *testing.T) {
	s := newStoreTest(t, Limits{})
	s.ok(mortal("longer", 2*time.Second))
	s.ok(mortal("shorter", time.Hour))
	s.ok(mortal("ever", time.Second))
	s.ok(mortal("layout", 2*time.Second))
	s.ok(mortal("gone", time.Hour))
	s.passes(500 * time.Millisecond)
	s.ok(mortal("longer", 10*time.Second))
	s.ok(mortal("shorter", time.Second))
	s.ok(mortal("ever", 0))
	s.ok(tower("layout", u8(1), Null{}))
	s.ok(Op{Kind: OpRemove, Key: "gone"})
	s.passes(1500 * time.Millisecond)
	s.has("shorter is over", "ever", "layout", "longer")
	s.passes(600 * time.Millisecond)
	s.has("the state of another layout has the time to live of the one before", "ever", "longer")
	s.passes(8 * time.Second)
	s.has("longer is over", "ever")
	s.passes(time.Hour)
	s.has("0 is none", "ever")
}

// TestTTLOfRefused: what is refused begins no time again, and a publish that is rolled back leaves
// the times as they were.
func TestTTLOfRefused(t *testing.T) {
	s := newStoreTest(t, Limits{})
	s.ok(mortal("a", 2*time.Second))
	s.ok(mortal("b", 2*time.Second))
	bad := Op{Kind: OpRemove, Key: "unknown"}
	s.passes(1500 * time.Millisecond)
	s.refuse("a set without the value", CodeBadRequest, "", Op{Kind: OpSet, Key: "a", Sets: []SetValue{{Name: "x", Value: u8(1)}}})
	s.refuse("rolled back", CodeUnknownState, "", tower("a", u8(9)), mortal("b", time.Hour), bad)
	s.refuse("removed and brought back", CodeUnknownState, "", Op{Kind: OpClear}, tower("b", u8(1), Null{}), bad)
	s.Publish(s.now, Publish{Ops: []Op{bad, {Kind: OpSet, Key: "b", Sets: []SetValue{{Name: "0", Value: u8(3)}}}}})
	s.passes(500 * time.Millisecond)
	s.has("of a publish that is not atomic, the ops that were applied count", "b")
	s.passes(1500 * time.Millisecond)
	s.has("and their time ends")
	for _, ttl := range []time.Duration{-1, 1, time.Second - 1, TTLMax + 1} {
		s.refuse("out of range", CodeBadRequest, "ttl", mortal("c", ttl))
	}
}

// TestTTLIsStored: a time to live outlives its holder and begins again with the next one. Replicas
// get the same bytes as without.
func TestTTLIsStored(t *testing.T) {
	s := newStoreTest(t, Limits{})
	s.ok(mortal("a", 3*time.Second))
	s.ok(mortal("changed", 3*time.Second))
	s.Advance(s.now)
	stored := map[uint64]Durable{}
	store := func() {
		for _, d := range s.TakeDirty(nil, 9) {
			stored[d.Number] = d
		}
	}
	store()
	s.ok(mortal("changed", 5*time.Second))
	s.passes(time.Second)
	store()
	next := &storeTest{t, NewStore(StoreConfig{Space: "s", Epoch: 8}), s.now.Add(time.Hour)}
	for _, d := range stored {
		if _, err := next.Restore(d.Number, d.Data); err != nil {
			t.Fatal(err)
		}
		for n := range d.Data {
			if n == withoutPosition(d) {
				continue
			}
			if _, err := NewStore(StoreConfig{Epoch: 8}).Restore(d.Number, d.Data[:n]); err == nil && n > 0 {
				t.Fatalf("a state was restored from %d of %d bytes", n, len(d.Data))
			}
		}
	}
	if got, want := next.states.byKey["changed"], s.states.byKey["changed"]; !reflect.DeepEqual(got.Desc, want.Desc) || got.sum != want.sum {
		t.Fatalf("restored %+v, want %+v", got.Desc, want.Desc)
	}
	r := &replicaTest{TB: t, store: next, now: next.now}
	r.Replica = NewReplica("s", r)
	r.repair()
	if st := r.ByKey("a"); st == nil || st.Desc.TTL != 0 {
		t.Fatalf("the replica has %+v, want the state without its time to live", st)
	}
	next.passes(2900 * time.Millisecond)
	next.has("the time began with the holder", "a", "changed")
	next.passes(100 * time.Millisecond)
	next.has("and ends", "changed")
	next.passes(2 * time.Second)
	next.has("a change of the time to live alone was stored")
	forged := appendStoredDescribe(nil, s.states.byKey["changed"].Desc)
	clear(forged[len(forged)-8:])
	if _, err := parseDescribe(forged); err == nil {
		t.Fatal("a time to live of 0 was read, which no store writes")
	}
}
