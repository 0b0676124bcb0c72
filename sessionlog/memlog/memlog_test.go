package memlog

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/simnet"
	"github.com/dnprelay/dnprelay/sessionlog/logtest"
)

var seed = flag.Uint64("seed", 1, "seed of the faults")

// TestConformance holds the log of simulations to the suite of the real one.
func TestConformance(t *testing.T) {
	logtest.Run(t, func(t *testing.T) *logtest.Fixture {
		t.Logf("-seed %d", *seed)
		net := simnet.New(*seed)
		s := New(Config{Schedule: net.Schedule, Rand: rand.New(rand.NewPCG(*seed, 0))})
		return &logtest.Fixture{
			A: s, B: s, Hasty: s, Step: net.Step,
			Trouble: func(k int) {
				s.Lost, s.Late, s.Busy, s.Old = 0.2, 0.1, 0.2, 0.2
				s.SetSilent(k%10 == 5)
				if k%10 == 5 {
					net.Schedule(5*time.Second, func() { s.SetSilent(false) })
				}
			},
			Peace: func() { s.Lost, s.Late, s.Busy, s.Old = 0, 0, 0, 0 },
		}
	})
}
