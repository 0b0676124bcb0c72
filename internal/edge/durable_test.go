package edge

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/cluster"
)

const hopePatience = 5 * time.Second // of takeover.Hope

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
		{"it is the only one", ready, hopePatience + closeTime},
		{"the other one leaves, too", with(cluster.PhaseDraining), hopePatience + closeTime},
		{"another one begins", with(cluster.PhaseStarting), timeout},
		{"another one works, but takes nothing", with(cluster.PhaseReady), timeout},
	} {
		synctest.Test(t, func(t *testing.T) {
			l := newLeaver(t)
			l.edge.cfg.Durable.DrainTimeout = timeout
			if c.roster != nil {
				l.roster(c.roster)
			}
			l.worker.durable.Store(1)
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
		l := newLeaver(t)
		l.join()
		given := map[string]int{}
		for _, node := range []string{"e2", "e3"} {
			_, err := l.other.Subscribe(l.edge.cfg.Subjects.Edge(node), func(m bus.Msg) {
				answer := answerDone
				if strings.Contains(string(m.Data), "adopt") {
					given[node]++
				} else if node == "e2" {
					answer = answerRefused
				}
				_ = l.other.Publish(bus.Msg{Subject: m.Reply, Data: answer})
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		l.roster(map[string]cluster.Phase{"e1": cluster.PhaseReady})
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
		if given["e2"] != 0 || given["e3"] != 1 {
			t.Errorf("sessions were given to %v, want one to e3, which is prepared", given)
		}
		if n := l.worker.Counts().Durable.SessionsHanded; n != 1 {
			t.Errorf("%d sessions were handed over", n)
		}
	})
}
