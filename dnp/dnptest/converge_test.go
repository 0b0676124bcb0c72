package dnptest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/internal/simnet"
)

// TestConverge: at 30 % loss with reordering at least 99.9 % of the links show the
// server's values one second after the last change, and all of them after six.
func TestConverge(t *testing.T) {
	runs := 3
	if testing.Short() {
		runs = 1
	}
	for _, crowd := range []struct{ states, players int }{{100, 20}, {3, 200}} {
		for run := range runs {
			name := fmt.Sprintf("states=%d,players=%d,seed=%d", crowd.states, crowd.players, *seed+uint64(run))
			t.Run(name, func(t *testing.T) { converge(t, *seed+uint64(run), crowd.states, crowd.players) })
		}
	}
}

func converge(t *testing.T, seed uint64, states, players int) {
	w := newWorld(t, seed, simnet.Path{Loss: 0.3, Delay: 10 * time.Millisecond, Jitter: 60 * time.Millisecond}, dnp.Config{})
	names := make([]string, states)
	for i := range names {
		names[i] = fmt.Sprintf("state%d", i)
		w.server.addSource(names[i])
	}
	presets := []dnptest.Behaviour{dnptest.Cpp(), dnptest.Java(), dnptest.Python(), dnptest.Engine()}
	for i := range players {
		w.addPlayer(presets[i%len(presets)]).start(0)
	}
	w.net.Run(40 * time.Second) // all links come up
	n := uint32(0)
	w.net.Every(50*time.Millisecond, func() bool { // 20 Hz
		for i, src := range w.server.sources {
			n++
			change(src, i%3, n)
		}
		w.net.Wake(serverAddr)
		return n < uint32(100*states)
	})
	w.net.Run(99 * 50 * time.Millisecond)
	last := w.net.Elapsed()
	sent := w.net.Stats().Bytes
	var wrong [7]int
	total := 0
	for s := 1; s <= 6; s++ {
		w.net.Run(last + time.Duration(s)*time.Second - w.net.Elapsed())
		total, wrong[s] = unequal(w, names)
	}
	share := func(s int) float64 { return 100 * float64(total-wrong[s]) / float64(total) }
	t.Logf("%d links; equal after 1 s %.2f %%, 2 s %.2f %%, 3 s %.2f %%, 6 s %.2f %%; %d bytes in the 6 s",
		total, share(1), share(2), share(3), share(6), w.net.Stats().Bytes-sent)
	if total < states*players*6/10 {
		t.Errorf("only %d of %d links came up", total, states*players)
	}
	if wrong[1] > max(1, total/1000) { // with fewer links than 1,000 one may be wrong
		t.Errorf("%.3f %% of the links are equal after 1 s, want 99.9 %%", share(1))
	}
	if wrong[6] > 0 {
		t.Errorf("%.3f %% of the links are equal after 6 s, want all", share(6))
	}
}

// unequal counts the links of connected players, and those that differ.
func unequal(w *world, names []string) (all, bad int) {
	for _, p := range w.players {
		if p.ended() || p.remote() == nil {
			continue
		}
		for i, src := range w.server.sources {
			if p.LinkNamed(names[i]) == nil {
				continue
			}
			all++
			if !p.equal(src, names[i]) {
				bad++
			}
		}
	}
	return all, bad
}
