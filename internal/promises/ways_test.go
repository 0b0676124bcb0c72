package promises

import (
	"flag"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// carriers are the ways of clients to an edge.
var carriers = []string{"udp", "ws", "wt"}

var (
	all     = flag.Bool("all", false, "try each promise in all cells of its matrix, instead of those that it names; -run TestKicked/go,ws,c2,1 tries one")
	players = flag.String("players", "go", "whose clients -all tries: go, ts, or both with a comma; ts is the client in TypeScript, which needs Node and `npx tsc`")
)

// A cond is what a path does to datagrams, in each direction.
type cond struct {
	name         string
	base, jitter time.Duration
	loss, double float64

	// late is when one of four doubles arrives, which is long after its twin.
	late time.Duration
}

// conds are c0 to c3: a machine, an ordinary path without loss, a long one with some, a bad one.
var conds = []cond{
	{name: "c0"}, {name: "c1", base: 30e6, jitter: 10e6}, {name: "c2", base: 100e6, jitter: 15e6, loss: 0.05, double: 0.05}, {name: "c3", base: 30e6, jitter: 10e6, loss: 0.2, double: 0.1},
}

// A way is how the clients of a test reach the deployment: a cell of a matrix.
type way struct {
	library string // go or ts
	carrier string
	cond    cond
	edges   int // clients connect to one after the other
}

func (y way) String() string {
	return fmt.Sprintf("%s,%s,%s,%d", y.library, y.carrier, y.cond.name, y.edges)
}

// A matrix says in which ways a promise is tried. The ordinary run tries the cells that it names: a diagonal, in which each carrier, each path and each
// number of edges comes several times over all promises, and each promise over the way that is most likely to break it.
// With -all it is each library, carrier, path and number of edges. There is no client in TypeScript by WebTransport:
// Node has none; browsers are tried in clients/typescript/test/browser.
type matrix struct {
	named  []string                // the cells of the ordinary run
	conds  []cond                  // default: conds
	only   string                  // the carrier, if the promise is about one
	goOnly string                  // why the promise is only one of package client
	begin  func(*testing.T) *world // default: start
}

// cells returns what to try.
func (m matrix) cells() (list []way) {
	if m.conds == nil {
		m.conds = conds
	}
	for _, library := range []string{"go", "ts"} {
		for _, carrier := range carriers {
			for _, c := range m.conds {
				for edges := 1; edges <= 2; edges++ {
					y := way{library, carrier, c, edges}
					switch {
					case m.only != "" && m.only != carrier:
					case library == "ts" && (carrier == "wt" || m.goOnly != ""):
					case *all && slices.Contains(strings.Split(*players, ","), library), !*all && slices.Contains(m.named, y.String()):
						list = append(list, y)
					}
				}
			}
		}
	}
	return list
}

// run tries a promise in each cell, with a deployment of its own.
func (m matrix) run(t *testing.T, promise func(w *world)) {
	t.Parallel()
	begin := start
	if m.begin != nil {
		begin = m.begin
	}
	for _, y := range m.cells() {
		t.Run(y.String(), func(t *testing.T) {
			t.Parallel()
			if y.library == "ts" {
				needTypeScript(t)
			}
			w := begin(t)
			w.reach(y)
			promise(w)
		})
	}
}

// TestMatrix: every cell that a test names exists, as otherwise the test would try nothing.
func TestMatrix(t *testing.T) {
	for _, y := range []way{{"go", "udp", conds[2], 2}, {"go", "wt", conds[0], 1}} {
		if got := (matrix{named: []string{y.String()}}).cells(); !*all && (len(got) != 1 || got[0] != y) {
			t.Errorf("the cells of %v are %v", y, got)
		}
	}
}
