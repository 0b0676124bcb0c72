package systest

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/dnptest"
)

// A chaosNumbered is the part of the chaos simulation that numbers its writes: a client that writes to its lever and a
// state of its own, leaves now and then in the middle of that, and comes back as another one.
type chaosNumbered struct {
	g    *ring
	rng  *rand.Rand
	game *leverGame
	edge *simEdge
	over bool
	*numberedPlayer
}

// newChaosNumbered begins the client, in two of eight consecutive rounds; nil in the others. It has a lever for each of its sessions, so that none writes to the lever of another.
func newChaosNumbered(g *ring, seed uint64) *chaosNumbered {
	if seed>>1&3 != 1 {
		return nil
	}
	x := &chaosNumbered{g: g, rng: rand.New(rand.NewPCG(seed, 29)), game: newLeverGame(g.world)}
	x.begin()
	g.net.Every(200*time.Millisecond, func() bool {
		if !x.over {
			x.step()
		}
		return !x.over
	})
	return x
}

func (x *chaosNumbered) begin() {
	g := x.g
	x.edge = g.edges[x.rng.IntN(len(g.edges))]
	key := fmt.Sprintf("%s.%d", lever, len(x.game.players))
	g.fire("s", x.game.put(key, "read-write"))
	e := x.edge
	x.numberedPlayer = x.game.connect(e, key, uint64(len(x.game.players)))
	x.Excused = func(since time.Time) bool { // a relay that takes over may lack what the last one did not store
		return e.look.epochAt.Add(50 * time.Millisecond).After(since)
	}
}

// step has the client write, leave, or come back.
func (x *chaosNumbered) step() {
	switch {
	case x.Phase() == dnptest.Closed:
		if !x.edge.dead {
			x.begin()
		}
	case x.edge.dead, x.edge.drains, !x.g.healed && x.rng.IntN(50) == 0:
		x.leave()
	case x.g.healed || x.Phase() != dnptest.Connected:
	case x.own == nil:
		x.offer(1)
	default:
		x.writeSome(x.rng)
		if x.rng.IntN(50) == 0 {
			x.g.fire("s", x.game.put(x.lever, "read-write"))
		}
	}
}

func (x *chaosNumbered) leave() {
	x.Close(x.g.net.Now())
	x.Wake()
}

// check judges all sessions of the client.
func (x *chaosNumbered) check(t *testing.T) {
	t.Helper()
	if x == nil {
		return
	}
	for _, problem := range x.game.problems {
		t.Error(problem)
	}
	for i, p := range x.game.players {
		if p.undone != "" {
			t.Errorf("session %d of the client that numbers its writes shows that %s", i, p.undone)
		}
	}
	for _, problem := range x.game.judge(x.numberedPlayer, leverRule{}) {
		t.Errorf("the last session of the client that numbers its writes: %s", problem)
	}
	x.over = true
	x.leave()
}
