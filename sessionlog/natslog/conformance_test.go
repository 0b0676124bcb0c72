package natslog

import (
	"fmt"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/natstest"
	"github.com/dnprelay/dnprelay/sessionlog/logtest"
)

func TestConformance(t *testing.T) {
	c := natstest.Start(t, 1)
	logtest.Run(t, func(t *testing.T) *logtest.Fixture { return store(t, c) })
}

// TestConformanceCopies holds each copy to the same suite.
func TestConformanceCopies(t *testing.T) {
	c := natstest.Start(t, 3)
	for i := range Copies {
		t.Run(fmt.Sprintf("C%d", i+1), func(t *testing.T) {
			logtest.Run(t, func(t *testing.T) *logtest.Fixture { return storeOfCopy(t, c, i+1) })
		})
	}
}

// storeOfCopy returns three logs over a copy. The connection of the hasty one can be disturbed.
func storeOfCopy(t *testing.T, c *natstest.Cluster, copy int) *logtest.Fixture {
	server := copy - 1
	p := natstest.NewProxy(t, c, server)
	cfg := Config{Conn: p.Connect(t, c), Copy: copy, Shards: 4, Streams: 2, Timeout: 200 * time.Millisecond}
	hasty := openCopy(t, cfg)
	cfg.Timeout, cfg.Conn = patience/2, c.Connect(t)
	a := openCopy(t, cfg)
	return &logtest.Fixture{
		A: a, B: openCopy(t, cfg), Hasty: hasty,
		Trouble: func(k int) {
			p.SetDeaf(k%12 == 3)
			switch {
			case k%12 == 7:
				p.Cut()
			case k%12 == 3:
				time.AfterFunc(300*time.Millisecond, func() { p.SetDeaf(false) })
			case k == 25:
				c.Stop(server)
				c.Restart(t, server)
			}
		},
		Peace: func() { p.SetDeaf(false) },
	}
}

// store returns three logs over c. The connection of the hasty one can be disturbed.
func store(t *testing.T, c *natstest.Cluster) *logtest.Fixture {
	p := natstest.NewProxy(t, c)
	cfg := Config{Conn: p.Connect(t, c), Shards: 4, Streams: 2, Timeout: 200 * time.Millisecond}
	hasty := open(t, cfg)
	cfg.Timeout = patience / 2
	cfg.Conn = c.Connect(t)
	a := open(t, cfg)
	cfg.Conn = c.Connect(t)
	b := open(t, cfg)
	return &logtest.Fixture{
		A: a, B: b, Hasty: hasty,
		Trouble: func(k int) {
			p.SetDeaf(k%12 == 3) // until the next write
			switch {
			case k%12 == 7:
				p.Cut()
			case k%12 == 3: // one answer is lost, and those to reads until SetDeaf ends
				time.AfterFunc(300*time.Millisecond, func() { p.SetDeaf(false) })
			case k == 25:
				c.Stop(0)
				c.Restart(t, 0)
			}
		},
		Peace: func() { p.SetDeaf(false) },
	}
}
