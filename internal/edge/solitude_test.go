package edge

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/simnet"
)

// TestSolitude: an edge that leaves waits for others that begin, for a while for others that
// may come back, and not at all where nobody can come.
func TestSolitude(t *testing.T) {
	var s solitude
	want := func(why string, at time.Duration, gossips, company, hopeless bool) {
		t.Helper()
		if got := s.hopeless(simnet.Epoch.Add(at), gossips, company); got != hopeless {
			t.Errorf("%s: hopeless is %v", why, got)
		}
	}
	want("there is another edge", 0, true, true, false)
	want("it is gone", time.Second, true, false, false)
	want("for almost too long", time.Second+alonePatience-time.Millisecond, true, false, false)
	want("it is back", time.Second+alonePatience, true, true, false)
	want("it is gone again", time.Minute, true, false, false)
	want("not for long", time.Minute+alonePatience-time.Millisecond, true, false, false)
	want("for too long", time.Minute+alonePatience, true, false, true)
	s = solitude{}
	want("nobody says who is there", 0, false, false, true)
}

// TestDrainAlone: how long an edge with a session that nobody takes goes on.
func TestDrainAlone(t *testing.T) {
	const timeout = 55 * time.Second
	ready := map[string]cluster.Phase{"e1": cluster.PhaseReady}
	with := func(phase cluster.Phase) map[string]cluster.Phase {
		return map[string]cluster.Phase{"e1": cluster.PhaseReady, "e2": phase}
	}
	for _, c := range []struct {
		why    string
		roster map[string]cluster.Phase
		after  time.Duration
	}{
		{"nobody says who is there", nil, closeTime},
		{"it is the only one", ready, alonePatience + closeTime},
		{"the other one leaves, too", with(cluster.PhaseDraining), alonePatience + closeTime},
		{"another one begins", with(cluster.PhaseStarting), timeout},
		{"another one works, but takes nothing", with(cluster.PhaseReady), timeout},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLeaver(t)
			l.edge.cfg.Durable.DrainTimeout = timeout
			if c.roster != nil {
				l.roster(c.roster)
			}
			l.worker.keeper.count.Store(1)
			start := time.Now()
			l.edge.drain()
			if took := time.Since(start); took < c.after || took > c.after+time.Second {
				t.Errorf("%s: it ends after %v, want %v", c.why, took, c.after)
			}
		})
	}
}

// TestDrainComeback: an edge that was being restarted when the other one was told to leave
// gets its sessions.
func TestDrainComeback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, first, second := newDrained(t)
		l.roster(map[string]cluster.Phase{"e1": cluster.PhaseReady})
		first.prepares = false
		ended := make(chan struct{})
		go func() { l.edge.drain(); close(ended) }()
		for i := range 1000 {
			time.Sleep(10 * time.Millisecond) // of the bubble
			switch i {
			case 300:
				l.roster(map[string]cluster.Phase{"e1": cluster.PhaseReady, "e2": cluster.PhaseStarting, "e3": cluster.PhaseStarting})
			case 800:
				l.roster(map[string]cluster.Phase{"e1": cluster.PhaseReady, "e2": cluster.PhaseReady, "e3": cluster.PhaseReady})
			}
			l.pass(10 * time.Millisecond)
		}
		<-ended
		l.drained("the one that is prepared gets it", first, second, 0, 1)
		if n := l.worker.counts.SessionsHanded; n != 1 {
			t.Errorf("%d sessions were handed over", n)
		}
	})
}
