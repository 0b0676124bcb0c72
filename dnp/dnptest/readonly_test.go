package dnptest_test

import (
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/simnet"
)

// TestReadOnlyWrites: no library keeps its application from writing to a read-only link, and none
// shows the true value again by itself. The server sends it at once, and once.
func TestReadOnlyWrites(t *testing.T) {
	for _, b := range dnptest.Presets() {
		if b.EnforcesReadOnly {
			continue
		}
		t.Run(b.Name, func(t *testing.T) {
			w := newWorld(t, *seed, simnet.Path{Delay: 10 * time.Millisecond}, dnp.Config{ScrubInterval: -1})
			src := w.server.addSource("s")
			change(src, 1, 7)
			p := w.addPlayer(b)
			p.start(0)
			w.net.Run(3 * time.Second) // behind the repeats of what changed
			sent := 0
			w.server.lose = func(d []byte) bool {
				if d[0] == byte(wire.CommandLinkUpdate) {
					sent++
				}
				return false
			}
			for i := range 3 {
				p.Set(p.LinkNamed("s"), i, []byte{9, 9, 9, 9})
				w.net.Wake(p.addr)
				w.net.Run(100 * time.Millisecond)
				if !p.equal(src, "s") {
					t.Fatalf("100 ms after a write to a read-only link the client shows % x as value %d, want % x", p.Value("s", i), i, src.State().Value(i))
				}
			}
			w.net.Run(4 * time.Second)
			if sent != 3 {
				t.Errorf("the server corrects 3 writes with %d LinkUpdates, want one for each", sent)
			}
		})
	}
}
