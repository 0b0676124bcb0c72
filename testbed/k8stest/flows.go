//go:build linux

package k8stest

import (
	"fmt"
	"net/netip"
	"strings"
)

// failsMax is how many health checks a node fails in a row before flows leave it.
const failsMax = 2

// A flow is all that one client sends. It has an address of its own.
type flow struct {
	player string
	addr   netip.Addr
	node   int // over which it comes in
}

// A way is a node over which flows may come in.
type way struct {
	name, addr string
	fails      int // health checks in a row
	avoided    bool
}

// A flowTable says over which node each flow comes in. New flows go to the open node with the
// fewest flows. A flow stays where it is until its node closes, and also while no node is open.
// Its owner guards it.
type flowTable struct {
	ways  []way
	flows []flow // one for each client, in the order of add
}

// A move takes a flow from one node to another; all are indices.
type move struct{ flow, from, to int }

// newFlowTable returns a table in which no node is open until it passes a health check.
func newFlowTable(ways []way) flowTable {
	for i := range ways {
		ways[i].fails = failsMax
	}
	return flowTable{ways: ways}
}

// find returns the index of a node.
func (t *flowTable) find(name string) (int, error) {
	for i, w := range t.ways {
		if w.name == name {
			return i, nil
		}
	}
	return 0, fmt.Errorf("the balancer knows no node %q", name)
}

// healthy reports whether a node has an edge, as far as health checks tell.
func (t *flowTable) healthy(i int) bool { return t.ways[i].fails < failsMax }

// open reports whether flows may come in over a node.
func (t *flowTable) open(i int) bool { return t.healthy(i) && !t.ways[i].avoided }

// checked notes the result of a health check.
func (t *flowTable) checked(i int, passed bool) {
	if passed {
		t.ways[i].fails = 0
	} else {
		t.ways[i].fails++
	}
}

// add adds the flow of a player and returns its index; false if no node is open.
func (t *flowTable) add(player string, addr netip.Addr) (int, bool) {
	to, ok := t.emptiest()
	if ok {
		t.flows = append(t.flows, flow{player, addr, to})
	}
	return len(t.flows) - 1, ok
}

// leave moves the flows of closed nodes to open ones.
func (t *flowTable) leave() (moves []move) {
	for i, f := range t.flows {
		if to, ok := t.emptiest(); ok && !t.open(f.node) {
			moves = append(moves, t.move(i, to))
		}
	}
	return moves
}

// even moves as few flows as possible, so that all open nodes have the same number or one
// more.
func (t *flowTable) even() (moves []move) {
	moves = t.leave()
	for {
		to, ok := t.emptiest()
		if !ok {
			return moves
		}
		from, count := to, t.count()
		for i := range t.ways {
			if t.open(i) && count[i] > count[from] {
				from = i
			}
		}
		if count[from] <= count[to]+1 {
			return moves
		}
		for i := len(t.flows) - 1; i >= 0; i-- {
			if t.flows[i].node == from {
				moves = append(moves, t.move(i, to))
				break
			}
		}
	}
}

func (t *flowTable) move(i, to int) move {
	m := move{i, t.flows[i].node, to}
	t.flows[i].node = to
	return m
}

// emptiest returns the open node with the fewest flows, the first of several; false if none is
// open.
func (t *flowTable) emptiest() (best int, ok bool) {
	count := t.count()
	for i := range t.ways {
		if t.open(i) && (!ok || count[i] < count[best]) {
			best, ok = i, true
		}
	}
	return best, ok
}

// count returns the number of flows of each node.
func (t *flowTable) count() []int {
	count := make([]int, len(t.ways))
	for _, f := range t.flows {
		count[f.node]++
	}
	return count
}

// String lists the nodes that are open or have flows, and how many these have.
func (t *flowTable) String() string {
	var list []string
	for i, n := range t.count() {
		if n > 0 || t.open(i) {
			list = append(list, fmt.Sprintf("%s %d", t.ways[i].name, n))
		}
	}
	return strings.Join(list, ", ")
}
