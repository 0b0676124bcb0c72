package promises

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/publisher"
	"github.com/nats-io/nats.go"
)

// TestSpace has one deployment for many promises. Each subtest has states and clients of its own.
func TestSpace(t *testing.T) {
	matrix{named: []string{"go,udp,c1,2"}}.run(t, space)
}

func space(w *world) {
	for _, c := range []struct {
		name string
		test func(w *world)
	}{
		{"ttl", (*world).ttl}, {"audience", (*world).changeAudience}, {"group", (*world).group}, {"put", (*world).putAgain}, {"reconnect", (*world).reconnect},
		{"detail", (*world).detail}, {"command", (*world).commandRestart}, {"writers", (*world).writers}, {"own", (*world).ownEnds}, {"reserved", (*world).reserved},
		{"large", (*world).large}, {"describe", (*world).describe}, {"bounds", (*world).bounds}, {"atomic", (*world).atomic}, {"as_of", (*world).asOf},
		{"precision", (*world).precision}, {"detail_levels", (*world).lod}, {"token", (*world).token}, {"spaces", (*world).spaces},
	} {
		w.Run(c.name, func(t *testing.T) {
			t.Parallel()
			c.test(w.of(t))
		})
	}
}

var hellos atomic.Int64

// named dials, and returns the name of the client, too: who sent what it says.
func (w *world) named(p *path, e ears) (player, string) {
	w.Helper()
	name := make(chan string, 1)
	said := fmt.Sprint("I am ", hellos.Add(1))
	sub, err := w.nc.Subscribe("dnp.v1.from.demo.*", func(m *nats.Msg) {
		if string(m.Data) == said {
			name <- m.Subject[len("dnp.v1.from.demo."):]
		}
	})
	w.must(err)
	defer func() { _ = sub.Unsubscribe() }()
	w.must(w.nc.Flush())
	c := w.dial(p, e)
	w.must(c.Send([]byte(said)))
	select {
	case n := <-name:
		return c, n
	case <-c.Done():
		w.Fatalf("the connection ends before the first message arrives: %v", c.Err())
	case <-w.ctx.Done():
		w.Fatal("no message of the client arrives")
	}
	return nil, ""
}

// An answer is what a relay says to a publish or get.
type answer struct {
	Error *struct {
		Code string
		Op   int
	}
	Epoch, Seq uint64
	Results    []struct {
		OK    bool
		Error *struct{ Code string }
	}
	Number    int
	Duplicate bool
}

// code is that of the error, or empty.
func (a answer) code() string {
	if a.Error == nil {
		return ""
	}
	return a.Error.Code
}

// ask sends a request until somebody answers.
func (w *world) ask(subject, body string, header ...string) (a answer) {
	w.Helper()
	m := nats.NewMsg("dnp.v1." + subject)
	m.Data = []byte(body)
	for i := 0; i < len(header); i += 2 {
		m.Header.Set(header[i], header[i+1])
	}
	for {
		r, err := w.nc.RequestMsgWithContext(w.ctx, m)
		if err == nil {
			w.must(json.Unmarshal(r.Data, &a))
			return a
		}
		if w.ctx.Err() != nil {
			w.Fatal(err)
		}
	}
}

// inbox collects the messages to a client.
type inbox struct {
	mu   sync.Mutex
	list []string
}

func (b *inbox) take(data []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.list = append(b.list, string(data))
}

func (b *inbox) count(text string) (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range b.list {
		if m == text {
			n++
		}
	}
	return n
}

// ttl: the holder removes a state when no publisher said anything about it for its time to live, with its links and farewell; each op begins the
// time again.
func (w *world) ttl() {
	h := w.events(w.space, publisher.Filter{Kinds: []publisher.Kind{publisher.KindExpired}}, nil)
	var in inbox
	c := w.dial(w.path(), ears{message: in.take})
	if a := w.ask("publish.demo", `{"op":"put","key":"ttl","values":[{"type":"uint8","value":1}]}`); a.Error != nil {
		w.Fatal(a.code())
	}
	_, err := c.Await(w.ctx, "ttl")
	w.must(err)
	var last time.Time
	for range 4 {
		before := last
		last = time.Now()
		if a := w.ask("publish.demo", `{"op":"put","key":"ttl","ttl":"1s","farewell":"ttl is over","values":[{"type":"uint8","value":1}]}`); a.Error != nil {
			w.Fatal(a.code())
		}
		if !before.IsZero() && time.Since(before) > 900*time.Millisecond {
			w.Skip("this machine stood still for longer than the time to live")
		}
		if c.State("ttl") == nil {
			w.Errorf("the state ends %v after the op before", time.Since(before))
		}
		<-time.After(400 * time.Millisecond)
	}
	w.must(c.Until(w.ctx, func() bool { return c.State("ttl") == nil && in.count("ttl is over") > 0 }))
	if d := time.Since(last); d < time.Second {
		w.Errorf("the state ends %v after the last op, want a second or more", d)
	}
	w.eventually("game servers hear expired", func() bool { return h.has(func(ev publisher.Event) bool { return ev.Key == "ttl" }) })
	if a := w.ask("get.demo.ttl", ""); a.code() != "unknown_state" {
		w.Errorf("get of the state: %+v, want unknown_state", a)
	}
	if n := in.count("ttl is over"); n != 1 {
		w.Errorf("%d farewells, want 1", n)
	}
}

// changeAudience: a client that leaves the audience loses the link and gets nothing that is set later; one that enters it gets the state.
func (w *world) changeAudience() {
	var secret atomic.Bool
	see := func(s state, _ []int) {
		if s.Key() == "audience" && s.Value("n").Int() == 2 {
			secret.Store(true)
		}
	}
	var in inbox
	a, nameA := w.named(w.path(), ears{message: in.take, see: see})
	b, nameB := w.named(w.path(), ears{})
	put := u32("audience", 1)
	put.Audience, put.Farewell = publisher.Who{Clients: []string{nameA}}, "not for you"
	w.publish(put)
	_, err := a.Await(w.ctx, "audience")
	w.must(err)
	if b.State("audience") != nil {
		w.Error("a client that does not belong to the audience has the state")
	}
	w.publish(publisher.Audience{Key: "audience", Who: publisher.Who{Clients: []string{nameB}}}, publisher.Set{Key: "audience", Values: publisher.Values{"n": 2}})
	w.must(a.Until(w.ctx, func() bool { return a.State("audience") == nil && in.count("not for you") == 1 }))
	w.must(b.Until(w.ctx, func() bool { s := b.State("audience"); return s != nil && s.Value("n").Int() == 2 }))
	if secret.Load() {
		w.Error("a client is shown what was set after it left the audience")
	}
}

// group: a client sees what its groups see, from when it joins until it leaves them.
func (w *world) group() {
	c, name := w.named(w.path(), ears{})
	put := u32("group", 1)
	put.Audience = publisher.Who{Groups: []string{"red"}}
	w.publish(put)
	for range 2 {
		w.publish(publisher.Group{Client: name, Join: []string{"red"}})
		_, err := c.Await(w.ctx, "group")
		w.must(err)
		w.publish(publisher.Group{Client: name, Leave: []string{"red"}})
		w.must(c.Until(w.ctx, func() bool { return c.State("group") == nil }))
	}
	w.must(c.Close())
	w.eventually("a client that left is unknown", func() bool {
		a := w.ask("publish.demo", fmt.Sprintf(`{"op":"group","client":%q,"join":["red"]}`, name))
		return a.code() == "unknown_client"
	})
}

// putAgain: with an unchanged layout links stay and clients get only the changes; with another one the state is replaced. A state that is removed ends with its
// farewell, once.
func (w *world) putAgain() {
	var links, unlinks atomic.Int64
	var in inbox
	c := w.dial(w.path(), ears{
		message: in.take,
		see: func(s state, changed []int) {
			switch {
			case s.Key() != "put":
			case changed == nil:
				links.Add(1)
			case !slices.Equal(changed, []int{0}):
				w.Errorf("values %v change, want 0 only", changed)
			}
		},
		unlink: func(s state) {
			if s.Key() == "put" {
				unlinks.Add(1)
			}
		},
	})
	put := func(n int, typ publisher.Type) publisher.Put {
		p := u32("put", n, publisher.Value{Name: "other", Type: typ, Value: 7})
		p.Farewell = "put is gone"
		return p
	}
	for n := 1; n <= 5; n++ {
		w.publish(put(n, publisher.Uint8))
		w.must(c.Until(w.ctx, func() bool { s := c.State("put"); return s != nil && s.Value("n").Int() == int64(n) }))
	}
	if links.Load() != 1 || unlinks.Load() != 0 || in.count("put is gone") != 0 {
		w.Errorf("%d links and %d ends of 5 puts with the same layout, want 1 and 0", links.Load(), unlinks.Load())
	}
	w.publish(put(6, publisher.Uint16))
	w.must(c.Until(w.ctx, func() bool {
		s := c.State("put")
		return s != nil && s.Value("n").Int() == 6 && s.Value("other").Int() == 7 && links.Load() == 2 && unlinks.Load() == 1
	}))
	before := in.count("put is gone")
	w.publish(publisher.Remove{Key: "put"})
	w.must(c.Until(w.ctx, func() bool {
		return c.State("put") == nil && unlinks.Load() == 2 && in.count("put is gone") == before+1
	}))
}

// reconnect: a client that comes again gets all states with their newest values.
func (w *world) reconnect() {
	const states = 80
	ops := func(n int) (list []publisher.Op) {
		for i := range states {
			list = append(list, u32(fmt.Sprint("reconnect.", i), n))
		}
		return list
	}
	for n := range 3 {
		w.publish(ops(n)...)
		c := w.dial(w.path(), ears{})
		w.must(c.Until(w.ctx, func() bool {
			for i := range states {
				if s := c.State(fmt.Sprint("reconnect.", i)); s == nil || s.Value("n").Int() != int64(n) {
					return false
				}
			}
			return true
		}))
		w.must(c.Close())
	}
	var gone []publisher.Op
	for i := range states {
		gone = append(gone, publisher.Remove{Key: fmt.Sprint("reconnect.", i)})
	}
	w.publish(gone...)
}

// detail: the reason of a kick is the detail of the event.
func (w *world) detail() {
	h := w.events(w.space, publisher.Filter{Kinds: []publisher.Kind{publisher.KindLeft}}, nil)
	c, name := w.named(w.path(), ears{})
	if a := w.ask("publish.demo", fmt.Sprintf(`{"op":"kick","client":%q,"reason":"cheats"}`, name)); a.Error != nil {
		w.Fatal(a.code())
	}
	<-c.Done()
	w.eventually("game servers hear left", func() bool { return h.has(func(ev publisher.Event) bool { return ev.Client == name }) })
	if !h.has(func(ev publisher.Event) bool {
		return ev.Client == name && ev.Reason == "kicked" && ev.Detail == "cheats"
	}) {
		w.Error("left has not the reason kicked with the detail cheats")
	}
}

// commandRestart: each command gets one answer while the game server restarts, and is executed at most once, and once if the answer is ok.
func (w *world) commandRestart() {
	put := u32("command", 1)
	put.Access = publisher.Access{All: true}
	w.publish(put)
	var mu sync.Mutex
	executed := map[string]int{}
	serve := func() (end func()) {
		p, s := w.game()
		w.events(s, publisher.Filter{Kinds: []publisher.Kind{publisher.KindCommand}, KeyPrefix: "command"}, func(ev publisher.Event) {
			mu.Lock()
			executed[string(ev.Command.Body)]++
			mu.Unlock()
			_ = ev.Command.Reply(w.ctx, append([]byte("did "), ev.Command.Body...))
		})
		return p.Close
	}
	end := serve()
	c := w.dial(w.path(), ears{})
	s, err := c.Await(w.ctx, "command")
	w.must(err)
	const commands = 60
	answers := make([]error, commands)
	var running sync.WaitGroup
	for i := range commands {
		if i%20 == 10 {
			end()
			end = serve()
		}
		running.Go(func() {
			body := fmt.Sprint("order ", i)
			got, err := s.Command(w.ctx, "do", []byte(body))
			answers[i] = err
			if err == nil && string(got) != "did "+body {
				w.Errorf("the answer to %q is %q", body, got)
			}
		})
		<-time.After(3 * time.Millisecond)
	}
	running.Wait()
	mu.Lock()
	defer mu.Unlock()
	ok := 0
	for i, err := range answers {
		n := executed[fmt.Sprint("order ", i)]
		e, isAnswer := errors.AsType[*client.CommandError](err)
		if err == nil {
			ok++
		}
		if n > 1 || err == nil && n != 1 || err != nil && !isAnswer {
			w.Errorf("command %d: %v, executed %d times", i, err, n)
		} else if isAnswer && e.Code != "timeout" && n > 0 {
			w.Errorf("command %d: %v, but it was executed", i, err)
		}
	}
	w.Logf("%d of %d commands are executed", ok, commands)
}

// writers: a client without the right to write cannot, one that gets it can, and one that loses it cannot any more.
func (w *world) writers() {
	h := w.events(w.space, publisher.Filter{Kinds: []publisher.Kind{publisher.KindChanged}, KeyPrefix: "writers"}, nil)
	a, name := w.named(w.path(), ears{})
	b := w.dial(w.path(), ears{})
	put := u32("writers", 1)
	w.publish(put)
	set := func(c player, n int) error {
		s, err := c.Await(w.ctx, "writers")
		w.must(err)
		return s.Set("n", n)
	}
	if set(a, 2) == nil || set(b, 2) == nil {
		w.Error("Set of a read-only state returns nil")
	}
	put.Access = publisher.Access{Writers: []string{name}}
	w.publish(put)
	w.must(a.Until(w.ctx, func() bool { s := a.State("writers"); return s != nil && !s.ReadOnly() }))
	w.must(set(a, 3))
	w.eventually("the game hears of the write", func() bool {
		return h.has(func(ev publisher.Event) bool { return ev.Values["n"] == uint32(3) && ev.Client == name })
	})
	if set(b, 4) == nil {
		w.Error("Set of a state with other writers returns nil")
	}
	put.Access = publisher.Access{}
	w.publish(put)
	w.must(a.Until(w.ctx, func() bool { s := a.State("writers"); return s != nil && s.ReadOnly() }))
	if set(a, 5) == nil {
		w.Error("Set returns nil after the right ended")
	}
	if h.has(func(ev publisher.Event) bool { return ev.Values["n"] != uint32(3) }) {
		w.Error("a write without the right is applied")
	}
}

// ownEnds: a state of a client is client.<client>.<linkid>, others see it when a game server says so, and it ends with the client.
func (w *world) ownEnds() {
	owner, name := w.named(w.path(), ears{})
	other := w.dial(w.path(), ears{})
	own, err := owner.Offer("own", client.Field{Type: "uint32", Value: 5})
	w.must(err)
	key := ""
	w.eventually("the relay has the state", func() bool {
		key = w.ownKey(name)
		return key != ""
	})
	w.publish(publisher.Audience{Key: key})
	s, err := other.Await(w.ctx, "own")
	w.must(err)
	w.must(own.SetAt(0, 6))
	w.must(other.Until(w.ctx, func() bool { return s.At(0).Int() == 6 }))
	w.must(owner.Close())
	w.must(other.Until(w.ctx, func() bool { return other.State("own") == nil }))
	if a := w.ask("get.demo."+key, ""); a.code() != "unknown_state" {
		w.Errorf("get of the state: %+v, want unknown_state", a)
	}
}

// reserved: names that INTERFACES.md reserves, or that break its rules, are refused and make nothing.
func (w *world) reserved() {
	for _, key := range []string{"_groups.x", "_interest.x", "_eyes", "a.b.c.d.e.f.g.h.i", "a..b", "ä", "a b", ".a"} {
		if a := w.ask("publish.demo", fmt.Sprintf(`{"op":"put","key":%q,"values":[{"type":"uint8","value":1}]}`, key)); a.code() != "bad_request" {
			w.Errorf("put of %q: %+v, want bad_request", key, a)
		}
		if w.truth()[key] != nil {
			w.Errorf("%q is a state", key)
		}
	}
	for _, space := range []string{"_x", "", "a.b", "ä", string(bytes.Repeat([]byte("x"), 65))} {
		if _, err := w.p.Space(space); err == nil {
			w.Errorf("%q is the name of a space", space)
		}
	}
	if a := w.ask("publish._reserved", `{"op":"put","key":"k","values":[{"type":"uint8","value":1}]}`); a.Error == nil {
		w.Errorf("put into a reserved space: %+v, want an error", a)
	}
}

// large: a state of nearly 60,000 bytes arrives whole, and one that is larger is refused, as is a longer value.
func (w *world) large() {
	data := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(i * 7)
		}
		return b
	}
	put := func(sizes ...int) publisher.Put {
		p := publisher.Put{Key: "large"}
		for _, n := range sizes {
			p.Values = append(p.Values, publisher.Value{Type: publisher.Data, Value: data(n)})
		}
		return p
	}
	for _, bad := range []publisher.Put{put(1025), put(slices.Repeat([]int{1024}, 60)...)} {
		_, err := w.space.Publish(w.ctx, bad)
		if e, ok := errors.AsType[*publisher.Error](err); !ok || e.Code != "too_large" {
			w.Errorf("a put with %d values: %v, want too_large", len(bad.Values), err)
		}
	}
	good := put(slices.Repeat([]int{1024}, 57)...)
	w.publish(good)
	c := w.dial(w.path(), ears{})
	s, err := c.Await(w.ctx, "large")
	w.must(err)
	for i, v := range good.Values {
		if !bytes.Equal(s.At(i).Bytes(), v.Value.([]byte)) {
			w.Errorf("value %d has %d bytes, or others than it should", i, len(s.At(i).Bytes()))
		}
	}
	good.Values[3].Value = data(15)
	w.publish(good)
	w.must(c.Until(w.ctx, func() bool { return len(s.At(3).Bytes()) == 15 }))
	w.publish(publisher.Remove{Key: "large"})
}

// describe: the link message of a described state has the names; without describe it is the key.
func (w *world) describe() {
	c := w.dial(w.path(), ears{})
	put := `{"op":"put","key":"describe","describe":%v,"values":[{"name":"hp","type":"uint8","value":1},{"type":"uint8","value":2},{"name":"pos","type":"point2s8","value":[3,4]}]}`
	for _, d := range []bool{true, false, true} {
		if a := w.ask("publish.demo", fmt.Sprintf(put, d)); a.Error != nil {
			w.Fatal(a.code())
		}
		message, names := "describe", [3]string{}
		if d {
			message, names = `{"v":1,"key":"describe","names":["hp","","pos"]}`, [3]string{"hp", "", "pos"}
		}
		w.must(c.Until(w.ctx, func() bool { s := c.State("describe"); return s != nil && string(s.Message()) == message }))
		s := c.State("describe")
		if got := [3]string{s.Name(0), s.Name(1), s.Name(2)}; got != names || s.At(2).Component(1) != 4 {
			w.Errorf("describe %v: names %q, values %v, want %q", d, got, []client.Value{s.At(0), s.At(1), s.At(2)}, names)
		}
	}
}

func named(values map[string]any, name string) bool { _, ok := values[name]; return ok }

// bounds: a write beyond the bounds is refused with its reason, and the client has the true value again; other values of the write stand.
func (w *world) bounds() {
	h := w.events(w.space, publisher.Filter{Kinds: []publisher.Kind{publisher.KindChanged, publisher.KindRefused}, KeyPrefix: "bounds"}, nil)
	type refusal struct{ name, code string }
	refused := make(chan refusal, 9)
	c := w.dial(w.path(), ears{refused: func(name, code string) { refused <- refusal{name, code} }})
	put := u32("bounds", 5, publisher.Value{Name: "f", Type: publisher.Float32, Value: 1.5, Min: -10, Max: 10})
	put.Values[0].Max, put.Access = 100, publisher.Access{All: true}
	w.publish(put)
	s, err := c.Await(w.ctx, "bounds")
	w.must(err)
	for _, x := range []struct {
		name, reason string
		v            float64
	}{{"n", "max", 101}, {"f", "min", -10.5}, {"f", "finite", math.NaN()}} {
		before := s.Value(x.name).Float()
		w.must(s.Set(x.name, x.v))
		select {
		case got := <-refused:
			if got != (refusal{x.name, "bounds"}) {
				w.Errorf("the client hears %v", got)
			}
		case <-w.ctx.Done():
			w.Fatal("the client does not hear that its write is refused")
		}
		w.must(c.Until(w.ctx, func() bool { return s.Value(x.name).Float() == before }))
		w.eventually("game servers hear why", func() bool {
			return h.has(func(ev publisher.Event) bool {
				return ev.Kind == publisher.KindRefused && ev.Reason == x.reason && ev.Code == "out_of_range" && named(ev.Values, x.name)
			})
		})
	}
	w.must(s.SetConfirmed(w.ctx, "n", 100))
	if v := w.truth()["bounds"]; v["n"] != "100" || v["f"] != "1.5" {
		w.Errorf("the relay has %v", v)
	}
	if h.has(func(ev publisher.Event) bool {
		return ev.Kind == publisher.KindChanged && ev.Values["n"] != uint32(100)
	}) {
		w.Error("a write beyond the bounds is a change")
	}
}

// atomic: a bad op undoes all of an atomic batch and is named, and none of another batch.
func (w *world) atomic() {
	batch := `{"atomic":%v,"ops":[{"op":"put","key":"atomic.a","values":[{"type":"uint8","value":1}]},{"op":"set","key":"atomic.none","values":{"0":1}},{"op":"put","key":"atomic.b","values":[{"type":"uint8","value":1}]}]}`
	if a := w.ask("publish.demo", fmt.Sprintf(batch, true)); a.code() != "unknown_state" || a.Error.Op != 1 {
		w.Errorf("an atomic batch: %+v, want unknown_state of op 1", a.Error)
	}
	if v := w.truth(); v["atomic.a"] != nil || v["atomic.b"] != nil {
		w.Error("a batch that was refused changed something")
	}
	a := w.ask("publish.demo", fmt.Sprintf(batch, false))
	if a.Error != nil || len(a.Results) != 3 || !a.Results[0].OK || a.Results[1].Error == nil || a.Results[1].Error.Code != "unknown_state" || !a.Results[2].OK {
		w.Errorf("a batch: %+v", a)
	}
	if v := w.truth(); v["atomic.a"] == nil || v["atomic.b"] == nil {
		w.Error("a good op of a batch changed nothing")
	}
}

// asOf: what is known as of an older position changes nothing that was said later, and no error.
func (w *world) asOf() {
	put := func(n int, extra string) answer {
		return w.ask("publish.demo", fmt.Sprintf(`{"op":"put","key":"as_of","values":[{"name":"n","type":"uint8","value":%d}]%s}`, n, extra))
	}
	first := put(1, "")
	second := put(2, "")
	if second.Epoch != first.Epoch || second.Seq <= first.Seq {
		w.Errorf("position %v %v after %v %v", second.Epoch, second.Seq, first.Epoch, first.Seq)
	}
	old := fmt.Sprintf(`,"as_of":[%d,%d]`, first.Epoch, first.Seq)
	if a := put(3, old); a.Error != nil {
		w.Errorf("a put as of an older position: %v", a.code())
	}
	if a := w.ask("publish.demo", `{"op":"set","key":"as_of","values":{"n":4}`+old+`}`); a.Error != nil {
		w.Errorf("a set as of an older position: %v", a.code())
	}
	if a := w.ask("publish.demo", `{"op":"remove","key":"as_of"`+old+`}`); a.Error != nil {
		w.Errorf("a remove as of an older position: %v", a.code())
	}
	if v := w.truth()["as_of"]["n"]; v != "2" {
		w.Errorf("the relay has %q, want 2", v)
	}
}

// precision: what clients have is never further from what was set than the precision, however small the steps are.
func (w *world) precision() {
	c := w.dial(w.path(), ears{})
	put := u32("precision", 0, publisher.Value{Name: "x", Type: publisher.Float32, Value: 0, Precision: 0.1})
	w.publish(put)
	s, err := c.Await(w.ctx, "precision")
	w.must(err)
	const steps = 200
	for i := 1; i <= steps; i++ {
		w.must(w.space.Post(publisher.Set{Key: "precision", Values: publisher.Values{"x": float32(i) * 0.04}}))
		if i%20 == 0 {
			w.must(w.space.Flush(w.ctx))
		}
	}
	w.must(w.space.Flush(w.ctx))
	w.must(c.Until(w.ctx, func() bool { return math.Abs(s.Value("x").Float()-steps*0.04) <= 0.1+1e-5 }))
}

// lod: a client with less detail has the same values as all, when nothing changes any more.
func (w *world) lod() {
	far, name := w.named(w.path(), ears{})
	near := w.dial(w.path(), ears{})
	put := u32("lod", 0, publisher.Value{Name: "x", Type: publisher.Float32, Value: 0, Precision: 0.1})
	put.Details = []publisher.Detail{{Clients: []string{name}, Precision: 50, Rate: 2}}
	w.publish(put)
	for _, c := range []player{far, near} {
		_, err := c.Await(w.ctx, "lod")
		w.must(err)
	}
	for i := 1; i <= 50; i++ {
		w.publish(publisher.Set{Key: "lod", Values: publisher.Values{"n": i, "x": float32(i) * 0.3}})
	}
	for _, c := range []player{near, far} {
		w.must(c.Until(w.ctx, func() bool {
			s := c.State("lod")
			return s.Value("n").Int() == 50 && float32(s.Value("x").Float()) == 50*float32(0.3)
		}))
	}
}

// token: a message that is repeated with its token arrives once.
func (w *world) token() {
	var in inbox
	c, name := w.named(w.path(), ears{message: in.take})
	if a := w.ask("to.demo."+name, "token 5", "Dnp-Token", "5"); a.Number == 0 {
		w.Errorf("token 5: %+v, want a number", a)
	}
	for _, n := range []string{"5", "5", "4"} {
		if a := w.ask("to.demo."+name, "token "+n, "Dnp-Token", n); !a.Duplicate {
			w.Errorf("token %s after 5: %+v, want a duplicate", n, a)
		}
	}
	if a := w.ask("to.demo."+name, "token 6", "Dnp-Token", "6"); a.Number == 0 {
		w.Errorf("token 6: %+v, want a number", a)
	}
	w.must(c.Until(w.ctx, func() bool { return in.count("token 6") == 1 }))
	if in.count("token 5") != 1 || in.count("token 4") != 0 {
		w.Errorf("the client gets %q", in.list)
	}
}

// spaces: two spaces have nothing in common: states, messages, writes, clear.
func (w *world) spaces() {
	s, err := w.p.Space("elsewhere")
	w.must(err)
	here := w.events(w.space, publisher.Filter{Kinds: []publisher.Kind{publisher.KindChanged, publisher.KindMessage}}, nil)
	there := w.events(s, publisher.Filter{Kinds: []publisher.Kind{publisher.KindChanged, publisher.KindMessage}}, nil)
	var inHere, inThere inbox
	a, _ := w.named(w.path(), ears{message: inHere.take})
	b := w.dial(w.open("elsewhere").by(w, w.way), ears{message: inThere.take})
	put := u32("spaces", 1)
	put.Access = publisher.Access{All: true}
	w.publish(put)
	put.Values[0].Value = 2
	_, err = s.Publish(w.ctx, put)
	w.must(err)
	sa, err := a.Await(w.ctx, "spaces")
	w.must(err)
	sb, err := b.Await(w.ctx, "spaces")
	w.must(err)
	if sa.Value("n").Int() != 1 || sb.Value("n").Int() != 2 {
		w.Errorf("values %v and %v, want 1 and 2", sa.Value("n"), sb.Value("n"))
	}
	w.must(sb.SetConfirmed(w.ctx, "n", 3))
	w.must(b.Send([]byte("from elsewhere")))
	w.eventually("the write and the message are heard there", func() bool {
		return there.has(func(ev publisher.Event) bool { return ev.Key == "spaces" }) && there.has(func(ev publisher.Event) bool {
			return ev.Kind == publisher.KindMessage && string(ev.Message.Data) == "from elsewhere"
		})
	})
	w.eventually("a message to everyone arrives", func() bool {
		w.must(s.Tell(publisher.Outgoing{To: publisher.Everyone, Data: []byte("all elsewhere")}))
		return inThere.count("all elsewhere") > 0
	})
	ctx, cancel := context.WithTimeout(w.ctx, time.Minute)
	defer cancel()
	w.must(s.Clear(ctx))
	w.must(b.Until(w.ctx, func() bool { return b.State("spaces") == nil }))
	w.publish(publisher.Set{Key: "spaces", Values: publisher.Values{"n": 9}})
	w.must(a.Until(w.ctx, func() bool { return sa.Value("n").Int() == 9 }))
	if inHere.count("all elsewhere") > 0 || here.has(func(ev publisher.Event) bool {
		return ev.Key == "spaces" || ev.Kind == publisher.KindMessage && string(ev.Message.Data) == "from elsewhere"
	}) {
		w.Error("a space hears of another one")
	}
}
