package console

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
)

// A twin is the dumb twin of a feed: it does what the page does with frames.
type twin struct {
	t      testing.TB
	keys   map[uint64]string
	values map[uint64][]string
	last   frame
}

type frame struct {
	Gone    []uint64
	Groups  map[string][]string
	Events  []json.RawMessage
	Missed  int
	Waiting string

	Interests map[string]*interest
	Eyes      map[string][]eye
	States    []struct {
		N      uint64
		About  about
		Values []json.RawMessage
	}
	Changed [][]json.RawMessage
}

func newTwin(t testing.TB) *twin {
	return &twin{t: t, keys: map[uint64]string{}, values: map[uint64][]string{}}
}

func (p *twin) apply(data []byte) {
	p.t.Helper()
	p.last = frame{}
	if err := json.Unmarshal(data, &p.last); err != nil {
		p.t.Fatalf("%v in %s", err, data)
	}
	for _, n := range p.last.Gone {
		delete(p.keys, n)
		delete(p.values, n)
	}
	for _, s := range p.last.States {
		p.keys[s.N] = s.About.Key
		p.values[s.N] = nil
		for _, v := range s.Values {
			p.values[s.N] = append(p.values[s.N], string(v))
		}
	}
	for _, c := range p.last.Changed {
		var n uint64
		if err := json.Unmarshal(c[0], &n); err != nil || p.values[n] == nil {
			p.t.Fatalf("%s changes a state that the page does not have", c)
		}
		for i := 1; i < len(c); i += 2 {
			var at int
			if err := json.Unmarshal(c[i], &at); err != nil {
				p.t.Fatal(err)
			}
			p.values[n][at] = string(c[i+1])
		}
	}
}

// texts returns what a map has, as text in order.
func texts[V any](m map[string]V) (all []string) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		v, err := json.Marshal(m[k])
		if err != nil {
			panic(err)
		}
		all = append(all, k+" "+string(v))
	}
	return all
}

// A rig is a space, its copy, and a page.
type rig struct {
	testing.TB
	now     time.Time
	store   *replication.Store
	feed    *feed
	replica *replication.Replica
	page    *twin
}

func newRig(t testing.TB) *rig {
	r := &rig{TB: t, now: time.Unix(1000, 0), feed: newFeed("s"), page: newTwin(t)}
	r.store = replication.NewStore(replication.StoreConfig{Space: "s", Epoch: 7, Eye: replication.Eye{Key: "player.{client}"}})
	r.replica = replication.NewReplica("s", r.feed)
	return r
}

// batches returns the batches for what a game server publishes, which must be right.
func (r *rig) batches(body string) [][]byte {
	r.Helper()
	p, err := payload.JSON.Parse([]byte(body), "")
	if err != nil {
		r.Fatalf("%s: %v", body, err)
	}
	p.Token = 1
	r.store.Publish(r.now, p)
	return r.advance()
}

func (r *rig) advance() (batches [][]byte) {
	r.Helper()
	r.now = r.now.Add(time.Second)
	for _, out := range r.store.Advance(r.now) {
		switch out.Kind {
		case replication.OutputBatch:
			batches = append(batches, out.Data)
		case replication.OutputAnswer:
			if out.Answer.Err != nil {
				r.Fatal(out.Answer.Err)
			}
		}
	}
	return batches
}

// publish has the copy follow what a game server publishes.
func (r *rig) publish(body string) {
	r.Helper()
	r.apply(r.batches(body))
}

func (r *rig) follow() {
	r.Helper()
	r.apply(r.advance())
}

func (r *rig) apply(batches [][]byte) {
	for _, b := range batches {
		r.replica.Apply(r.now, b)
	}
	for request, ok := r.replica.Advance(r.now); ok; request, ok = r.replica.Advance(r.now) {
		for _, part := range r.store.Repair(r.now, request) {
			r.replica.ApplyReply(r.now, part)
		}
	}
}

// told gives the page one frame.
func (r *rig) told() *frame {
	r.Helper()
	r.page.apply(r.feed.frame(nil, position{Eyes: r.replica.Eyes}))
	return &r.page.last
}

// same compares the page with the copy.
func (r *rig) same() {
	r.Helper()
	want := map[uint64]string{}
	for s := range r.replica.All() {
		want[s.Number] = s.Desc.Key
		for i, d := range s.Desc.Values {
			v := string(payload.AppendValue(nil, d.Type, s.Values.Value(i)))
			if s.IsNull(i) {
				v = "null"
			}
			if got := r.page.values[s.Number]; len(got) != len(s.Desc.Values) || got[i] != v {
				r.Fatalf("value %d of %s is %v, want %s", i, s.Desc.Key, got, v)
			}
		}
	}
	if !maps.Equal(want, r.page.keys) {
		r.Fatalf("the page has %v, want %v", r.page.keys, want)
	}
}

func TestFeed(t *testing.T) {
	r := newRig(t)
	r.publish(`{"op":"put","key":"lamp","access":"read-write","audience":{"groups":["red"]},"values":[{"name":"on","type":"uint8","value":0},{"name":"at","type":"vector3f32","value":[1,0.5,0]}]}`)
	f := r.told()
	if len(f.States) != 1 || f.States[0].About.Key != "lamp" || f.States[0].About.Access != "read-write" || !slices.Equal(f.States[0].About.Groups, []string{"red"}) {
		t.Errorf("a new state is told as %+v", f.States)
	}
	r.same()
	for i := range 5 {
		r.publish(fmt.Sprintf(`{"op":"set","key":"lamp","values":{"on":%d}}`, i+1))
	}
	if f := r.told(); len(f.Changed) != 1 || len(f.Changed[0]) != 3 || string(f.Changed[0][2]) != "5" {
		t.Errorf("five changes are told as %s, want the last one", f.Changed)
	}
	r.publish(`{"op":"audience","key":"lamp","audience":{"all":true}}`)
	if f := r.told(); len(f.States) != 1 || f.States[0].About.Audience != "all" {
		t.Errorf("another audience is told as %+v", f.States)
	}
	r.publish(`{"op":"set","key":"lamp","values":{"on":9}}`)
	r.publish(`{"op":"remove","key":"lamp"}`)
	r.publish(`{"op":"put","key":"lamp","values":[{"type":"string","value":"another"}]}`)
	if f := r.told(); len(f.Gone) != 1 || len(f.States) != 1 || len(f.Changed) != 0 {
		t.Errorf("a state in the place of another is told as %+v", f)
	}
	r.same()
	if r.feed.waits() {
		t.Error("the feed waits with nothing to tell")
	}
}

// A page is told everything about a state, and data by the names of their components.
func TestFeedAbout(t *testing.T) {
	r := newRig(t)
	for op, want := range map[string]string{
		`"access":"read-only","audience":{"all":false},"values":[{"type":"uint8","value":null,"nullable":true}]`:                                                                         `{"key":"k","names":[""],"types":["uint8"],"access":"read-only","audience":"none","priority":1,"levels":0,"message":"k"} null`,
		`"access":{"writers":["ann"]},"audience":{"groups":["red"],"clients":["bob"]},"priority":3,"lod":[{"groups":["red"],"rate":2}],"values":[{"name":"n","type":"uint8","value":7}]`: `{"key":"k","names":["n"],"types":["uint8"],"access":"writers","writers":["ann"],"audience":"listed","groups":["red"],"clients":["bob"],"priority":3,"levels":1,"message":"k"} 7`,
		`"audience":{"all":true,"except":{"clients":["bob"]}},"values":[{"type":"uint8","value":7}]`:                                                                                     `{"key":"k","names":[""],"types":["uint8"],"access":"read-only","audience":"all-but","clients":["bob"],"priority":1,"levels":0,"message":"k"} 7`,
	} {
		r.publish(`{"op":"put","key":"k",` + op + `}`)
		if f := r.told(); len(f.States) != 1 || len(f.States[0].Values) != 1 {
			t.Errorf("%s is told as %+v", op, f.States)
		} else if got := fmt.Sprintf("%s %s", appendJSON(nil, f.States[0].About), f.States[0].Values[0]); got != want {
			t.Errorf("%s is told as\n%s, want\n%s", op, got, want)
		}
		r.publish(`{"op":"remove","key":"k"}`)
	}
	const put = `{"op":"put","key":"d","describe":true,"values":[{"name":"v","type":"data","fields":[{"name":%q,"type":"uint8"}],"value":{%[1]q:5}}]}`
	for _, name := range []string{"hp", "armour"} {
		r.publish(fmt.Sprintf(put, name))
		if f, want := r.told(), fmt.Sprintf(`{%q:5}`, name); len(f.States) != 1 || string(f.States[0].Values[0]) != want {
			t.Errorf("data are told as %+v, want %s", f.States, want)
		}
	}
	r.publish(`{"op":"put","key":"d","values":[{"name":"v","type":"data","value":"BQ=="}]}`)
	r.publish(`{"op":"set","key":"d","values":{"v":"Bg=="}}`)
	if f := r.told(); len(f.States) != 1 || string(f.States[0].Values[0]) != `"Bg=="` || len(f.Changed) > 0 {
		t.Errorf("data without components that have changed since are told as %+v, and %s", f.States, f.Changed)
	}
}

// A frame that is full leaves the rest to the next ones.
func TestFeedFrames(t *testing.T) {
	r := newRig(t)
	text := strings.Repeat("x", 1000)
	for i := range 800 {
		r.publish(fmt.Sprintf(`{"op":"put","key":"k%d","values":[{"type":"string","value":%q},{"type":"uint8","value":0}]}`, i, text))
	}
	frames := 0
	for r.feed.waits() {
		b := r.feed.frame(nil, position{})
		if most := frameBytes + 20_000; len(b) > most {
			t.Fatalf("a frame of %d bytes, want at most %d", len(b), most)
		}
		r.page.apply(b)
		if frames++; frames == 1 { // while the rest waits
			r.publish(`{"ops":[{"op":"set","key":"k799","values":{"1":3}},{"op":"set","key":"k0","values":{"1":4}},{"op":"remove","key":"k798"}]}`)
		}
	}
	if frames < 3 || frames > 10 {
		t.Errorf("%d frames", frames)
	}
	r.same()
}

// A page is told who sees from where, and how far.
func TestFeedSight(t *testing.T) {
	r := newRig(t)
	r.publish(`{"ops":[{"op":"interest","name":"walker","at":"pos","axes":"xz","bands":[{"within":10},{"within":30,"rate":2,"precision":4}]},
		{"op":"put","key":"npc","interest":"walker","values":[{"name":"pos","type":"vector3f32","value":[0,0,0]}]},
		{"op":"put","key":"own","interest":{"at":"0","bands":[{"within":5}]},"values":[{"type":"vector2f32","value":[0,0]}]}]}`)
	f := r.told()
	var names []string
	for _, s := range f.States {
		names = append(names, s.About.Interest)
	}
	if len(names) != 2 || names[0] != "walker" || !replication.IsInline(names[1]) {
		t.Fatalf("the states have the interests %q", names)
	}
	want := []string{names[1] + ` {"at":"0","bands":[{"within":5}]}`, `walker {"at":"pos","axes":"xz","bands":[{"within":10},{"within":30,"rate":2,"precision":4}]}`}
	if got := texts(f.Interests); !slices.Equal(got, want) {
		t.Errorf("the interests are %q, want %q", got, want)
	}
	told := func(why string, want ...string) {
		t.Helper()
		r.follow()
		if got := texts(r.told().Eyes); !slices.Equal(got, want) {
			t.Errorf("%s: the eyes are %q, want %q", why, got, want)
		}
	}
	r.store.Join("a", "1")
	r.store.Join("b", "2")
	told("the eye of all clients", ` [{"key":"player.{client}"}]`)
	r.publish(`{"ops":[{"op":"eye","client":"a","at":["npc#pos",[1,0,2.5]]},{"op":"eye","client":"b","at":null}]}`)
	told("eyes of clients", `a [{"key":"npc","value":"pos"},{"at":[1,0,2.5]}]`, `b []`)
	r.store.Leave("a", "1")
	told("a client that left", `a null`)
	r.store.Leave("b", "2")
	told("the last client left", ` []`, `b null`)
	r.publish(`{"ops":[{"op":"remove","key":"npc"},{"op":"interest","name":"walker","bands":[]}]}`)
	if got := texts(r.told().Interests); !slices.Equal(got, []string{"walker null"}) {
		t.Errorf("an interest that ended is told as %q", got)
	}
}

// More groups and eyes than a frame has room for come with later ones.
func TestFeedSightFrames(t *testing.T) {
	r := newRig(t)
	name := strings.Repeat("x", 50)
	list := []string{"red"}
	r.feed.Groups("a", list)
	list[0] = "blue" // the list is the caller's
	if f := r.told(); !slices.Equal(f.Groups["a"], []string{"red"}) {
		t.Errorf("the page is told of the groups %v", f.Groups)
	}
	for i := range 6000 {
		r.feed.Groups(fmt.Sprint(name, i), []string{name})
	}
	groups := 0
	for r.feed.waits() {
		f := r.told()
		groups += len(f.Groups)
		if len(f.Groups) == 6000 || len(f.Groups) == 0 || r.feed.waits() != r.feed.full() {
			t.Fatalf("a frame has %d groups", len(f.Groups))
		}
	}
	if groups != 6000 {
		t.Errorf("the page is told of %d groups", groups)
	}
}

// Events are bounded, and what is not JSON is none.
func TestFeedEvents(t *testing.T) {
	r := newRig(t)
	for i := range frameEvents + 5 {
		r.feed.event(fmt.Appendf(nil, `{"type":"joined","n":%d}`, i))
	}
	r.feed.event([]byte(`{"type":`))
	r.feed.event(fmt.Appendf(nil, "%q", strings.Repeat("x", eventMax)))
	f := r.told()
	if len(f.Events) != frameEvents || f.Missed != 7 || string(f.Events[0]) != `{"type":"joined","n":5}` {
		t.Errorf("%d events and %d missed, the first is %s", len(f.Events), f.Missed, f.Events[0])
	}
	if r.feed.waits() || r.told().Missed != 0 {
		t.Error("the page is told again what it missed")
	}
}

// TestFeedModel publishes at random, and compares the page with the copy whenever everything is told.
func TestFeedModel(t *testing.T) {
	for seed := range uint64(20) {
		r := newRig(t)
		rnd := rand.New(rand.NewPCG(seed, 1))
		for range 300 {
			key := fmt.Sprint("k", rnd.IntN(8))
			if _, err := r.store.Get(key); err != nil || rnd.IntN(9) == 0 {
				types := []string{`"uint8","value":1`, `"string","value":"<&\u2028>"`, `"vector3f64","nullable":true,"value":null`, `"data","value":"AAEC"`}
				r.publish(fmt.Sprintf(`{"op":"put","key":%q,"values":[{"name":"n","type":"sint32","value":%d},{"type":%s}]}`, key, rnd.IntN(99), types[rnd.IntN(len(types))]))
			} else if rnd.IntN(8) == 0 {
				r.publish(fmt.Sprintf(`{"op":"remove","key":%q}`, key))
			} else {
				r.publish(fmt.Sprintf(`{"op":"set","key":%q,"values":{"n":%d}}`, key, rnd.IntN(5)))
			}
			if rnd.IntN(4) == 0 {
				r.told()
				r.same()
			}
		}
	}
}

// TestPosition: a page is told why what it has may be old, and not that it is complete.
func TestPosition(t *testing.T) {
	r := newRig(t)
	r.publish(`{"op":"put","key":"k","values":[{"name":"x","type":"uint8","value":1}]}`)
	whole := follower{feed: r.feed, replica: r.replica, heard: r.now}
	empty := follower{feed: r.feed, replica: replication.NewReplica("s", newFeed("s")), heard: r.now}
	unheard := empty
	unheard.unheard = true
	for _, c := range []struct {
		why       string
		f         follower
		after     time.Duration
		connected bool
		want      string
	}{
		{"all is well", whole, silentAfter, true, ""},
		{"NATS is away", whole, 0, false, "no connection to NATS; what is here is old"},
		{"the holder is dead", whole, silentAfter + 1, true, "the relay that holds the space is silent; what is here is old"},
		{"nothing came yet", empty, 0, true, "the relay that holds the space has not answered"},
		{"nothing can come", unheard, 0, true, "no relay listens: none is running, or the deployment has another number of shards"},
	} {
		if p := c.f.position(r.now.Add(c.after), c.connected); p.Waiting != c.want || p.Complete != (c.want == "") {
			t.Errorf("%s: complete %t, waiting %q; want %q", c.why, p.Complete, p.Waiting, c.want)
		}
	}
}

// TestWait: frames that tell nothing are 2 s apart, and a frame that waits for a slow page makes the follower wait, not turn.
func TestWait(t *testing.T) {
	r := newRig(t)
	r.publish(`{"op":"put","key":"k","values":[{"name":"x","type":"uint8","value":1}]}`)
	f := follower{feed: r.feed, replica: r.replica}
	next := r.now.Add(frameInterval)
	if d := f.wait(r.now, next, false, false); d != frameInterval {
		t.Errorf("with something to tell it waits %v, want %v", d, frameInterval)
	}
	r.told()
	for _, c := range []struct {
		after time.Duration
		ready bool
		want  time.Duration
	}{{0, false, frameInterval + 2*time.Second}, {2 * time.Second, false, frameInterval}, {3 * time.Second, false, 0}, {3 * time.Second, true, 2 * time.Second}} {
		if d := f.wait(r.now.Add(c.after), next, false, c.ready); d != c.want {
			t.Errorf("%v after a frame, the next is ready: %t: it waits %v, want %v", c.after, c.ready, d, c.want)
		}
	}
}
