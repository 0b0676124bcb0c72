package memlog_test

import (
	"flag"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/sessionlog/logtest"
	"github.com/dnprelay/dnprelay/sessionlog/memlog"
)

var seed = flag.Uint64("seed", 1, "seed of the faults")

// A world is simulated time.
type world struct {
	now    time.Duration
	events []event // by time
}

type event struct {
	at time.Duration
	f  func()
}

func (w *world) schedule(delay time.Duration, f func()) {
	at := w.now + delay
	i, _ := slices.BinarySearchFunc(w.events, at, func(e event, at time.Duration) int {
		if e.at <= at {
			return -1
		}
		return 1
	})
	w.events = slices.Insert(w.events, i, event{at, f})
}

func (w *world) step() bool {
	if len(w.events) == 0 {
		return false
	}
	e := w.events[0]
	w.events = w.events[1:]
	w.now = e.at
	e.f()
	return true
}

func TestConformance(t *testing.T) {
	logtest.Run(t, func(t *testing.T) *logtest.Store {
		t.Logf("-seed %d", *seed)
		w := &world{}
		s := memlog.New(memlog.Config{Schedule: w.schedule, Rand: rand.New(rand.NewPCG(*seed, 0))})
		return &logtest.Store{
			A: s, B: s, Hasty: s, Step: w.step,
			Trouble: func(k int) {
				s.Lost, s.Late, s.Busy, s.Old = 0.2, 0.1, 0.2, 0.2
				s.SetSilent(k%10 == 5)
				if k%10 == 5 {
					w.schedule(5*time.Second, func() { s.SetSilent(false) })
				}
			},
			Peace: func() { s.Lost, s.Late, s.Busy, s.Old = 0, 0, 0, 0 },
		}
	})
}
