package replication

import (
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/netstate"
)

// A replicaTest is a transcript of the input and output of a Replica. A Store provides real
// batches.
type replicaTest struct {
	testing.TB
	*Replica
	store *storeTest
	log   []string
	now   time.Time
}

func newReplicaTest(t testing.TB) *replicaTest {
	r := &replicaTest{TB: t, store: newStoreTest(t, Limits{}), now: time.Unix(1000, 0)}
	r.Replica = NewReplica("s", r)
	return r
}

// joined returns a test whose replica holds state "a" at (7, 1).
func joined(t testing.TB) *replicaTest {
	r := newReplicaTest(t)
	r.publish(tower("a", u8(1), u8(2), str("x")))
	r.repair()
	r.said("late join", "added a")
	return r
}

func (t *replicaTest) Added(s *State)     { t.log = append(t.log, "added "+s.Desc.Key) }
func (t *replicaTest) Described(s *State) { t.log = append(t.log, "described "+s.Desc.Key) }
func (t *replicaTest) Removed(s *State)   { t.log = append(t.log, "removed "+s.Desc.Key) }
func (t *replicaTest) Groups(client string, groups []string) {
	t.log = append(t.log, fmt.Sprint("groups ", client, " ", groups))
}

func (t *replicaTest) Interest(name string, x *Interest) {
	t.log = append(t.log, fmt.Sprintf("interest %s %+v", name, x))
}

func (t *replicaTest) Eyes(client string) {
	t.log = append(t.log, fmt.Sprintf("eyes %q %v", client, t.Replica.Eyes(cmp.Or(client, "anyone"))))
}

func (t *replicaTest) Changed(s *State, m netstate.Mask) {
	line := "changed " + s.Desc.Key
	for i, ok := m.Next(0); ok; i, ok = m.Next(i + 1) {
		line += fmt.Sprintf(" %d=%x", i, s.Values.Value(i))
	}
	t.log = append(t.log, line)
}

// said compares the calls of the observer since the last said.
func (t *replicaTest) said(why string, want ...string) {
	t.Helper()
	if g, w := strings.Join(t.log, "\n"), strings.Join(want, "\n"); g != w {
		t.Fatalf("%s: the observer got\n%s\nwant\n%s", why, g, w)
	}
	t.log = nil
}

// publish returns the batches of ops.
func (t *replicaTest) publish(ops ...Op) (batches [][]byte) {
	t.Helper()
	for _, op := range ops {
		t.store.ok(op)
	}
	return t.batches(time.Second / 100)
}

func (t *replicaTest) batches(after time.Duration) (batches [][]byte) {
	t.store.now = t.store.now.Add(after)
	for _, o := range t.store.Advance(t.store.now) {
		if o.Kind == OutputBatch {
			batches = append(batches, o.Data)
		}
	}
	return batches
}

// asks fails unless a request of this kind is due now.
func (t *replicaTest) asks(why string, kind RepairKind) []byte {
	t.Helper()
	q, ok := t.Advance(t.now)
	if !ok || RepairKind(q[1]) != kind {
		t.Fatalf("%s: asks %x, %v, want kind %d", why, q, ok, kind)
	}
	return q
}

func (t *replicaTest) silent(why string) {
	t.Helper()
	if q, ok := t.Advance(t.now); ok {
		t.Fatalf("%s: asks %x", why, q)
	}
}

func (t *replicaTest) repair() {
	t.Helper()
	q, ok := t.Advance(t.now)
	if !ok {
		t.Fatal("the replica asks for nothing")
	}
	for _, p := range t.store.Repair(t.store.now, q) {
		t.ApplyReply(t.now, p)
	}
}

func (t *replicaTest) at(why string, epoch, seq uint64, complete bool) {
	t.Helper()
	if e, s := t.Position(); e != epoch || s != seq || t.Complete() != complete {
		t.Fatalf("%s: at (%d, %d), complete %v, want (%d, %d), %v", why, e, s, t.Complete(), epoch, seq, complete)
	}
}

func TestReplicaApplies(t *testing.T) {
	r := joined(t)
	r.at("after the keyframes", 7, 1, true)
	b := r.publish(set("a", "hp", u8(5), "owner", Null{}))[0]
	r.Apply(r.now, b)
	r.said("without knowledge of null, a null value is its substitute", "changed a 0=05 1=09")
	if st := r.ByKey("a"); !st.IsNull(1) || st.IsNull(0) || r.State(st.Number) != st {
		t.Fatal("value 1 is null, value 0 is not")
	}
	r.Apply(r.now, b)
	r.said("the same batch again")
	if r.stats.Duplicates != 1 {
		t.Fatal("the replica did not count the repetition")
	}
	op := tower("a")
	op.HasMessage, op.Message = true, []byte("hello")
	r.Apply(r.now, r.publish(op)[0])
	r.said("another description", "described a")
	r.Apply(r.now, r.publish(Op{Kind: OpRemove, Key: "a"})[0])
	r.said("removal", "removed a")
	r.silent("nothing is missing")
}

func TestReplicaHidesGroups(t *testing.T) {
	r := joined(t)
	r.store.Join("c1", "s1")
	r.Apply(r.now, r.publish(Op{Kind: OpGroup, Client: "c1", Join: []string{"red"}})[0])
	r.Apply(r.now, r.publish(Op{Kind: OpGroup, Client: "c1", Join: []string{"blue"}})[0])
	r.store.Leave("c1", "s1")
	if r.ByKey("_groups.c1") != nil || fmt.Sprint(r.Replica.Groups("c1")) != "[red blue]" {
		t.Fatal("groups must be visible, but not the state that holds them")
	}
	r.Apply(r.now, r.batches(time.Second / 100)[0])
	r.said("groups", "groups c1 [red]", "groups c1 [red blue]", "groups c1 []")
}

func TestReplicaRange(t *testing.T) {
	r := joined(t)
	r.publish(set("a", "hp", u8(2)))
	third := r.publish(set("a", "hp", u8(3)))[0]
	r.Apply(r.now, third)
	r.said("batch 3 without batch 2 is held")
	r.at("held", 7, 1, false)
	q := r.asks("the replica asks for a gap at once", RepairRange)
	if want := "01 01 01 73 0700000000000000 0100000000000000 0200000000000000 0300000000000000"; fmt.Sprintf("%x", q) != strings.ReplaceAll(want, " ", "") {
		t.Fatalf("request %x, want %s", q, want)
	}
	r.silent("the replica has asked already")
	parts := r.store.Repair(r.store.now, q)
	r.ApplyReply(r.now, parts[0])
	r.said("the missing batch, and the one that was held", "changed a 0=02", "changed a 0=03")
	r.at("healed", 7, 3, true)
}

func TestReplicaAsksAgain(t *testing.T) {
	r := newReplicaTest(t)
	for _, wait := range []int{100, 200, 400, 800, 1600, 2000, 2000} {
		r.asks("no answer arrived", RepairKeyframes)
		r.now = r.now.Add(time.Duration(wait)*time.Millisecond - 1)
		r.silent("not before the doubled wait")
		if at, ok := r.NextTimeout(); !ok || at.Sub(r.now) != 1 {
			t.Fatalf("next is in %v", at.Sub(r.now))
		}
		r.now = r.now.Add(1)
	}
	r.asks("still", RepairKeyframes)
	r.now = r.now.Add(time.Second / 2)
	r.ApplyHead(r.now, 7, 1)
	r.asks("the holder is reachable again", RepairKeyframes)
}

func TestReplicaHead(t *testing.T) {
	r := joined(t)
	r.publish(set("a", "hp", u8(2)))
	r.ApplyHead(r.now, 7, 2)
	r.at("the last batch was lost, and only the head shows it", 7, 1, false)
	r.asks("at once", RepairRange)
	r.ApplyHead(r.now, 6, 99)
	if r.stats.OldEpoch != 1 {
		t.Fatal("the replica believed a former holder")
	}
}

func TestReplicaReconnected(t *testing.T) {
	r := joined(t)
	r.Reconnected(r.now)
	r.repair()
	r.at("nothing was lost", 7, 1, true)
	r.publish(set("a", "hp", u8(2)))
	r.Reconnected(r.now)
	r.repair()
	r.said("something was lost without a trace", "changed a 0=02")
	r.at("healed", 7, 2, true)
}

func TestReplicaRangeIsGone(t *testing.T) {
	r := joined(t)
	r.publish(set("a", "hp", u8(2)))
	r.store.now = r.store.now.Add(ringAge + 1)
	r.Apply(r.now, r.publish(tower("b"))[0])
	r.repair()
	r.said("the holder sends keyframes instead", "changed a 0=02", "added b")
	r.at("healed", 7, r.store.batch.seq, true)
}

func TestReplicaDivergence(t *testing.T) {
	r := joined(t)
	r.now = r.now.Add(time.Second)
	r.ByKey("a").Values.Set(0, []byte{0xEE}) // only a checksum can reveal this
	r.Apply(r.now, r.batches(time.Second)[0])
	if r.stats.Divergence != 1 {
		t.Fatal("the replica did not count a differing checksum as divergence")
	}
	r.at("it needs the state", 7, 2, false)
	r.Apply(r.now, r.publish(set("a", "owner", u8(4)))[0])
	r.said("live batches are applied meanwhile", "changed a 1=04")
	r.repair()
	r.said("the keyframe has what was wrong", "changed a 0=01")
	r.at("healed", 7, 3, true)
	r.now = r.now.Add(10 * time.Millisecond)
	r.ByKey("a").Values.Set(0, []byte{0xEE})
	r.Apply(r.now, r.batches(time.Second)[0])
	r.silent("repeated divergence must not become a storm")
	r.now = r.now.Add(100 * time.Millisecond)
	r.asks("but the replica asks in time", RepairStates)
}

func TestReplicaKeyframesOnlyOfWhatDiffers(t *testing.T) {
	r := joined(t)
	r.Apply(r.now, r.publish(tower("b", u8(1)))[0])
	r.said("b", "added b")
	r.now = r.now.Add(time.Second)
	r.ByKey("a").Values.Set(0, []byte{0xEE})
	r.broken = true
	parts := r.store.Repair(r.store.now, r.asks("broken", RepairKeyframes))
	got := describeBatch(parts[0])
	want := "assign 1.0=1 1:describe 1:3:000102010078 assign 2.0=2 2:2:"
	if len(parts) != 1 || !strings.Contains(got, want) {
		t.Fatalf("the answer is %s, want %s: b is equal", got, want)
	}
}

func TestReplicaNewEpoch(t *testing.T) {
	r := joined(t)
	r.Apply(r.now, r.publish(tower("b", u8(1)))[0])
	r.said("b", "added b")
	old := r.publish(set("a", "hp", u8(99)))[0]
	next := &storeTest{t, NewStore(StoreConfig{Space: "s", Epoch: 9}), r.store.now}
	for _, d := range r.store.TakeDirty(nil, 1) {
		if _, err := next.Restore(d.Number, d.Data); err != nil {
			t.Fatal(err)
		}
	}
	r.store = next
	r.ApplyHead(r.now, 9, 0)
	r.at("values stay, but a new holder may have others", 7, 2, false)
	r.Apply(r.now, old)
	r.said("the replica ignores the former holder")
	if r.stats.OldEpoch != 1 || r.stats.Epochs != 1 {
		t.Fatalf("stats %+v", r.stats)
	}
	r.Apply(r.now, r.publish(set("a", "hp", u8(7)))[0])
	r.said("a batch of the new epoch is held until its RefIds are known")
	r.repair()
	r.said("the new holder knew less", "changed a 0=07", "removed b")
	r.at("follows the new holder", 9, 1, true)
}

// An answer to an earlier request at the same position mentions other states. If its parts
// counted, the replica would remove states that exist.
func TestReplicaIgnoresAnswersToOtherRequests(t *testing.T) {
	r := newReplicaTest(t)
	r.publish(tower("a"), tower("b"))
	first := r.store.Repair(r.store.now, r.asks("late join", RepairKeyframes))
	r.now = r.now.Add(time.Second)
	r.ApplyHead(r.now, 7, r.store.batch.seq) // the next request has another epoch
	second := r.store.Repair(r.store.now, r.asks("again", RepairKeyframes))
	r.ApplyReply(r.now, first[0])
	r.said("late")
	if r.stats.UnwantedReplies != 1 {
		t.Fatal("the replica did not count the late answer")
	}
	r.ApplyReply(r.now, second[0])
	r.said("the answer", "added a", "added b")
	r.ApplyReply(r.now, second[0])
	if r.stats.UnwantedReplies != 2 {
		t.Fatal("the replica did not count the repeated answer")
	}
}

// An answer that another replica got a moment ago has no batch that followed it. The replica asks for
// those at once, because in a quiet space nothing else tells of them until the next head.
func TestReplicaTakesEarlyAnswer(t *testing.T) {
	r := newReplicaTest(t)
	r.publish(tower("a"))
	early := r.store.Repair(r.store.now, r.asks("late join", RepairKeyframes))
	r.publish(set("a", "hp", u8(7)))
	r.Shared(Asked{ID: r.ask.id, Early: true})
	r.ApplyReply(r.now, early[0])
	r.said("the early answer", "added a")
	r.at("it may have missed what followed", 7, 1, false)
	for _, part := range r.store.Repair(r.store.now, r.asks("at once", RepairRange)) {
		r.ApplyReply(r.now, part)
	}
	r.said("what followed", "changed a 0=07")
	r.at("up to date", 7, 2, true)
}

// Parts may arrive in any order, and more than once. A state that no part mentions ends, but
// not before the last part has arrived.
func TestReplicaParts(t *testing.T) {
	r := newReplicaTest(t)
	r.store.limits.ValueBytes = 16_000
	r.publish(tower("early"))
	r.repair()
	r.said("join", "added early")
	r.publish(Op{Kind: OpRemove, Key: "early"})
	var want []string
	for i := range 9 {
		r.publish(Op{Kind: OpPut, Key: fmt.Sprint("k", i), Values: largeStrings(3)})
	}
	r.store.now = r.store.now.Add(ringAge + 1)
	r.ApplyHead(r.now, 7, r.store.batch.seq)
	r.publish(tower("last"))
	parts := r.store.Repair(r.store.now, r.asks("far behind", RepairRange))
	if len(parts) != 2 {
		t.Fatalf("%d parts, want 2", len(parts))
	}
	r.ApplyReply(r.now, parts[1])
	r.ApplyReply(r.now, parts[1])
	r.at("one part is missing", 7, 1, false)
	if r.stats.UnwantedReplies != 1 {
		t.Fatal("the replica did not count the repeated part, or applied it twice")
	}
	if r.ByKey("early") == nil {
		t.Fatal("a state was removed although a missing part could mention it")
	}
	r.log = nil
	r.ApplyReply(r.now, parts[0])
	for i := range 5 {
		want = append(want, fmt.Sprint("added k", i))
	}
	r.said("the rest", append(want, "removed early")...)
	r.at("complete", 7, r.store.batch.seq, true)
}

func TestReplicaBufferIsBounded(t *testing.T) {
	r := joined(t)
	lost := r.publish(set("a", "hp", u8(2)))[0]
	for i := range 300 {
		r.Apply(r.now, r.publish(set("a", "hp", u8(byte(i))))[0])
	}
	if n := len(r.buffer.held); n != 256 || r.stats.BufferFull != 44 {
		t.Fatalf("%d held, %d dropped, want 256 and 44", n, r.stats.BufferFull)
	}
	r.Apply(r.now, lost)
	r.at("the buffered batches are applied, the others are missing", 7, 258, false)
	r.log = nil
	r.asks("the range that was dropped", RepairRange)
}
