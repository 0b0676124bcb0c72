package dnp

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"
)

// TestTimerHeapModel compares the heap with a linear search.
func TestTimerHeapModel(t *testing.T) {
	rng := newRand(t)
	var h timerHeap
	timers := make([]timer, 50)
	at := make([]instant, len(timers))
	for i := range at {
		at[i] = never
	}
	for range 20000 {
		i := rng.IntN(len(timers))
		at[i] = instant(rng.IntN(1000))
		if rng.IntN(4) == 0 {
			at[i] = never
		}
		h.set(&timers[i], at[i])
		want := never
		for _, a := range at {
			want = min(want, a)
		}
		for i := range h.h {
			if d := h.h[i]; d.timer.place != int32(i+1) || d.timer.at != d.at {
				t.Fatalf("place %d of %v has the timer of place %d and of %v", i+1, d.at, d.timer.place, d.timer.at)
			}
		}
		for i := 1; i < len(h.h); i++ {
			if h.h[i].at < h.h[(i-1)/2].at {
				t.Fatalf("timer %d is before the one above it", i)
			}
		}
		if got := h.next(); got != want {
			t.Fatalf("next is %d, want %d", got, want)
		}
	}
}

// BenchmarkTimers moves the earliest of 2,000 timers behind the others, as the repeats of states that change all the time do.
func BenchmarkTimers(b *testing.B) {
	var h timerHeap
	timers := make([]timer, 2000)
	for i := range timers {
		h.set(&timers[i], instant(i*7919%2000))
	}
	at := instant(2000)
	for b.Loop() {
		at++
		h.set(h.first(), at)
	}
}

// TestUnprovenTableModel inserts, removes and expires peers at random and compares the
// table with a map.
func TestUnprovenTableModel(t *testing.T) {
	rng := newRand(t)
	table := newUnprovenTable(&Config{Listen: true, UnprovenMax: 40, Probe: ProbePing})
	addr := func(i int) netip.AddrPort {
		var ip [4]byte
		binary.BigEndian.PutUint32(ip[:], uint32(i))
		return netip.AddrPortFrom(netip.AddrFrom4(ip), 1)
	}
	created := map[int]instant{}
	now := instant(0)
	for range 20000 {
		now += instant(rng.IntN(50)) * instant(time.Millisecond)
		i := rng.IntN(60)
		u := table.find(addr(i))
		if _, known := created[i]; known != (u != nil) {
			t.Fatalf("peer %d known: %v, in the twin %v", i, u != nil, known)
		}
		switch {
		case u != nil && rng.IntN(2) == 0:
			table.remove(u)
			delete(created, i)
		case u == nil && len(created) < 40:
			table.insert(addr(i), now)
			created[i] = now
		}
		for u, last := table.nextDue(now); u != nil; u, last = table.nextDue(now) {
			if !last {
				continue
			}
			b := u.addr.Addr().As4()
			id := int(binary.BigEndian.Uint32(b[:]))
			if age := now.sub(created[id]); age < unprovenLife {
				t.Fatalf("peer %d ends after %v", id, age)
			}
			table.remove(u)
			delete(created, id)
		}
		for id, at := range created {
			if now.sub(at) >= unprovenLife {
				t.Fatalf("peer %d is %v old", id, now.sub(at))
			}
		}
	}
}

func TestOfferBetweenChanges(t *testing.T) {
	s, src := linked(t, quiet(), true, "uint8")
	src2 := s.source("uint8")
	s.c.Link(src2, true)
	set(src2, 0, "01")
	s.pump()
	s.want("the offer has the change", "05 0100 0180 01 0100 4d 0100 01 01")
	set(src2, 0, "02")
	s.flush()
	s.recv("06 0100 00", "07 0180")
	s.flush()
	s.want("a change of the same version came after the offer", "09 01 0180 01 0000 02")
	_ = src
}

// TestSourceLinks links and unlinks at random and checks both lists against each other.
func TestSourceLinks(t *testing.T) {
	rng := newRand(t)
	c := newCrowd(t, 8, 8, "uint8")
	for range 2000 {
		conn, src := c.e.conns[rng.IntN(8)], c.sources[rng.IntN(8)]
		if conn.Link(src, true) == ErrLinked {
			conn.Unlink(src, false)
		}
		for _, src := range c.sources {
			for i, r := range src.links {
				if l := c.e.conns[r.conn].links.slots[r.slot]; l.source != src.handle || int(l.ref) != i {
					t.Fatalf("place %d of a source: link of source %d, place %d", i, l.source, l.ref)
				}
			}
		}
	}
}
