package protocol

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/godot/variant"
)

// equal reports whether a model has the values of a state.
func equal(m *model, s *fakeState) bool {
	got := m.states[m.keys[s.key]]
	if len(got) != s.Len() {
		return false
	}
	for i, v := range s.values {
		var key any = int64(i)
		if name := s.Name(i); name != "" {
			key = name
		}
		if got[key] != int64(v) {
			return false
		}
	}
	return !s.hasText || got[int64(len(s.values))] == s.text
}

// TestLoss changes states, sends messages both ways and has states come and go, while 30 % of all datagrams get lost, others
// come twice or in another order. When it is quiet, the client has all values, and every message once and in order.
func TestLoss(t *testing.T) {
	for d := variant.Godot2; d <= variant.Godot4; d++ {
		for i := range uint64(4) {
			t.Run(fmt.Sprintf("%v-%d", d, *seed+i), func(t *testing.T) { lossy(t, d, *seed+i) })
		}
	}
}

func lossy(t *testing.T, d variant.Dialect, seed uint64) {
	n := newNetwork(t, seed, d, 0.3)
	n.join()
	core := n.channel.core
	r := rand.New(rand.NewPCG(seed, 2))
	states := map[int64]*fakeState{}
	link := func(id int64) {
		s := &fakeState{key: fmt.Sprint("s", id), values: make([]int32, 1+r.IntN(100)), hasText: r.IntN(4) == 0}
		if r.IntN(2) == 0 {
			for i := range s.values {
				s.names = append(s.names, fmt.Sprint("v", i))
			}
		}
		states[id] = s
		core.Linked(n.now, id, s)
	}
	for id := range int64(30) {
		link(id + 1)
	}
	var want, from []string
	next := int64(31)
	for round := range 1000 {
		n.step()
		id := r.Int64N(next-1) + 1
		s := states[id]
		switch {
		case s == nil:
		case round%100 == 99: // a state ends, another comes
			core.Unlinked(n.now, id)
			delete(states, id)
			link(next)
			next++
		case s.hasText && r.IntN(10) == 0:
			s.text = strings.Repeat("x", r.IntN(4000))
			core.Changed(n.now, id, []int{len(s.values)})
		default:
			i := r.IntN(len(s.values))
			s.values[i]++
			core.Changed(n.now, id, []int{i})
		}
		if round%50 == 0 {
			text := strings.Repeat(fmt.Sprint("to", round), 1+r.IntN(500))
			core.Message([]byte(text), true)
			want = append(want, text)
			text = fmt.Sprint("from", round)
			n.waiting = append(n.waiting, list{"msg", []byte(text)})
			from = append(from, text)
		}
	}
	took := n.until(120*time.Second, "the client has everything", func() bool {
		if len(n.model.states) != len(states) || len(n.model.messages) != len(want) || len(n.waiting) > 0 {
			return false
		}
		for _, s := range states {
			if !equal(n.model, s) {
				return false
			}
		}
		return true
	})
	t.Logf("equal %v after the last change", took)
	if !slices.Equal(n.model.messages, want) {
		t.Errorf("the client got %.10q, want %.10q", n.model.messages, want)
	}
	if !slices.Equal(n.client.messages, from) {
		t.Errorf("the edge got %q, want %q", n.client.messages, from)
	}
	core.End(Leaving, "")
	n.until(lingerTime+time.Second, "the channel ends", func() bool { return n.channel.Over(n.now) })
}

// TestLastValueHeals loses the only datagram with a value.
func TestLastValueHeals(t *testing.T) {
	n := newNetwork(t, 1, variant.Godot3, 0)
	n.join()
	s := &fakeState{key: "s", values: make([]int32, 2)}
	n.channel.core.Linked(n.now, 5, s)
	n.until(time.Second, "the state is told", func() bool { return n.channel.core.entries[5].told })
	n.loss = 1
	s.values[1] = 7
	n.channel.core.Changed(n.now, 5, []int{1})
	n.until(time.Second, "the value is sent", func() bool { return n.channel.loose > 0 })
	n.loss = 0
	n.until(time.Second, "the value arrives all the same", func() bool { return equal(n.model, s) })
	before := n.channel.core.counts.Values
	n.until(3*time.Second, "time passes", func() bool { return n.now.After(start.Add(3 * time.Second)) })
	if after := n.channel.core.counts.Values; after != before {
		t.Errorf("a value that arrived was sent %d times more", after-before)
	}
}

// TestOldValueIsNotRepeated has the peer miss a value in order that changes again: it never sees the old one after the new one.
func TestOldValueIsNotRepeated(t *testing.T) {
	n := newNetwork(t, 1, variant.Godot3, 0)
	n.join()
	s := &fakeState{key: "s", values: make([]int32, 1)}
	core := n.channel.core
	core.Linked(n.now, 5, s)
	n.until(time.Second, "the state is told", func() bool { return core.entries[5].told })
	s.values[0] = 1
	core.Changed(n.now, 5, []int{0})
	n.loss = 1
	n.until(time.Second, "the value leaves in order", func() bool { return len(n.channel.sent) == 1 && n.channel.top == 1 })
	s.values[0] = 2
	core.Changed(n.now, 5, []int{0})
	n.loss = 0
	last := int64(0)
	for range 2000 {
		n.step()
		if v := n.model.states[5][int64(0)].(int64); v < last {
			t.Fatalf("the client saw %d after %d", v, last)
		} else {
			last = v
		}
	}
	if last != 2 {
		t.Errorf("the client has %d, want 2", last)
	}
}

// TestSilence ends a session whose client says nothing; a keep-alive of the edge comes before.
func TestSilence(t *testing.T) {
	n := newNetwork(t, 1, variant.Godot3, 0)
	n.join()
	n.silent = true
	sent := n.toPeer
	n.until(silenceTime+time.Second, "the session ends", func() bool { return n.channel.Over(n.now) })
	if r, _ := n.channel.core.Ended(); r != Silent {
		t.Errorf("it ended with %q", r)
	}
	if n.toPeer-sent < 6 || n.toPeer-sent > 8 {
		t.Errorf("%d datagrams in %v of silence, want one each %v", n.toPeer-sent, silenceTime, keepAlive)
	}
}

// TestIdleCosts has a session with nothing to do, which costs what the client asks for.
func TestIdleCosts(t *testing.T) {
	n := newNetwork(t, 1, variant.Godot3, 0)
	n.join()
	n.until(time.Second, "all is acknowledged", func() bool { return len(n.channel.sent) == 0 })
	sent := n.toPeer
	end := n.now.Add(10 * time.Second)
	n.until(11*time.Second, "time passes", func() bool { return n.now.After(end) })
	if n.toPeer-sent > 6 {
		t.Errorf("the edge sent %d datagrams in 10 s with nothing to say", n.toPeer-sent)
	}
}

// TestBusyIsNotAcknowledged has the edge take no message for a while.
func TestBusyIsNotAcknowledged(t *testing.T) {
	n := newNetwork(t, *seed, variant.Godot3, 0.3)
	n.join()
	n.client.busy = true
	n.waiting = append(n.waiting, list{"msg", "one"}, list{"msg", "two"})
	end := n.now.Add(2 * time.Second)
	n.until(3*time.Second, "time passes", func() bool { return n.now.After(end) })
	if len(n.waiting) != 2 {
		t.Errorf("%d messages wait at the client, want 2", len(n.waiting))
	}
	n.client.busy = false
	n.until(10*time.Second, "both arrive", func() bool { return len(n.client.messages) == 2 })
}

// TestSlowPeer has a client that acknowledges nothing that it gets: nothing grows without bound, and the session ends.
func TestSlowPeer(t *testing.T) {
	n := newNetwork(t, 1, variant.Godot3, 0)
	n.join()
	core := n.channel.core
	n.until(time.Second, "all is acknowledged", func() bool { return len(n.channel.sent) == 0 })
	id := int64(1)
	n.received = 0 // what the client acknowledges from now on
	stuck := func() {
		n.received = 0
		core.Linked(n.now, id, &fakeState{key: "s", values: make([]int32, 300)})
		core.Unlinked(n.now, id-20)
		id++
	}
	began := n.now
	n.until(35*time.Second, "the session ends", func() bool {
		stuck()
		waiting := 0
		for x := core.order.head; x != nil; x = x.next {
			waiting++
		}
		if bytes := n.channel.nextSize; bytes > windowMax+DatagramMax || waiting > 200 || len(core.entries) > 21 {
			t.Fatalf("%d bytes on their way, %d messages wait, %d states", bytes, waiting, len(core.entries))
		}
		_, ended := core.Ended()
		return ended
	})
	if r, _ := core.Ended(); r != Slow {
		t.Errorf("it ended with %q", r)
	}
	if took := n.now.Sub(began); took < 29*time.Second || took > 31*time.Second {
		t.Errorf("it ended after %v, want 30 s", took)
	}
}

// TestRate has a client send more than it may: the edge drops it, and goes on.
func TestRate(t *testing.T) {
	n := newNetwork(t, 1, variant.Godot3, 0)
	n.join()
	p := encode(n.dialect, list{n.cookie[:], 0, 0, list{"msg", make([]byte, 1000), false}})
	for range 3000 {
		f, _ := ParseFrame(p)
		n.channel.Receive(n.now, &f)
	}
	if got := len(n.client.loose); got < inBurst/1200 || got > inBurst/1000 {
		t.Errorf("%d messages of 1,000 bytes passed, want those of %d bytes", got, inBurst)
	}
	if drops := n.channel.core.counts.Drops[DropRate]; drops == 0 {
		t.Error("no drop was counted")
	}
}

// TestOvertaken has datagrams without numbers overtake each other on their way to the edge.
func TestOvertaken(t *testing.T) {
	n := newNetwork(t, 1, variant.Godot3, 0)
	n.join()
	for _, c := range []struct {
		number int
		text   string
	}{{-2, "second"}, {-1, "first"}, {-2, "second again"}, {0, "uncounted"}, {-3, "third"}} {
		f, _ := ParseFrame(encode(n.dialect, list{n.cookie[:], 0, c.number, list{"msg", c.text, false}}))
		n.channel.Receive(n.now, &f)
	}
	if want := []string{"second", "uncounted", "third"}; !slices.Equal(n.client.loose, want) {
		t.Errorf("the edge took %q, want %q", n.client.loose, want)
	}
	if n.channel.core.counts.Drops[DropStale] != 2 {
		t.Errorf("the drops are %v", n.channel.core.counts.Drops)
	}
}

// TestOrder has numbered messages come too early, twice, and several in a datagram.
func TestOrder(t *testing.T) {
	n := newNetwork(t, 1, variant.Godot3, 0)
	n.join() // hello was 1
	msg := func(text string) list { return list{"msg", text} }
	for _, c := range []struct {
		frame list
		taken int64
	}{
		{list{3, msg("three")}, 1}, {list{2, msg("two")}, 2}, {list{4, msg("four")}, 2}, {list{2, msg("two"), msg("three"), msg("four")}, 4},
		{list{3, msg("three"), msg("four")}, 4}, {list{5, msg("five"), nil}, 6},
	} {
		f, _ := ParseFrame(encode(n.dialect, append(list{n.cookie[:], 0}, c.frame...)))
		n.channel.Receive(n.now, &f)
		if n.channel.received != c.taken {
			t.Errorf("after %v the edge acknowledges %d, want %d", c.frame, n.channel.received, c.taken)
		}
	}
	if want := []string{"two", "three", "four", "five"}; !slices.Equal(n.client.messages, want) {
		t.Errorf("the edge took %q, want %q", n.client.messages, want)
	}
}

func TestResendAfter(t *testing.T) {
	for _, c := range []struct {
		trip    time.Duration
		backoff int
		want    time.Duration
	}{
		{0, 0, resendFirst}, {0, 1, 2 * resendFirst}, {0, 100, resendMax}, {time.Millisecond, 0, resendMin},
		{100 * time.Millisecond, 0, 200 * time.Millisecond}, {100 * time.Millisecond, 1, 400 * time.Millisecond}, {time.Hour, 0, resendMax},
	} {
		if got := resendAfter(c.trip, c.backoff); got != c.want {
			t.Errorf("resendAfter(%v, %d) = %v, want %v", c.trip, c.backoff, got, c.want)
		}
	}
}
