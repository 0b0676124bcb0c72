package systest

import (
	"fmt"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/edge"
	"github.com/dnprelay/dnprelay/internal/simnet"
)

// TestJoinWhileChanging lets a client be offered states that change faster than the
// edge flushes. What changed between the offer and the flush must come with the flush,
// and not with the first repetition, 60 ms later.
func TestJoinWhileChanging(t *testing.T) { repeated(t, 10, joinWhileChanging) }

func joinWhileChanging(t *testing.T, seed uint64) {
	const states, flush = 20, 200 * time.Millisecond
	w := newWorld(t, seed)
	w.startRelay()
	e := w.startEdge(wire.Denetwork, func(c *edge.Config) { c.Flush = flush })
	p := w.connect(e, dnptest.Cpp(), dnptest.App{})
	w.net.SetDefault(simnet.Path{Delay: 20 * time.Millisecond})
	value := 0
	change := func() {
		value++
		for i := range states {
			w.fire("s", fmt.Sprintf(`{"op":"put","key":"k%d","values":[{"type":"uint16","value":%d}]}`, i, value))
		}
		w.net.Run(15 * time.Millisecond)
	}
	for len(p.Links()) < states && value < 100 {
		change()
	}
	change()
	flushed := func() (any bool) {
		for i := range states {
			any = any || p.has(fmt.Sprintf("k%d", i), 0, u16(uint16(value)))
		}
		return any
	}
	w.within(flush+100*time.Millisecond, "some value arrives", flushed)
	w.net.Run(p.Behaviour().Tick)
	for i := range states {
		if key := fmt.Sprintf("k%d", i); !p.has(key, 0, u16(uint16(value))) {
			t.Fatalf("%s is % x, want %d with the flush", key, p.Value(key, 0), value)
		}
	}
}
