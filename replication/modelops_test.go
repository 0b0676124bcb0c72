package replication

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

var (
	seedFlag = flag.Uint64("seed", 0, "seed of random tests; 0 picks one")
	runsFlag = flag.Int("runs", 12, "random worlds per test")
)

var modelLimits = Limits{Values: 300, ValueBytes: 3000}

var modelClients = []string{"c0", "c1", "c2"}

// A twin is the simplest possible space: a map from key to values as text.
type twin struct {
	states    map[string][]string
	groups    map[string]string
	eyes      map[string]string
	interests map[string]string        // named ones
	interest  map[string]string        // of states: a name, or what it says
	ttl       map[string]time.Duration // of the states that have a time to live
	until     map[string]time.Time     // when those end
}

func newTwin() twin {
	return twin{
		map[string][]string{}, map[string]string{}, map[string]string{}, map[string]string{}, map[string]string{},
		map[string]time.Duration{}, map[string]time.Time{},
	}
}

// mention begins the time of a state again.
func (m *twin) mention(now time.Time, key string) {
	if m.ttl[key] > 0 {
		m.until[key] = now.Add(m.ttl[key])
	}
}

func (m *twin) remove(key string) {
	delete(m.states, key)
	delete(m.interest, key)
	delete(m.ttl, key)
	delete(m.until, key)
}

func (m *twin) clear() {
	clear(m.states)
	clear(m.interests)
	clear(m.interest)
	clear(m.ttl)
	clear(m.until)
}

// expire removes the states whose time was over at the last step, a millisecond ago.
func (m *twin) expire(now time.Time) {
	for key, until := range m.until {
		if until.Before(now) {
			m.remove(key)
		}
	}
}

func (m *twin) equal(t *world, s *Store) {
	t.Helper()
	m.expire(t.now)
	n := 0
	for key, st := range s.states.byKey {
		if client, ok := recordClient(key); ok {
			if got := strings.Join(s.Groups(client), ","); got != m.groups[client] {
				t.Fatalf("groups of %q are %q, want %q", client, got, m.groups[client])
			}
			if got := eyesText(s, client); got != m.eyes[client] {
				t.Fatalf("eyes of %q are %q, want %q", client, got, m.eyes[client])
			}
		}
		if name, ok := strings.CutPrefix(key, interestToken+"."); ok && !IsInline(name) && interestText(s, name) != m.interests[name] {
			t.Fatalf("interest %q is %q, want %q", name, interestText(s, name), m.interests[name])
		}
		if reserved(key) {
			continue
		}
		n++
		if got := stateInterest(s, st); got != m.interest[key] && m.interest[key] != lostInterest {
			t.Fatalf("the interest of %q is %q, want %q", key, got, m.interest[key])
		}
		for i, want := range m.states[key] {
			got := string(st.Values.Value(i))
			if st.IsNull(i) {
				got = "null"
			}
			if got != want {
				t.Fatalf("%q value %d is %x, the twin says %x", key, i, got, want)
			}
		}
	}
	if n != len(m.states) {
		t.Fatalf("the store has %d states, the twin %d", n, len(m.states))
	}
}

func eyesText(s *Store, client string) string {
	if s.states.byKey[eyesKey(client)] == nil {
		return ""
	}
	return fmt.Sprint(s.Eyes(client))
}

func interestText(s *Store, name string) string { return fmt.Sprintf("%+v", s.Interest(name)) }

// lostInterest is what the twin says of a state that was stored before what its interest says. Another state with an
// interest that says the same brings it back.
const lostInterest = "lost"

// stateInterest returns the name of the interest of a state, or what it says if only states have it.
func stateInterest(s *Store, st *stored) string {
	if IsInline(st.Desc.Interest) {
		return interestText(s, st.Desc.Interest)
	}
	return st.Desc.Interest
}

// modelKinds are shapes of states. The third has two views by count, the last by size.
var modelKinds = [][]ValueDef{
	{{Name: "hp", Type: typ("float32")}, {Name: "pos", Type: typ("vector3f32")}},
	{{Name: "n", Type: typ("sint32"), Nullable: true}, {Name: "text", Type: wire.TypeString, Nullable: true, Null: []byte{1, 0, '-'}}, {Type: typ("uint8")}},
	manyDefs(200, "uint16"),
	manyDefs(14, "string"),
}

func typ(name string) wire.ValueType {
	t, ok := wire.ParseValueType(name)
	if !ok {
		panic("no type " + name)
	}
	return t
}

func manyDefs(n int, name string) []ValueDef {
	defs := make([]ValueDef, n)
	for i := range defs {
		defs[i] = ValueDef{Type: typ(name), Nullable: i%3 == 0}
	}
	return defs
}

// content returns random content for a value, and its form in the twin.
func content(r *rand.Rand, d ValueDef) (Literal, string) {
	if d.Nullable && r.IntN(4) == 0 {
		return Null{}, "null"
	}
	b := randomValue(r, d.Type)
	return Encoded{d.Type, b}, string(b)
}

func randomValue(r *rand.Rand, t wire.ValueType) []byte {
	if t.Variable() {
		n := r.IntN(40)
		if r.IntN(20) == 0 {
			n = r.IntN(2000)
		}
		b := binary.LittleEndian.AppendUint16(nil, uint16(n))
		for range n {
			b = append(b, byte('a'+r.IntN(26)))
		}
		return b
	}
	b := make([]byte, t.Size())
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}

func (w *world) key() string { return fmt.Sprintf("k.%d", w.rand.IntN(12)) }

// op applies one random op to the store and the twin.
func (w *world) op() {
	key := w.key()
	w.twin.expire(w.now)
	_, exists := w.twin.states[key]
	var op Op
	var twin func()
	switch n := w.rand.IntN(20); {
	case n < 3 || !exists && n < 12:
		op, twin = w.put(key)
	case n < 14:
		op, twin = w.set(key)
	case n < 15:
		op, twin = Op{Kind: OpRemove, Key: key}, func() { w.twin.remove(key) }
	case n < 17:
		op = Op{Kind: OpAudience, Key: key, HasAudience: true, Audience: Audience{Kind: AudienceListed, Groups: []string{fmt.Sprint("g", w.rand.IntN(5))}}}
	case n < 18:
		op, twin = w.group()
	case n < 19 && w.rand.IntN(20) == 0:
		op, twin = Op{Kind: OpClear}, w.twin.clear
	case n < 19:
		op, twin = w.nameInterest()
	case n < 20 && w.rand.IntN(2) == 0:
		op, twin = w.eye()
	default:
		return
	}
	if (op.Kind == OpSet || op.Kind == OpRemove || op.Kind == OpAudience) && !exists {
		return
	}
	if w.rand.IntN(4) == 0 {
		w.fail(op)
	}
	w.publish(op)
	if twin != nil {
		twin()
	}
	if op.Key != "" {
		w.twin.mention(w.now, op.Key)
	}
}

// publish fails the test if op is refused.
func (w *world) publish(ops ...Op) {
	w.Helper()
	if err := publish(w.store, w.now, ops...); err != nil {
		w.Fatalf("%+v: %v", ops, err)
	}
}

// publish returns the error of an atomic publish. Only an error is answered at once.
func publish(s *Store, now time.Time, ops ...Op) *Error {
	s.Publish(now, Publish{Ops: ops, Atomic: true, Token: 77})
	for i := len(s.batch.ready) - 1; i >= 0; i-- {
		if a := s.batch.ready[i].Answer; s.batch.ready[i].Kind == OutputAnswer && a.Token == 77 && a.Err != nil {
			s.batch.ready[i].Answer.Token = 0
			return a.Err
		}
	}
	return nil
}

// fail publishes op and others in an atomic message that must fail, and compares the space with
// its state before.
func (w *world) fail(op Op) {
	other, _ := w.put(w.key())
	clear := Op{Kind: OpClear}
	if err := publish(w.store, w.now, other, op, clear, other, Op{Kind: OpRemove, Key: "not.there"}); err == nil {
		w.Fatalf("an atomic publish with a bad op was applied")
	}
}

func (w *world) put(key string) (Op, func()) {
	defs := modelKinds[w.rand.IntN(len(modelKinds))]
	op := Op{Kind: OpPut, Key: key, HasMessage: true, Message: []byte(fmt.Sprint("m", w.rand.IntN(3)))}
	values := make([]string, len(defs))
	for i, d := range defs {
		l, text := content(w.rand, d)
		op.Values = append(op.Values, PutValue{ValueDef: d, Value: l})
		values[i] = text
	}
	told := ""
	if op.HasInterest = true; defs[1].Name == "pos" {
		op.Interest, op.InterestName, told = w.anyInterest()
	}
	if w.rand.IntN(4) == 0 {
		op.HasTTL, op.TTL = true, time.Duration(w.rand.IntN(4))*time.Second
	}
	return op, func() {
		w.twin.states[key], w.twin.interest[key] = values, told
		if op.HasTTL {
			delete(w.twin.until, key)
			w.twin.ttl[key] = op.TTL
		}
	}
}

// anyInterest returns none, one with a name that the space has, or one of the state, and its form in the twin.
func (w *world) anyInterest() (x *Interest, name, told string) {
	switch name := fmt.Sprint("i", w.rand.IntN(3)); w.rand.IntN(3) {
	case 0:
		if w.twin.interests[name] != "" {
			return nil, name, name
		}
	case 1:
		x := w.randomInterest()
		return x, "", fmt.Sprintf("%+v", x)
	}
	return nil, "", ""
}

func (w *world) randomInterest() *Interest {
	return &Interest{At: "pos", Unlink: w.rand.IntN(2) == 0, Bands: []Band{{Within: float64(1 + w.rand.IntN(3))}, {Within: 100, Rate: 5}}}
}

// nameInterest makes, changes or removes a named interest. One that states have cannot be removed.
func (w *world) nameInterest() (Op, func()) {
	op := Op{Kind: OpInterest, InterestName: fmt.Sprint("i", w.rand.IntN(3))}
	used := false
	for _, name := range w.twin.interest {
		used = used || name == op.InterestName
	}
	if !used && w.rand.IntN(3) == 0 {
		return op, func() { delete(w.twin.interests, op.InterestName) }
	}
	op.Interest = w.randomInterest()
	return op, func() { w.twin.interests[op.InterestName] = fmt.Sprintf("%+v", op.Interest) }
}

func (w *world) eye() (Op, func()) {
	op := Op{Kind: OpEye, Client: modelClients[w.rand.IntN(len(modelClients))]}
	for range w.rand.IntN(3) {
		op.Eyes = append(op.Eyes, Eye{Key: w.key()})
	}
	return op, func() { w.twin.eyes[op.Client] = fmt.Sprint(op.Eyes) }
}

func (w *world) set(key string) (Op, func()) {
	st := w.store.states.byKey[key]
	if st == nil {
		return Op{Kind: OpSet, Key: key}, func() {}
	}
	op := Op{Kind: OpSet, Key: key}
	changes := map[int]string{}
	for range 1 + w.rand.IntN(5) {
		i := w.rand.IntN(len(st.schema.defs))
		if _, twice := changes[i]; twice {
			continue
		}
		l, text := content(w.rand, st.schema.defs[i])
		op.Sets = append(op.Sets, SetValue{Name: st.schema.name(i), Value: l})
		changes[i] = text
	}
	return op, func() {
		for i, text := range changes {
			w.twin.states[key][i] = text
		}
	}
}

func (w *world) group() (Op, func()) {
	c := modelClients[w.rand.IntN(len(modelClients))]
	g := fmt.Sprint("g", w.rand.IntN(3))
	if had := w.store.Groups(c); len(had) > 0 {
		return Op{Kind: OpGroup, Client: c, Leave: had}, func() { delete(w.twin.groups, c) }
	}
	return Op{Kind: OpGroup, Client: c, Join: []string{g}}, func() { w.twin.groups[c] = g }
}

func seeds(t *testing.T, run func(t *testing.T, seed uint64)) {
	if *seedFlag != 0 {
		run(t, *seedFlag)
		return
	}
	base := rand.Uint64N(math.MaxUint32) + 1
	for i := range uint64(*runsFlag) {
		ok := t.Run("", func(t *testing.T) {
			run(t, base+i)
		})
		if !ok {
			t.Fatalf("repeat with -seed=%d", base+i)
		}
	}
}

// Replicas follow despite loss, repetition, reordering, late joins and lost requests, and are
// equal at the end.
func TestReplicasConverge(t *testing.T) {
	seeds(t, func(t *testing.T, seed uint64) {
		w := newWorld(t, seed, 3)
		for _, c := range modelClients {
			w.store.Join(c, "session-"+c)
		}
		w.loss = 0.3
		for i := range 400 {
			for range w.rand.IntN(6) {
				w.op()
			}
			if i == 200 {
				o := newWatcher(t)
				w.watchers, w.replicas = append(w.watchers, o), append(w.replicas, NewReplica("s", o))
			}
			w.step(time.Duration(w.rand.IntN(20)) * time.Millisecond)
		}
		w.loss = 0
		w.step(3 * time.Second)
		w.equal("the channel was good for 3 s")
		w.noDivergence()
		ranges := uint64(0)
		for _, r := range w.replicas {
			ranges += r.stats.RangeRequests
		}
		if ranges == 0 {
			t.Fatal("a channel that loses 30 % made no replica ask for a range")
		}
	})
}

func (w *world) noDivergence() {
	w.Helper()
	for i, r := range w.replicas {
		if r.stats.Divergence > 0 || r.stats.BadRecords > 0 || r.stats.Malformed > 0 {
			w.Fatalf("replica %d: %+v, want no divergence and no bad record, because the channel damages nothing", i, r.stats)
		}
	}
}

// A new holder takes over in the middle. States that it does not know end everywhere, and
// replicas ignore the old holder.
func TestNewEpochInTheMiddle(t *testing.T) {
	seeds(t, func(t *testing.T, seed uint64) {
		w := newWorld(t, seed, 3)
		for _, c := range modelClients {
			w.store.Join(c, "session-"+c)
		}
		durable := map[uint64][]byte{}
		for range 4 {
			w.loss = 0.2
			for range 100 {
				for range w.rand.IntN(6) {
					w.op()
				}
				w.step(time.Duration(w.rand.IntN(20)) * time.Millisecond)
				for _, d := range w.store.TakeDirty(nil, w.rand.IntN(4)) {
					durable[d.Number] = d.Data
				}
			}
			w.newHolder(durable)
			w.relearn()
		}
		for range 50 {
			w.op()
			w.step(5 * time.Millisecond)
		}
		w.loss = 0
		w.step(3 * time.Second)
		w.equal("the channel was good for 3 s")
		w.noDivergence()
	})
}

// relearn sets the twin to the restored store. TestRestore compares the restored with the
// stored states.
func (w *world) relearn() {
	w.twin = newTwin()
	for key, st := range w.store.states.byKey {
		if client, ok := recordClient(key); ok {
			if w.twin.eyes[client] = eyesText(w.store, client); len(w.store.Groups(client)) > 0 {
				w.twin.groups[client] = strings.Join(w.store.Groups(client), ",")
			}
		}
		if name, ok := strings.CutPrefix(key, interestToken+"."); ok && !IsInline(name) {
			w.twin.interests[name] = interestText(w.store, name)
		}
		if reserved(key) {
			continue
		}
		if w.twin.interest[key] = stateInterest(w.store, st); IsInline(st.Desc.Interest) && w.store.Interest(st.Desc.Interest) == nil {
			w.twin.interest[key] = lostInterest
		}
		values := make([]string, len(st.schema.defs))
		for i := range values {
			if values[i] = string(st.Values.Value(i)); st.IsNull(i) {
				values[i] = "null"
			}
		}
		w.twin.states[key] = values
		w.twin.ttl[key] = st.Desc.TTL
		w.twin.mention(w.now, key)
	}
}
