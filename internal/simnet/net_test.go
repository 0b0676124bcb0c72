package simnet

import (
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"
)

var seed = flag.Uint64("seed", uint64(time.Now().UnixNano()), "seed of random tests")

var (
	a = netip.MustParseAddrPort("10.0.0.1:1")
	b = netip.MustParseAddrPort("[fd00::2]:2")
)

// A probe records the datagrams that it receives, and calls work at the deadline.
type probe struct {
	got      []string
	at       []time.Duration
	deadline time.Time
	work     func(now time.Time)
}

func (p *probe) Receive(now time.Time, from netip.AddrPort, data []byte) {
	p.got = append(p.got, string(data))
	p.at = append(p.at, now.Sub(Epoch))
}

func (p *probe) Advance(now time.Time) {
	p.deadline = time.Time{}
	if p.work != nil {
		p.work(now)
	}
}

func (p *probe) NextTimeout() (time.Time, bool) { return p.deadline, !p.deadline.IsZero() }

func TestDelay(t *testing.T) {
	n, p := New(1), &probe{}
	n.Attach(b, p)
	n.SetPath(Path{Delay: 20 * time.Millisecond})
	buf := []byte("one")
	n.Send(a, b, buf)
	copy(buf, "xxx") // Send copies
	n.Run(19 * time.Millisecond)
	if len(p.got) != 0 {
		t.Fatalf("got %q after 19 ms of 20", p.got)
	}
	n.Send(a, b, []byte("two"))
	n.Run(time.Second)
	if !slices.Equal(p.got, []string{"one", "two"}) || p.at[0] != 20*time.Millisecond || p.at[1] != 39*time.Millisecond {
		t.Fatalf("got %q at %v", p.got, p.at)
	}
	if n.Elapsed() != 1019*time.Millisecond {
		t.Errorf("the time is %v; Run must let all of it pass", n.Elapsed())
	}
}

func TestPartition(t *testing.T) {
	n, p, q := New(1), &probe{}, &probe{}
	n.Attach(a, q)
	n.Attach(b, p)
	n.Partition(a, b, true)
	n.Send(a, b, []byte("1"))
	n.Send(b, a, []byte("1"))
	n.cuts[pair{a, b}] = false
	n.Send(a, b, []byte("2"))
	n.Send(b, a, []byte("2"))
	n.Partition(a, b, false)
	n.Send(b, a, []byte("3"))
	n.Run(time.Second)
	if !slices.Equal(p.got, []string{"2"}) || !slices.Equal(q.got, []string{"3"}) {
		t.Errorf("b got %q, a got %q", p.got, q.got)
	}
}

func TestDeadline(t *testing.T) {
	n, p := New(1), &probe{deadline: Epoch.Add(time.Second)}
	var fired []time.Duration
	p.work = func(now time.Time) {
		fired = append(fired, now.Sub(Epoch))
		if len(fired) < 3 {
			p.deadline = now.Add(time.Second)
		}
	}
	n.Attach(b, p)
	n.Schedule(500*time.Millisecond, func() { // an earlier deadline replaces the other
		p.deadline = Epoch.Add(600 * time.Millisecond)
		n.Wake(b)
	})
	n.Run(time.Minute)
	if want := fmt.Sprint([]time.Duration{600 * time.Millisecond, 1600 * time.Millisecond, 2600 * time.Millisecond}); fmt.Sprint(fired) != want {
		t.Errorf("fired at %v, want %s", fired, want)
	}
}

func TestSpinningNodePanics(t *testing.T) {
	n, p := New(1), &probe{deadline: Epoch}
	p.work = func(now time.Time) { p.deadline = now }
	n.Attach(b, p)
	defer func() {
		if recover() == nil {
			t.Error("a node that is due for ever was not found")
		}
	}()
	n.Run(time.Second)
}

func TestDetach(t *testing.T) {
	n, p := New(1), &probe{deadline: Epoch.Add(time.Second)}
	p.work = func(time.Time) { t.Error("a dead node was called") }
	n.Attach(b, p)
	n.SetPath(Path{Delay: time.Millisecond})
	n.Send(a, b, []byte("1"))
	n.Detach(b)
	n.Run(time.Minute)
	if len(p.got) != 0 || n.Stats().Nowhere != 1 {
		t.Errorf("got %q, %+v", p.got, n.Stats())
	}
}

// TestFates sends many numbered datagrams over a bad path and compares the counts of
// lost, doubled and damaged ones with the probabilities of the path.
func TestFates(t *testing.T) {
	t.Logf("repeat with -seed=%d", *seed)
	n, p := New(*seed), &probe{}
	n.Attach(b, p)
	n.SetPath(Path{Loss: 0.3, Delay: 5 * time.Millisecond, Jitter: 50 * time.Millisecond, Duplicate: 0.1, Corrupt: 0.05})
	const total = 20000
	for i := range total {
		n.Schedule(time.Duration(i)*time.Millisecond, func() { n.Send(a, b, binary.BigEndian.AppendUint64(nil, uint64(i))) })
	}
	n.Run(time.Minute)
	s := n.Stats()
	within(t, "lost", s.Lost, total*3/10)
	within(t, "duplicated", s.Duplicated, total*7/100)
	if s.Delivered != s.Sent-s.Lost+s.Duplicated {
		t.Errorf("counts do not add up: %+v", s)
	}
	late, bad := 0, 0
	for i := range p.got {
		v := binary.BigEndian.Uint64([]byte(p.got[i]))
		if v >= total {
			bad++
		} else if i > 0 && p.got[i] < p.got[i-1] {
			late++
		}
	}
	within(t, "reordered", late, s.Delivered*45/100)
	if bad == 0 {
		t.Error("nothing was damaged")
	}
}

func within(t *testing.T, what string, got, want int) {
	t.Helper()
	if got < want*8/10 || got > want*12/10 {
		t.Errorf("%s: %d, want about %d", what, got, want)
	}
}

// TestSameSeed runs a chatty network twice and once with another seed.
func TestSameSeed(t *testing.T) {
	run := func(seed uint64) (uint64, Stats) {
		n := New(seed)
		n.SetPath(Path{Loss: 0.1, Jitter: 30 * time.Millisecond, Duplicate: 0.05, Corrupt: 0.01})
		for i, addr := range []netip.AddrPort{a, b} {
			other := []netip.AddrPort{b, a}[i]
			p := &probe{deadline: Epoch}
			p.work = func(now time.Time) {
				n.Send(addr, other, []byte{byte(len(p.got))})
				p.deadline = now.Add(time.Duration(1+n.Rand().IntN(10)) * time.Millisecond)
			}
			n.Attach(addr, p)
		}
		n.Run(10 * time.Second)
		return n.Hash(), n.Stats()
	}
	h1, s1 := run(*seed)
	h2, s2 := run(*seed)
	h3, _ := run(*seed + 1)
	if h1 != h2 || s1 != s2 {
		t.Errorf("same seed, other trace: %x %+v, %x %+v", h1, s1, h2, s2)
	}
	if h1 == h3 {
		t.Error("another seed, same trace")
	}
	if s1.Delivered < 1000 {
		t.Errorf("hardly anything happened: %+v", s1)
	}
}

func TestEvery(t *testing.T) {
	n, count := New(1), 0
	n.Every(10*time.Millisecond, func() bool { count++; return count < 5 })
	n.Run(time.Second)
	if count != 5 {
		t.Errorf("%d calls, want 5", count)
	}
}

// TestSameTime: events of the same time happen in the order in which they were
// scheduled.
func TestSameTime(t *testing.T) {
	n, got := New(1), []int(nil)
	for i := range 20 {
		n.Schedule(time.Second, func() { got = append(got, i) })
	}
	n.Run(time.Minute)
	if len(got) != 20 || !slices.IsSorted(got) {
		t.Errorf("order %v", got)
	}
}

// TestQueueModel compares the queue with sorting.
func TestQueueModel(t *testing.T) {
	t.Logf("repeat with -seed=%d", *seed)
	rng := rand.New(rand.NewPCG(*seed, 1))
	q := New(1).queue
	var want []*event
	for i := range 2000 {
		e := &event{at: time.Duration(rng.IntN(100)), order: uint64(i)}
		q.Set(e)
		want = append(want, e)
	}
	slices.SortFunc(want, func(x, y *event) int {
		if x.before(y) {
			return -1
		}
		return 1
	})
	for i, w := range want {
		if e := q.Pop(); e != w {
			t.Fatalf("element %d is %v/%d, want %v/%d", i, e.at, e.order, w.at, w.order)
		}
	}
}

func TestBottleneck(t *testing.T) {
	n, p := New(1), &probe{}
	n.Attach(b, p)
	n.SetPath(Path{Delay: 5 * time.Millisecond, Rate: 10_000, Queue: 20 * time.Millisecond})
	for range 5 {
		n.Send(a, b, make([]byte, 100-headers)) // 10 ms each
	}
	if d := n.Backlog(a, b); d != 30*time.Millisecond {
		t.Errorf("the queue takes %v, want 30 ms: two wait, and the fourth would wait for longer than 20 ms", d)
	}
	n.Run(time.Second)
	if want := fmt.Sprint([]time.Duration{15 * time.Millisecond, 25 * time.Millisecond, 35 * time.Millisecond}); fmt.Sprint(p.at) != want || n.Stats().Lost != 2 {
		t.Errorf("arrived at %v, %d lost, want %s and 2", p.at, n.Stats().Lost, want)
	}
	if d := n.Backlog(b, a); d != 0 {
		t.Errorf("the other way has a backlog of %v", d)
	}
}
