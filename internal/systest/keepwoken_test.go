package systest

import (
	"testing"
	"time"
)

// TestWoken stops the edge of each client in turn for 0.5 to 10 s, so that others take its
// sessions over, and lets it go on: with claims to renew, messages to publish, datagrams that
// came meanwhile, and its timers overdue. Nothing of that is accepted; see fence.
func TestWoken(t *testing.T) {
	const rounds = 8
	var all fenceCounts
	for i := range 3 {
		w := newKeepWorld(t, uint64(1+i*len(keepPlans))) // the plan is that of stops, which this test makes itself
		for _, p := range w.players {
			p.begin()
		}
		w.net.Run(2 * time.Second)
		for round := range rounds {
			p := w.players[round%keepPlayers]
			w.within(5*time.Second, "the client has an edge", func() bool { return p.owner() != nil && w.spare(p.owner()) })
			e, before := p.owner(), w.paused
			d := 500 * time.Millisecond << round
			w.unheard = e
			w.net.Run(200 * time.Millisecond)
			e.pause(min(d, 10*time.Second))
			if w.unheard = nil; w.paused == before {
				t.Fatalf("%s is not stopped", e.name)
			}
			w.net.Run(min(d, 10*time.Second) + time.Second)
		}
		w.heal()
		w.net.Run(keepHeal)
		w.final()
		for _, e := range w.errors {
			t.Error(e)
		}
		if w.fence.seen.woken < rounds/2 {
			t.Errorf("%d sessions of stopped edges were taken over, which shows nothing", w.fence.seen.woken)
		}
		all.add(w.fence.seen)
	}
	t.Log(all)
	if all.claims == 0 || all.repeats == 0 {
		t.Error("no woken edge claimed what it had, or published what waited, which shows nothing about that")
	}
}
