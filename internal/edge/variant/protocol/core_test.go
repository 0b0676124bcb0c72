package protocol

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/godot/variant"
)

// A talk is a Stream, what the edge says into it, and a model at its other end.
type talk struct {
	*Stream
	t      testing.TB
	now    time.Time
	client *fakeClient
	model  *model
	marks  []uint32
	bytes  int
}

func newTalk(t testing.TB, d variant.Dialect) *talk {
	c := &fakeClient{}
	return &talk{Stream: NewStream(Config{Dialect: d, Client: c}, start), t: t, now: start, client: c, model: newModel(t, d)}
}

// join joins.
func (s *talk) join() *talk {
	s.t.Helper()
	s.says(hello)
	if s.client.hello == nil {
		s.t.Fatal("the client did not join")
	}
	s.core.Welcome()
	s.turn()
	return s
}

// says has the peer say something that the edge takes at once.
func (s *talk) says(m any) {
	s.t.Helper()
	if wait := s.Receive(s.now, encode(s.model.dialect, m)); wait != 0 {
		s.t.Fatalf("the edge does not take %v for %v", m, wait)
	}
}

// turn has everything sent that is due in 10 ms, and confirmed.
func (s *talk) turn() {
	s.now = s.now.Add(10 * time.Millisecond)
	s.send()
	for _, m := range s.marks {
		s.Confirmed(s.now, m)
	}
	s.marks = nil
}

// send has everything sent that is due.
func (s *talk) send() {
	mark := s.Advance(s.now, func(p []byte) {
		s.bytes += len(p)
		s.model.handle(decode(s.t, s.model.dialect, p).(list))
	})
	if mark != 0 {
		s.marks = append(s.marks, mark)
	}
}

// ends expects that the connection ends.
func (s *talk) ends(why string, want Reason) {
	s.t.Helper()
	s.turn()
	if r, ended := s.core.Ended(); !ended || r != want || want != Gone && s.model.bye != string(want) {
		s.t.Errorf("%s: it ended with %q, the client heard %q, want %q", why, r, s.model.bye, want)
	}
}

// TestStates has a state come, change and go, with names and without.
func TestStates(t *testing.T) {
	for d := variant.Godot2; d <= variant.Godot4; d++ {
		s := newTalk(t, d).join()
		lamp := &fakeState{key: "lamp", names: []string{"on", "", "on"}, values: []int32{1, 2, 3}}
		s.core.Linked(s.now, 7, lamp)
		s.turn()
		got := fmt.Sprint(s.model.states)
		if want := "map[7:map[on:1 1:2 2:3]]"; got != want {
			t.Errorf("%v: the client sees %s, want %s: a name that comes twice is that of the first value", d, got, want)
		}
		lamp.values = []int32{4, 5, 6}
		s.core.Changed(s.now, 7, []int{0, 2})
		lamp.values[0] = 9 // the newest counts
		s.turn()
		if got, want := fmt.Sprint(s.model.states), "map[7:map[on:9 1:2 2:6]]"; got != want {
			t.Errorf("%v: the client sees %s, want %s", d, got, want)
		}
		s.core.Unlinked(s.now, 7)
		s.core.Changed(s.now, 7, []int{1})
		s.turn()
		if len(s.model.states) != 0 {
			t.Errorf("%v: the client still sees %v", d, s.model.states)
		}
	}
}

// TestIndices has a client that wants indices instead of names.
func TestIndices(t *testing.T) {
	s := newTalk(t, variant.Godot4)
	s.says(list{"hello", dict{"version", 1, "indices", true, "token", "secret", "later", 5}})
	if s.client.hello == nil || s.client.hello.Token != "secret" {
		t.Fatalf("the login is %v", s.client.hello)
	}
	s.core.Welcome()
	lamp := &fakeState{key: "lamp", names: []string{"on"}, values: []int32{1}}
	s.core.Linked(s.now, 7, lamp)
	s.turn()
	s.core.Changed(s.now, 7, []int{0})
	s.now = s.now.Add(flushDelay)
	s.Advance(s.now, func(p []byte) {
		if got := fmt.Sprint(decode(t, variant.Godot4, p)); got != "[set 7 map[0:1]]" {
			t.Errorf("the edge said %s, want the index", got)
		}
	})
}

// TestWrites has a client set values, those that fit and those that do not.
func TestWrites(t *testing.T) {
	s := newTalk(t, variant.Godot3).join()
	lamp := &fakeState{key: "lamp", names: []string{"on"}, values: []int32{1, 2}, hasText: true}
	fixed := &fakeState{key: "wall", values: []int32{1}, readOnly: true}
	s.core.Linked(s.now, 7, lamp)
	s.core.Linked(s.now, 8, fixed)
	s.turn()
	s.says(list{"set", 7, dict{"on", 5, 1, 6, 2, "text"}})
	if lamp.values[0] != 5 || lamp.values[1] != 6 || lamp.text != "text" {
		t.Errorf("the lamp has %v %q", lamp.values, lamp.text)
	}
	for _, c := range []struct {
		set  dict
		want string
	}{
		{dict{"on", "red"}, "want sint32, got String"},
		{dict{"on", nil}, "want sint32, got null"},
		{dict{"on", 1 << 40}, "does not fit"},
		{dict{"off", 1}, "no value of this name"},
		{dict{3, 1}, "the state has 3 values"},
		{dict{-1, 1}, "the state has 3 values"},
		{dict{2.5, 1}, "not float"},
		{dict{2, strings.Repeat("x", 16_001)}, "at most"},
	} {
		s.now = s.now.Add(time.Second)
		s.model.refused = nil
		s.says(list{"set", 7, c.set})
		s.turn()
		if len(s.model.refused) != 1 || !strings.Contains(s.model.refused[0], c.want) {
			t.Errorf("%v: refused %q, want %q", c.set, s.model.refused, c.want)
		}
	}
	s.model.states[7]["on"] = int64(77) // what the client believes
	s.says(list{"set", 7, dict{"on", "red"}})
	s.turn()
	if got := s.model.states[7]["on"]; got != int64(5) {
		t.Errorf("after a value that was refused the client has %v, want the true one", got)
	}
	s.now = s.now.Add(time.Second)
	s.model.refused = nil
	s.says(list{"set", 8, dict{0, 5}})
	s.turn()
	if len(s.model.refused) != 1 || fixed.values[0] != 1 {
		t.Errorf("a read-only value was set, or the client not told: %q", s.model.refused)
	}
	for range 100 {
		s.says(list{"set", 7, dict{"on", "red"}})
	}
	s.turn()
	if n := len(s.model.refused); n > 1+refusalsPerSecond {
		t.Errorf("the client was told %d times in a second", n)
	}
	s.says(list{"set", 99, dict{"on", 1}})
	if s.core.counts.Drops[DropUnknownState] != 1 {
		t.Error("a value for a state that does not exist was not counted")
	}
}

// TestMessages carries messages of all sizes both ways.
func TestMessages(t *testing.T) {
	s := newTalk(t, variant.Godot3).join()
	long := strings.Repeat("0123456789", 50_000)
	s.core.Message([]byte("one"), true)
	s.core.Message([]byte("two"), false)
	s.core.Message([]byte(long), true)
	s.core.Message([]byte("three"), true)
	for range 100 {
		s.turn()
	}
	if m := s.model.messages; len(m) != 4 || m[0] != "one" || m[1] != "two" && m[3] != "two" || !strings.Contains(strings.Join(m, ""), long+"three") {
		t.Errorf("the client got %.20q", m)
	}
	s.says(list{"msg", []byte("hi")})
	s.says(list{"msg", "text", true})
	s.says(list{"msg", "loose", false})
	inner := encode(variant.Godot3, list{"msg", []byte(long)})
	for p := inner; len(p) > 0; p = p[min(len(p), 30_000):] {
		s.says(list{"part", p[:min(len(p), 30_000)], len(p) <= 30_000})
		s.now = s.now.Add(time.Second / 4)
	}
	if m := s.client.messages; len(m) != 3 || m[0] != "hi" || m[1] != "text" || m[2] != long || len(s.client.loose) != 1 {
		t.Errorf("the edge got %.20q and %q", m, s.client.loose)
	}
	s.client.busy = true
	p := encode(variant.Godot3, list{"msg", []byte("later")})
	if s.Receive(s.now, p) == 0 {
		t.Error("a message that the edge cannot take is taken")
	}
	s.client.busy = false
	if s.Receive(s.now, p) != 0 || len(s.client.messages) != 4 {
		t.Error("a message that the edge can take is not taken")
	}
}

// TestOffer has a client make states of its own.
func TestOffer(t *testing.T) {
	s := newTalk(t, variant.Godot4).join()
	s.says(list{"offer", -1, "me", list{list{"x", "sint32", 5}, list{"", "sint32"}}})
	if f := s.client.offers[-1]; len(f) != 2 || f[0].Name != "x" || !bytes.Equal(f[0].Value, []byte{5, 0, 0, 0}) || !bytes.Equal(f[1].Value, []byte{0, 0, 0, 0}) {
		t.Fatalf("the edge got %v", f)
	}
	me := s.core.entries[-1].state.(*fakeState)
	s.says(list{"set", -1, dict{"x", 6, 1, 7}})
	s.core.Linked(s.now, -1, me)
	s.turn()
	if got := fmt.Sprint(s.model.states[-1]); got != "map[x:6 1:7]" || me.values[1] != 7 {
		t.Errorf("the client sees %s", got)
	}
	s.core.Unlinked(s.now, -1)
	s.turn()
	if s.model.states[-1] != nil || s.core.offered != 0 {
		t.Errorf("the state is still there: %v, %d", s.model.states, s.core.offered)
	}
	for _, fields := range []list{{}, {5}, {list{}}, {list{"x"}}, {list{"x", "float31"}}, {list{"x", "sint32", "red"}}, make(list, OfferedValuesMax+1)} {
		s.now = s.now.Add(time.Second)
		s.model.refused, s.model.log = nil, nil
		s.says(list{"offer", -2, "bad", fields})
		s.turn()
		if len(s.model.refused) != 1 || s.core.entries[-2] != nil || s.core.offered != 0 {
			t.Errorf("%.60v: refused %q, %d states", fmt.Sprint(fields), s.model.refused, s.core.offered)
		}
	}
	s.model.log = nil
	const most = 64 // as INTERFACES.md says
	for i := range most + 5 {
		s.says(list{"offer", -10 - i, "many", list{list{"x", "sint32"}}})
	}
	s.turn()
	if len(s.client.offers) != most+1 || strings.Count(fmt.Sprint(s.model.log), "unlink") != 5 {
		t.Errorf("%d states, the client heard %v", len(s.client.offers), s.model.log)
	}
	s.says(list{"unlink", -10})
	s.says(list{"unlink", 7})
	if s.core.offered != most-1 || s.client.offers[-10] != nil {
		t.Errorf("%d states after one was withdrawn", s.core.offered)
	}
}

// TestMalformed has clients break the rules: the edge tells why, and ends.
func TestMalformed(t *testing.T) {
	d := variant.Godot3
	for name, m := range map[string]any{
		"no Array": 5, "an empty Array": list{}, "no name": list{5}, "an unknown message": list{"sett", 1}, "null": list{nil},
		"a second hello": hello, "a long Array": make(list, 100), "set without values": list{"set", 1}, "set with an Array": list{"set", 1, list{}},
		"set without an id": list{"set", "1", dict{}}, "an empty message": list{"msg", ""}, "a message of a number": list{"msg", 5},
		"reliable by a number": list{"msg", "x", 1}, "an offer above 0": list{"offer", 5, "x", list{}}, "an offer of nothing": list{"offer", -1},
		"a part of a text": list{"part", "x", true}, "a part that is no Variant": list{"part", []byte("x"), true},
		"a part in a part":  list{"part", encode(d, list{"part", encode(d, list{"bye"}), true}), true},
		"a hello in a part": list{"part", encode(d, hello), true},
		"unlink by a name":  list{"unlink", "x"},
	} {
		s := newTalk(t, d).join()
		s.says(m)
		s.ends(name, Malformed)
	}
	for name, m := range map[string]any{
		"not hello": list{"set", 1, dict{}}, "null first": nil, "hello without Dictionary": list{"hello"}, "a token of a number": list{"hello", dict{"version", 1, "token", 5}},
		"a version of a text": list{"hello", dict{"version", "1"}}, "a long token": list{"hello", dict{"version", 1, "token", strings.Repeat("x", LoginMax+1)}},
	} {
		s := newTalk(t, d)
		s.says(m)
		s.ends(name, Malformed)
	}
	s := newTalk(t, d)
	s.says(list{"hello", dict{"version", 2}})
	s.ends("another version", Version)
	s = newTalk(t, d).join()
	s.says(list{"bye"})
	s.ends("bye", Gone)
}

// TestBombs sends what is small and could become large.
func TestBombs(t *testing.T) {
	deep := any("x")
	for range 100 {
		deep = list{deep}
	}
	count := encode(variant.Godot3, list{"set", 1, dict{}})
	copy(count[4:], "\xff\xff\xff\x7f")
	text := encode(variant.Godot3, list{"msg", "xxxx"})
	copy(text[len(text)-8:], "\xff\xff\xff\x7f")
	for name, p := range map[string][]byte{"nesting": encode(variant.Godot3, deep), "a count": count, "a length": text, "an object": {17, 0, 0, 0, 1, 0, 0, 0}} {
		s := newTalk(t, variant.Godot3).join()
		if allocated := testing.AllocsPerRun(1, func() { s.Receive(s.now, p) }); allocated > 60 {
			t.Errorf("%s: %v allocations", name, allocated)
		}
		s.ends(name, Malformed)
	}
	s := newTalk(t, variant.Godot3).join()
	for range partsMax/30_000 + 2 {
		s.now = s.now.Add(time.Second / 4)
		s.says(list{"part", make([]byte, 30_000), false})
	}
	s.ends("parts without end", Malformed)
	if s.core.parts != nil {
		t.Error("the parts are still there")
	}
	s = newTalk(t, variant.Godot3).join()
	s.says(list{"part", make([]byte, 8192), false})
	s.now = s.now.Add(partTime + 3*time.Second)
	s.says(list{"part", make([]byte, 10), false})
	s.ends("parts that come too slowly", Malformed)
}

// TestTruncations cuts every message of a conversation at every byte.
func TestTruncations(t *testing.T) {
	for _, m := range []any{hello, list{"set", 7, dict{"on", 5}}, list{"msg", []byte("x"), true}, list{"offer", -1, "x", list{list{"x", "sint32", 1}}}} {
		p := encode(variant.Godot4, m)
		for n := range p {
			s := newTalk(t, variant.Godot4)
			s.says(hello)
			s.core.Welcome()
			s.Receive(s.now, p[:n])
			s.ends(fmt.Sprintf("%d bytes of %v", n, m), Malformed)
		}
	}
}

// TestStreamFlow has a client that confirms nothing: what is on its way stays below what engines keep, values are the newest ones
// when it reads again, and it is slow in the end.
func TestStreamFlow(t *testing.T) {
	s := newTalk(t, variant.Godot3).join()
	states := make([]*fakeState, 200)
	for i := range states {
		states[i] = &fakeState{key: fmt.Sprint("s", i), values: make([]int32, 10), text: strings.Repeat("x", 1000), hasText: true}
		s.core.Linked(s.now, int64(i+1), states[i])
	}
	s.bytes = 0
	for i := range 1000 {
		s.now = s.now.Add(5 * time.Millisecond)
		states[i%200].values[3]++
		s.core.Changed(s.now, int64(i%200+1), []int{3})
		s.send()
	}
	if s.bytes > streamBytesMax {
		t.Errorf("%d bytes are on their way, at most %d", s.bytes, streamBytesMax)
	}
	before := s.bytes
	for range 100 {
		s.turn()
	}
	if s.bytes == before {
		t.Error("the edge sends nothing more when the client confirms")
	}
	for _, state := range states {
		if !equal(s.model, state) {
			t.Fatalf("%s is not equal", state.key)
		}
	}
	s.core.Changed(s.now, 1, []int{3})
	s.now = s.now.Add(flushDelay)
	s.send()
	s.now = s.now.Add(confirmTime)
	s.Expire(s.now)
	s.ends("a client that confirms nothing", Slow)
}

// TestBacklog has game servers send more than a client takes. The numbers are those of INTERFACES.md.
func TestBacklog(t *testing.T) {
	s := newTalk(t, variant.Godot3).join()
	for range 256 {
		s.core.Message([]byte("x"), true)
	}
	if _, ended := s.core.Ended(); ended {
		t.Fatal("it ended too early")
	}
	for range 10_000 {
		s.core.Message([]byte("x"), false)
	}
	if len(s.core.loose) > 64 || s.core.counts.Drops[DropUnreliable] == 0 {
		t.Errorf("%d unreliable messages wait, at most 64", len(s.core.loose))
	}
	s.core.Message([]byte("x"), true)
	s.ends("more messages than it takes", Slow)
}

// TestBacklogBytes has few messages, of many bytes.
func TestBacklogBytes(t *testing.T) {
	const size, most = 16_000, 5 << 18 // 1.25 MiB
	s := newTalk(t, variant.Godot3).join()
	for range most / (size + 100) {
		s.core.Message(make([]byte, size), true)
	}
	if r, ended := s.core.Ended(); ended {
		t.Fatalf("%q, although %d bytes wait", r, s.core.backlogBytes)
	}
	for range 3 {
		s.core.Message(make([]byte, size), true)
	}
	s.ends("more bytes than it takes", Slow)

	s = newTalk(t, variant.Godot3).join()
	for range 60 {
		s.core.Message(make([]byte, 1000), false)
	}
	if s.core.looseSize > 32<<10 || s.core.looseSize < 30<<10 {
		t.Errorf("%d bytes of unreliable messages wait, at most 32 KiB", s.core.looseSize)
	}
}

// TestStreamIdle has a connection with nothing to do: the client has to confirm that it is there.
func TestStreamIdle(t *testing.T) {
	s := newTalk(t, variant.Godot3).join()
	s.now = s.NextTimeout()
	s.send()
	if len(s.marks) != 1 {
		t.Fatal("no mark after a time without traffic")
	}
	if due := s.NextTimeout(); due.Sub(s.now) > confirmTime {
		t.Errorf("the next turn is in %v", due.Sub(s.now))
	}
	s.now = s.now.Add(confirmTime)
	s.Expire(s.now)
	s.ends("a client that is gone", Slow)
	s.now = s.now.Add(lingerTime)
	if !s.Over(s.now) {
		t.Error("the connection is not closed")
	}
}

// TestJoining has a client that talks before it is connected, and one that is refused.
func TestJoining(t *testing.T) {
	s := newTalk(t, variant.Godot3)
	s.says(hello)
	if s.Receive(s.now, encode(variant.Godot3, list{"msg", "x"})) == 0 {
		t.Error("a message before the client is connected is taken")
	}
	s.core.End(Refused, "")
	s.ends("a login that is refused", Refused)
	if !s.Over(s.now) {
		t.Error("the connection is not closed after bye")
	}
}
