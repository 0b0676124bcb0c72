package quorumlog_test

import (
	"encoding/binary"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/simnet"
	"github.com/dnprelay/dnprelay/sessionlog"
	"github.com/dnprelay/dnprelay/sessionlog/logtest"
	"github.com/dnprelay/dnprelay/sessionlog/memlog"
	"github.com/dnprelay/dnprelay/sessionlog/quorumlog"
)

// TestConformance holds three copies in memory to the suite of a single log.
func TestConformance(t *testing.T) {
	for s := *first; s < *first+10; s++ {
		logtest.Run(t, func(t *testing.T) *logtest.Fixture { return inMemory(t, s) })
	}
}

// inMemory returns logs of three edges over three copies.
func inMemory(t *testing.T, seed uint64) *logtest.Fixture {
	t.Logf("-first %d", seed)
	net := simnet.New(seed)
	var stores [three]*memlog.Store
	for c := range stores {
		stores[c] = memlog.New(memlog.Config{Schedule: net.Schedule, Rand: rand.New(rand.NewPCG(seed, uint64(c)))})
	}
	edge := func(n uint64) sessionlog.Log {
		cfg := quorumlog.Config{Now: net.Now, After: net.Schedule, Seed: new([32]byte)}
		binary.LittleEndian.PutUint64(cfg.Seed[:], seed)
		binary.LittleEndian.PutUint64(cfg.Seed[8:], n)
		for c := range stores {
			cfg.Copies[c] = stores[c]
		}
		return quorumlog.New(cfg)
	}
	return &logtest.Fixture{
		A: edge(1), B: edge(2), Hasty: edge(3), Step: net.Step,
		Trouble: func(k int) {
			for c, s := range stores {
				s.Lost, s.Late, s.Busy = 0.1, 0.05, 0.1
				s.SetSilent(k%10 == 5 && c != k/10%three)
			}
			if k%10 == 5 {
				net.Schedule(5*time.Second, func() {
					for _, s := range stores {
						s.SetSilent(false)
					}
				})
			}
		},
		Peace: func() {
			for _, s := range stores {
				s.Lost, s.Late, s.Busy = 0, 0, 0
			}
		},
	}
}
