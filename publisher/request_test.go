package publisher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
	"github.com/dnprelay/dnprelay/subject"
)

// TestOutboxPop counts the entries that the outbox moves to pop 65,536 of them. A pop
// that shifts the entries behind it moves them about two billion times.
func TestOutboxPop(t *testing.T) {
	const entries = 65_536
	o := outbox{ops: map[topic]*pendingOp{}}
	for i := range entries {
		o.push(&pendingOp{topic: topic{topicState, strconv.Itoa(i)}})
	}
	moved := 0
	for i := range entries {
		last := &o.order[len(o.order)-1]
		if p := o.pop(); p.topic.name != strconv.Itoa(i) {
			t.Fatalf("pop %d returns %q, want the entries in the order of their pushes", i, p.topic.name)
		}
		if n := len(o.order); n > 0 && &o.order[n-1] != last {
			moved += n
		}
	}
	if moved > entries || !o.empty() {
		t.Errorf("%d pops moved %d entries, want at most one each; empty: %v", entries, moved, o.empty())
	}
}

// TestOutboxPushFront: what comes back is sent before the rest, but an op about which there is a newer one keeps the place of that.
func TestOutboxPushFront(t *testing.T) {
	o := outbox{ops: map[topic]*pendingOp{}}
	op := func(name, verb string) *pendingOp {
		return &pendingOp{topic: topic{topicState, name}, verb: verb, sets: map[string]bool{verb: true}}
	}
	o.push(op("a", "newer"))
	o.push(op("b", "set"))
	o.pushFront([]*pendingOp{op("c", "set"), op("b", "older"), op("d", "set")})
	o.push(op("c", "again"))
	var got []string
	for !o.empty() {
		p := o.pop()
		got = append(got, fmt.Sprintf("%s %s %d", p.topic.name, p.verb, len(p.sets)))
	}
	if want := []string{"c again 2", "d set 1", "a newer 1", "b set 2"}; !slices.Equal(got, want) || len(o.ops) > 0 {
		t.Errorf("the outbox pops %q, want %q; left: %v", got, want, o.ops)
	}
}

// TestReassertOrder: a new relay gets the states in the order in which they were put, those once more that were put again
// meanwhile, and none that is gone. The copy keeps no more entries for that than it has states.
func TestReassertOrder(t *testing.T) {
	s := quietSpace()
	put := func(key string) {
		if err := s.Post(Put{Key: key, Values: []Value{{Name: "hp", Type: Uint8, Value: 1}}}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 1000 {
		put(strconv.Itoa(i % 10))
		if n := len(s.order); n > 2*len(s.states) {
			t.Fatalf("the copy of %d states has %d entries", len(s.states), n)
		}
	}
	for _, key := range []string{"c", "a", "b", "gone"} {
		put(key)
	}
	s.out = outbox{ops: map[topic]*pendingOp{}}
	s.reassert()
	s.forget("gone")
	put("c")
	s.assertSome(assertMax)
	var got []string
	for !s.out.empty() {
		got = append(got, s.out.pop().topic.name)
	}
	if want := []string{"c", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "a", "b"}; !slices.Equal(got, want) {
		t.Errorf("the relay gets %q, want %q", got, want)
	}
}

// TestForms: the relay gets what the game server said, above all who may see and write a state.
func TestForms(t *testing.T) {
	put := func(change func(*Put)) Put {
		o := Put{Key: "k", Values: []Value{{Type: Uint8, Value: 1}}}
		change(&o)
		return o
	}
	const values = `,"values":[{"type":"uint8","value":1}]}`
	for _, c := range []struct {
		op   Op
		want string
	}{
		{put(func(*Put) {}), `{"op":"put","key":"k","access":"read-only","audience":{"all":true}` + values},
		{put(func(o *Put) { o.Audience.Nobody = true }), `{"op":"put","key":"k","access":"read-only","audience":{"all":false}` + values},
		{put(func(o *Put) { o.Audience.Groups = []string{"red"} }), `{"op":"put","key":"k","access":"read-only","audience":{"groups":["red"]}` + values},
		{put(func(o *Put) { o.Audience.Clients = []string{"ann"} }), `{"op":"put","key":"k","access":"read-only","audience":{"clients":["ann"]}` + values},
		{put(func(o *Put) { o.Access.All = true }), `{"op":"put","key":"k","access":"read-write","audience":{"all":true}` + values},
		{put(func(o *Put) { o.Access.Writers = []string{"ann"} }), `{"op":"put","key":"k","access":{"writers":["ann"]},"audience":{"all":true}` + values},
		{put(func(o *Put) {
			o.Message, o.Farewell, o.Priority, o.TTL, o.Interest = "m", "f", 3, time.Minute, "walker"
			o.Details = []Detail{{Clients: []string{"ann"}, Precision: 2, Rate: 5}}
		}), `{"op":"put","key":"k","message":"m","farewell":"f","access":"read-only","audience":{"all":true},"priority":3,"lod":[{"clients":["ann"],"precision":2,"rate":5}],"interest":"walker","ttl":"1m"` + values},
		{put(func(o *Put) { o.Describe, o.Interest = true, "" }), `{"op":"put","key":"k","describe":true,"access":"read-only","audience":{"all":true},"interest":null` + values},
		{put(func(o *Put) { o.Values = []Value{{Name: "n", Type: Uint8, Nullable: true, Min: 1, Max: 9, Rate: 5}} }), `{"op":"put","key":"k","access":"read-only","audience":{"all":true},"values":[{"type":"uint8","name":"n","value":null,"nullable":true,"min":1,"max":9,"rate":5}]}`},
		{Set{"k", Values{"n": 7}}, `{"op":"set","key":"k","values":{"n":7}}`},
		{Remove{"k"}, `{"op":"remove","key":"k"}`},
		{Audience{"k", Who{Nobody: true}}, `{"op":"audience","key":"k","audience":{"all":false}}`},
		{Audience{"k", Who{Groups: []string{"red"}, Clients: []string{"ann"}}}, `{"op":"audience","key":"k","audience":{"clients":["ann"],"groups":["red"]}}`},
		{Group{Client: "ann", Join: []string{"red"}, Leave: []string{"blue"}}, `{"op":"group","client":"ann","join":["red"],"leave":["blue"]}`},
		{Eye{Client: "ann", States: []string{"k#pos"}, Points: [][]float64{{1, 2}}}, `{"op":"eye","client":"ann","at":["k#pos",[1,2]]}`},
		{Eye{Client: "ann"}, `{"op":"eye","client":"ann","at":null}`},
		{Interest{"walker", Distance{At: "pos", Axes: "xz", Bands: []Band{{Within: 5, Rate: 2}}, Unlink: true, Events: true}},
			`{"op":"interest","name":"walker","at":"pos","axes":"xz","bands":[{"within":5,"rate":2}],"beyond":"unlink","events":true}`},
	} {
		s := quietSpace()
		if err := s.Post(c.op); err != nil {
			t.Errorf("%+v: %v", c.op, err)
		} else if got, want := string(s.compose(&request{})), `{"atomic":false,"ops":[`+c.want+`]}`; got != want {
			t.Errorf("the relay gets\n%s, want\n%s", got, want)
		}
	}
}

// TestPutAgain has a relay refuse a removal that came twice, while the state was put again: the new state is sent.
func TestPutAgain(t *testing.T) {
	var refused []error
	s := &Space{
		p: &Publisher{cfg: Config{Refused: func(_ string, err error) { refused = append(refused, err) }}}, out: outbox{ops: map[topic]*pendingOp{}},
		copied: copied{states: map[string]*state{"k": {put: &payload.Put{}}}}, // put, removed, and put again
	}
	removal := &pendingOp{topic: topic{topicState, "k"}, verb: "remove", put: true} // the first put and the removal were one op
	s.results(time.Now(), &request{ops: []*pendingOp{removal}}, payload.Answer{
		Results: []struct{ Error *payload.AnswerError }{{&payload.AnswerError{Code: replication.CodeUnknownState}}},
	})
	for _, tell := range s.untold {
		tell()
	}
	if len(refused) > 0 || s.out.ops[topic{topicState, "k"}] == nil {
		t.Errorf("refused %v; to be sent: %v, want the state", refused, s.out.ops)
	}
}

// TestWriteBehindSet has a client write a value that the game server has just set, and another one. The Bound keeps
// its own value, which the relay gets next, and takes the other one.
func TestWriteBehindSet(t *testing.T) {
	s := quietSpace()
	b, err := Bind(s, Put{Key: "k", Access: Access{All: true}}, npc{})
	if err != nil {
		t.Fatal(err)
	}
	if s.compose(&request{}) == nil || s.compose(&request{}) != nil {
		t.Fatal("the put is not pending once")
	}
	set := npc{HP: 5}
	if err := b.Set(set); err != nil {
		t.Fatal(err)
	}
	changed := []byte(`{"type":"changed","key":"k","client":"c","values":{"hp":7,"pos":[1,2,3]}}`)
	if _, ok := s.event(time.Now(), changed); !ok {
		t.Fatal("no event")
	}
	if got, want := b.Get(), (npc{HP: 5, Pos: [3]float32{1, 2, 3}}); got != want {
		t.Errorf("the values are %+v, want %+v", got, want)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Flush(over); !errors.Is(err, context.Canceled) {
		t.Errorf("Flush does not wait for what was set: %v", err)
	}
	if got, want := string(s.compose(&request{})), `{"atomic":false,"ops":[{"op":"set","key":"k","values":{"2":5}}]}`; got != want {
		t.Errorf("the relay gets %s, want %s", got, want)
	}
	if _, ok := s.event(time.Now(), changed); !ok || b.Get().HP != 7 {
		t.Errorf("a later write arrives as %+v", b.Get())
	}
}

// TestComposeTraces requires a publish of its own for each trace, in order.
func TestComposeTraces(t *testing.T) {
	s := quietSpace()
	for i, parent := range []string{"", "a", "", "a", "b", ""} {
		s.out.push(&pendingOp{topic: topic{topicState, strconv.Itoa(i)}, verb: "put", put: true, trace: trace{parent: parent}})
		s.states[strconv.Itoa(i)] = &state{put: &payload.Put{}}
	}
	for _, want := range []struct {
		ops   int
		trace string
	}{{4, "a"}, {2, "b"}} {
		r := &request{}
		if s.compose(r); len(r.ops) != want.ops || r.trace.parent != want.trace {
			t.Errorf("a publish has %d ops and the trace %q, want %d and %q", len(r.ops), r.trace.parent, want.ops, want.trace)
		}
	}
}

// TestPutForm has a put with every member, and text that JSON escapes.
func TestPutForm(t *testing.T) {
	put := Put{
		Key: "k", Message: "a \"b\"\n", Farewell: "ü", Access: Access{Writers: []string{"c"}}, Audience: Who{Groups: []string{"g"}}, Priority: 3, TTL: 90 * time.Second,
		Details:  []Detail{{Groups: []string{"far"}, Precision: 2, Rate: 0.5}},
		Interest: &Distance{At: "a", Axes: "xz", Bands: []Band{{Within: 5}}, Unlink: true},
		Values: []Value{
			{Name: "a", Type: Vector3f32, Value: [3]float32{1e-9}, Precision: 1e-7, Nullable: true, Null: [3]int{1}, Min: -1, Max: 2, Rate: 5, NonFinite: true},
			{Type: Data, Value: map[string]int{"x": 1}, Fields: []Field{{"x", Uint8}}},
		},
	}
	plain := Put{Key: "k", Describe: true, Values: []Value{{Type: Uint8, Value: 1}, {Type: String, Value: "\""}}}
	for _, c := range []struct {
		put  Put
		want string
	}{
		{put, `{"op":"put","key":"k","message":"a \"b\"\n","farewell":"ü","access":{"writers":["c"]},"audience":{"groups":["g"]},"priority":3,"lod":[{"groups":["far"],"precision":2,"rate":0.5}],` +
			`"interest":{"at":"a","axes":"xz","bands":[{"within":5}],"beyond":"unlink"},"ttl":"1m30s","values":[` +
			`{"type":"vector3f32","name":"a","value":[1e-9,0,0],"precision":1e-07,"nullable":true,"null":[1,0,0],"min":-1,"max":2,"rate":5,"finite":false},` +
			`{"type":"data","value":{"x":1},"fields":[{"name":"x","type":"uint8"}]}]}`},
		{plain, `{"op":"put","key":"k","describe":true,"access":"read-only","audience":{"all":true},"values":[{"type":"uint8","value":1},{"type":"string","value":"\""}]}`},
	} {
		if e, err := c.put.encode(); err != nil || string(e.text) != c.want || string(e.put.Append(nil, nil)) != c.want {
			t.Errorf("the put is\n%s, want\n%s, %v", e.text, c.want, err)
		}
	}
}

// TestAssertForm: a put of the copy has the position of the description, that of each value with another one, and none for a value that is new.
func TestAssertForm(t *testing.T) {
	e, err := Put{Key: "k", Values: []Value{{Type: Uint8, Value: 1}, {Type: Uint8, Value: 2}, {Type: Uint8, Value: 3}}}.encode()
	if err != nil {
		t.Fatal(err)
	}
	st := newState(e)
	st.knownPut, st.known = Position{Epoch: 7, Seq: 5}, []Position{{Epoch: 7, Seq: 5}, {Epoch: 7, Seq: 6}, {Epoch: 7, Seq: 7}}
	text := st.appendAssert(nil, map[string]bool{"2": true})
	got := new(struct {
		AsOf   []int `json:"as_of"`
		Values []struct {
			AsOf json.RawMessage `json:"as_of"`
		}
	})
	if err := json.Unmarshal(text, got); err != nil || !slices.Equal(got.AsOf, []int{7, 5}) || len(got.Values[0].AsOf) != 0 || string(got.Values[1].AsOf) != "[7,6]" || string(got.Values[2].AsOf) != "null" {
		t.Errorf("the put is\n%s, %v", text, err)
	}
	if _, problem := payload.JSON.Parse(text, ""); problem != nil {
		t.Errorf("the relay refuses %s: %v", text, problem)
	}
}

// TestSetAllocs requires that typed values cost no allocation in the caller: 50 states of position and rotation.
func TestSetAllocs(t *testing.T) {
	all := npcs(t, 50)
	n := float32(0)
	if got := testing.AllocsPerRun(100, func() {
		n++
		for _, b := range all {
			if err := b.Set(npc{Pos: [3]float32{n, 2 * n, n / 3}, Turn: [4]float32{0, n / 7, 0, 1}, HP: uint8(n)}); err != nil {
				t.Fatal(err)
			}
		}
	}); got != 0 {
		t.Errorf("%v allocations for 50 sets", got)
	}
}

func BenchmarkSet(b *testing.B) {
	all := npcs(b, 50)
	b.ReportAllocs()
	n := float32(0)
	for b.Loop() {
		n++
		for _, npc_ := range all {
			_ = npc_.Set(npc{Pos: [3]float32{n, 2 * n, n / 3}, Turn: [4]float32{0, n / 7, 0, 1}, HP: uint8(n)})
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/50/3, "ns/value")
}

type npc struct {
	Pos  [3]float32 `dnp:"pos,precision=0.01"`
	Turn [4]float32 `dnp:"turn,type=quaternionf16"`
	HP   uint8      `dnp:"hp"`
}

// npcs binds states in a Space for which no goroutine works.
func npcs(t testing.TB, n int) (all []*Bound[npc]) {
	s := quietSpace()
	for i := range n {
		b, err := Bind(s, Put{Key: "npc" + strconv.Itoa(i)}, npc{})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b)
	}
	return all
}

func quietSpace() *Space {
	p := &Publisher{cfg: Config{}.withDefaults(), subjects: subject.Names{}, ctx: context.Background(), spaces: map[string]*Space{}}
	s := newSpace(p, "demo")
	s.started = true
	return s
}

// TestPutWhileAsserted puts a state again while the op that tells it to a new relay waits: the relay gets the newest form.
func TestPutWhileAsserted(t *testing.T) {
	s := quietSpace()
	put := func(hp int) {
		e, err := Put{Key: "tower", Values: []Value{{Name: "hp", Type: "uint8", Value: hp}}}.encode()
		if err != nil {
			t.Fatal(err)
		}
		s.apply(time.Unix(1000, 0), e, nil)
	}
	put(1)
	s.out = outbox{ops: map[topic]*pendingOp{}} // a relay has it
	s.reassert()
	s.assertSome(assertMax)
	put(2)
	want := `{"atomic":false,"ops":[{"op":"put","key":"tower","access":"read-only","audience":{"all":true},"values":[{"type":"uint8","name":"hp","value":2}]}]}`
	if got := string(s.compose(&request{})); got != want {
		t.Errorf("the publish is\n%s, want\n%s", got, want)
	}
}

// BenchmarkReassert makes the copy of 65,536 states pending and writes all publishes, as for a relay that took the
// space over.
func BenchmarkReassert(b *testing.B) {
	s := quietSpace()
	for i := range 65_536 {
		if _, err := Bind(s, Put{Key: "npc" + strconv.Itoa(i)}, npc{}); err != nil {
			b.Fatal(err)
		}
	}
	s.out = outbox{ops: map[topic]*pendingOp{}}
	b.ReportAllocs()
	before := cpuTime(b)
	defer func() { b.ReportMetric((cpuTime(b)-before).Seconds()*1000/float64(b.N), "cpu-ms/op") }()
	for b.Loop() {
		s.reassert()
		for len(s.asserting) > 0 || !s.out.empty() {
			if s.assertable() {
				s.assertSome(assertMax)
			}
			s.compose(&request{})
		}
	}
}

// BenchmarkPost posts sets of position and rotation of 500 states, and writes the publish.
func BenchmarkPost(b *testing.B) {
	s := quietSpace()
	var ops []Op
	for i := range opsMax {
		key := "npc" + strconv.Itoa(i)
		if err := s.Post(Put{Key: key, Values: []Value{{Name: "pos", Type: "vector3f32", Value: [3]float32{}}, {Name: "rot", Type: "quaternionf16", Value: [4]float32{}}}}); err != nil {
			b.Fatal(err)
		}
		ops = append(ops, Set{key, Values{"pos": []float32{float32(i), 2, 3.5}, "rot": []float32{0, 0.5, 0, 1}}})
	}
	b.ReportAllocs()
	before := cpuTime(b)
	defer func() { b.ReportMetric(float64((cpuTime(b)-before).Nanoseconds())/float64(b.N*opsMax), "cpu-ns/set") }()
	for b.Loop() {
		for !s.out.empty() {
			s.compose(&request{})
		}
		if err := s.Post(ops...); err != nil {
			b.Fatal(err)
		}
	}
}

// cpuTime returns the processor time of this process, which a busy machine does not change much.
func cpuTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
