package dnptest_test

import (
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/simnet"
)

// TestNoData: a data value without bytes ends a game of the engine, so no client is sent one,
// however the value came into the state: an owner set it, another client wrote it, or the client
// itself offered it.
func TestNoData(t *testing.T) {
	empty, substitute := []byte{0, 0}, wire.TypeData.Zero()
	w := newWorld(t, *seed, simnet.Path{Delay: 10 * time.Millisecond}, dnp.Config{})
	src := w.server.e.NewSource(dnp.SourceConfig{State: newState(t, wire.TypeData, wire.TypeString, wire.TypeData), Message: []byte("s")})
	w.server.sources, w.server.writable = []*dnp.Source{src}, true
	src.State().Set(0, empty)
	shows := func(why string, p *player, name string, i int, want []byte) {
		t.Helper()
		w.net.Run(8 * time.Second) // two rounds of the scrub
		if got := p.Value(name, i); p.Phase() != dnptest.Connected || string(got) != string(want) {
			t.Fatalf("%s: %s is %v (%s) and shows % x, want % x", why, p.Behaviour().Name, p.Phase(), p.Reason(), got, want)
		}
	}
	engine := w.addPlayer(dnptest.Engine())
	engine.start(0)
	shows("an offer", engine, "s", 0, substitute)
	shows("a string may be empty", engine, "s", 1, empty)

	src.State().Set(2, []byte{1, 0, 7})
	src.Changed(2)
	shows("a change", engine, "s", 2, []byte{1, 0, 7})
	src.State().Set(2, empty)
	src.Changed(2)
	shows("a change to no bytes", engine, "s", 2, substitute)

	cpp := w.addPlayer(dnptest.Cpp())
	cpp.start(0)
	shows("an offer", cpp, "s", 2, substitute)
	cpp.Set(cpp.LinkNamed("s"), 2, []byte{1, 0, 8})
	w.net.Wake(cpp.addr)
	shows("a client's write", engine, "s", 2, []byte{1, 0, 8})
	cpp.Set(cpp.LinkNamed("s"), 2, empty)
	w.net.Wake(cpp.addr)
	shows("a client's write of no bytes", engine, "s", 2, substitute)
	shows("the writer sees what all see", cpp, "s", 2, substitute)

	own := newState(t, wire.TypeData)
	own.Set(0, empty)
	if _, err := engine.Offer(w.net.Now(), own, []byte("mine"), false); err != nil {
		t.Fatal(err)
	}
	w.net.Wake(engine.addr)
	w.net.Run(time.Second)
	mine := engine.remote().own
	mine.Changed(0)
	w.net.Wake(serverAddr)
	shows("its own state", engine, "mine", 0, substitute)
}
