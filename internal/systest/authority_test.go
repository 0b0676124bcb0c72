package systest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/simnet"
)

// TestAuthority has a client and a game server change the same values over networks of all kinds. A write of the client is
// one event, however often it is repeated; what the game server sets when it hears of one stands; and in the end the client
// has what the holder has.
func TestAuthority(t *testing.T) {
	for round := range uint64(24) {
		s := *seed + round
		t.Run(fmt.Sprint(s), func(t *testing.T) { playAuthority(t, s) })
	}
}

func playAuthority(t *testing.T, seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 9))
	w := newWorld(t, seed)
	w.startRelay()
	g := newLeverGame(w)
	e := w.startEdge(wire.Denetwork, nil)
	w.mustPublish("s", g.put("lever", "read-write"))
	p := g.connect(e, "lever", seed)
	w.within(5*time.Second, "the client has its lever", p.ready)
	p.offer(2)
	w.within(5*time.Second, "the client has its state", func() bool { return p.own.Phase == dnptest.LinkIsUp })
	delay := []time.Duration{0, 30, 100, 300}[rng.IntN(4)] * time.Millisecond
	path := simnet.Path{Delay: delay - delay*3/10, Jitter: delay*6/10 + 1, Loss: []float64{0, 0.05, 0.3}[rng.IntN(3)], Duplicate: 0.1, Reorder: 0.01, ReorderBy: 5 * time.Second}
	w.net.SetPath(path)
	w.hub.Jitter = []time.Duration{0, 30, 200}[rng.IntN(3)] * time.Millisecond
	lossy := rng.IntN(2) == 0
	if lossy {
		w.hub.Loss = 0.05 // of requests, answers, batches and events
	}
	for range 60 {
		p.writeSome(rng)
		w.net.Run(time.Duration(rng.IntN(300)) * time.Millisecond)
	}
	w.hub.Loss = 0
	w.net.Run(20 * time.Second)
	w.net.SetPath(simnet.Path{Delay: 10 * time.Millisecond})
	w.net.Run(30 * time.Second)
	if p.Phase() == dnptest.Closed {
		t.Skip("the connection ended: with 30 % loss each way one in some thousand does") // the next seed has another
	}
	for _, problem := range slices.Concat(g.problems, g.judge(p, leverRule{told: true, heard: !lossy})) {
		t.Error(problem)
	}
}
