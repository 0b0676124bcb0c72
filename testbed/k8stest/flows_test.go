//go:build linux

package k8stest

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

func client(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 198, 0, byte(1 + i)}) }

// table returns a table of three nodes, of which those in healthy have an edge, with flows.
func table(t *testing.T, flows int, healthy ...bool) *flowTable {
	t.Helper()
	var ways []way
	for i := range healthy {
		ways = append(ways, way{name: fmt.Sprint("kn", i+1), addr: fmt.Sprint("10.199.0.1", i+1)})
	}
	table := newFlowTable(ways)
	for i, ok := range healthy {
		table.checked(i, ok)
	}
	for i := range flows {
		if _, ok := table.add(fmt.Sprint("player", i), client(i)); !ok {
			t.Fatalf("player%d gets no flow, and %v have an edge", i, healthy)
		}
	}
	return &table
}

func wantFlows(t *testing.T, about string, table *flowTable, want string) {
	t.Helper()
	if got := table.String(); got != want {
		t.Errorf("%s: the nodes have %q, want %q", about, got, want)
	}
}

// TestFlowsSpread: new flows go to the nodes that have an edge, evenly.
func TestFlowsSpread(t *testing.T) {
	wantFlows(t, "two of three nodes have an edge", table(t, 50, true, false, true), "kn1 25, kn3 25")
	wantFlows(t, "three nodes", table(t, 50, true, true, true), "kn1 17, kn2 17, kn3 16")
	closed := table(t, 0, false, false)
	if _, ok := closed.add("player0", client(0)); ok || len(closed.flows) != 0 {
		t.Errorf("a flow without a node that has an edge: %+v", closed.flows)
	}
}

// TestFlowsStay: a flow stays until its node fails the second check in a row, and does not come
// back with it. It also stays where no other node has an edge.
func TestFlowsStay(t *testing.T) {
	table := table(t, 6, true, true, false)
	table.checked(0, false)
	if moves := table.leave(); moves != nil {
		t.Errorf("after one failed check flows move: %v", moves)
	}
	table.checked(0, true)
	table.checked(0, false)
	if moves := table.leave(); moves != nil {
		t.Errorf("after two failed checks with one passed between, flows move: %v", moves)
	}
	table.checked(0, false)
	if moves, want := table.leave(), []move{{0, 0, 1}, {2, 0, 1}, {4, 0, 1}}; !slices.Equal(moves, want) {
		t.Errorf("after two failed checks: %v, want %v", moves, want)
	}
	table.checked(0, true)
	if moves := table.leave(); moves != nil {
		t.Errorf("flows come back with the node: %v", moves)
	}
	wantFlows(t, "the node is back", table, "kn1 0, kn2 6")
	for range failsMax {
		table.checked(0, false)
		table.checked(1, false)
	}
	if moves := table.leave(); moves != nil {
		t.Errorf("without a node that has an edge, flows move: %v", moves)
	}
	table.checked(2, true)
	table.leave()
	wantFlows(t, "a third node has an edge", table, "kn3 6")
}

// TestFlowsAvoid: flows leave a node that is avoided, and none comes in over it, also if it is
// the only one that has an edge.
func TestFlowsAvoid(t *testing.T) {
	table := table(t, 6, true, true, false)
	table.ways[0].avoided = true
	table.leave()
	wantFlows(t, "avoided", table, "kn2 6")
	for range failsMax {
		table.checked(1, false)
	}
	table.leave()
	wantFlows(t, "the others failed", table, "kn2 6")
	if _, ok := table.add("player6", client(6)); ok {
		t.Error("a new flow comes in over a node that is avoided")
	}
	table.ways[0].avoided = false
	table.leave()
	wantFlows(t, "admitted again", table, "kn1 6")
}

// TestFlowsEven: for any nodes, even leaves flows that differ by one at most, moves no flow
// twice, and moves none that it need not.
func TestFlowsEven(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for round := range 500 {
		table := table(t, rng.IntN(60), true, true, true)
		for i := range table.flows {
			table.flows[i].node = rng.IntN(3)
		}
		for i := range table.ways {
			if rng.IntN(4) == 0 {
				table.ways[i].avoided = true
			}
		}
		before := table.count()
		moves, after := table.even(), table.count()
		var open []int
		total := 0
		for i := range table.ways {
			if table.open(i) {
				open = append(open, i)
			}
			total += before[i]
		}
		if len(open) == 0 {
			if moves != nil {
				t.Fatalf("round %d: without an open node: %v", round, moves)
			}
			continue
		}
		need := 0 // flows of closed nodes, and those above the larger share
		for i := range table.ways {
			switch n := after[i]; {
			case !slices.Contains(open, i):
				need += before[i]
				if n != 0 {
					t.Fatalf("round %d: a closed node has %d flows", round, n)
				}
			case n != total/len(open) && n != (total+len(open)-1)/len(open):
				t.Fatalf("round %d: %v of %d flows over %d nodes", round, after, total, len(open))
			default:
				need += max(0, before[i]-n)
			}
		}
		moved := map[int]bool{}
		for _, m := range moves {
			if m.from == m.to || moved[m.flow] {
				t.Fatalf("round %d: %v moves a flow in vain or twice", round, moves)
			}
			moved[m.flow] = true
		}
		if len(moves) != need {
			t.Fatalf("round %d: %d moves from %v to %v, want %d", round, len(moves), before, after, need)
		}
	}
}
