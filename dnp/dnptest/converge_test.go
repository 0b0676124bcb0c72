package dnptest_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/internal/simnet"
)

// TestConverge measures the bar of DESIGN.md section 12: at 30 % loss with
// reordering at least 99.9 % of the links show the server's values one second
// after the last change, and all of them after six.
func TestConverge(t *testing.T) {
	runs := 5
	if testing.Short() {
		runs = 1
	}
	for run := range runs {
		t.Run(fmt.Sprintf("seed=%d", *seed+uint64(run)), func(t *testing.T) { converge(t, *seed+uint64(run)) })
	}
}

const (
	convergeStates  = 100
	convergePlayers = 20
)

func converge(t *testing.T, seed uint64) {
	w := newWorld(t, seed, simnet.Path{Loss: 0.3, Delay: 10 * time.Millisecond, Jitter: 60 * time.Millisecond}, dnp.Config{})
	names := make([]string, convergeStates)
	for i := range names {
		names[i] = fmt.Sprintf("state%d", i)
		w.server.addSource(names[i])
	}
	presets := []dnptest.Behaviour{dnptest.Cpp(), dnptest.Java(), dnptest.Python(), dnptest.Engine()}
	for i := range convergePlayers {
		w.addPlayer(presets[i%len(presets)]).start(0)
	}
	w.net.Run(40 * time.Second) // every link up
	n := uint32(0)
	w.net.Every(50*time.Millisecond, func() bool { // 20 Hz
		for i, src := range w.server.sources {
			n++
			change(src, i%3, n)
		}
		w.net.Wake(serverAddr)
		return n < 100*convergeStates
	})
	w.net.Run(99 * 50 * time.Millisecond)
	last := w.net.Elapsed()
	sent := w.net.Stats().Bytes
	total := 0
	var shares [7]float64
	for s := 1; s <= 6; s++ {
		w.net.Run(last + time.Duration(s)*time.Second - w.net.Elapsed())
		all, bad := unequal(w, names)
		total = all
		shares[s] = 100 * float64(all-bad) / float64(all)
	}
	t.Logf("%d links; equal after 1 s %.2f %%, 2 s %.2f %%, 3 s %.2f %%, 6 s %.2f %%; %d bytes in the 6 s",
		total, shares[1], shares[2], shares[3], shares[6], w.net.Stats().Bytes-sent)
	if total < convergeStates*convergePlayers*8/10 {
		t.Errorf("only %d of %d links came up", total, convergeStates*convergePlayers)
	}
	if shares[1] < 99.9 {
		t.Errorf("%.3f %% of the links are equal after 1 s, want 99.9 %%", shares[1])
	}
	if shares[6] < 100 {
		t.Errorf("%.3f %% of the links are equal after 6 s, want all", shares[6])
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
