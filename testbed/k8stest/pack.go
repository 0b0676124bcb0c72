//go:build linux

package k8stest

import (
	"cmp"
	"fmt"
	"slices"
)

// movesMax bounds the pods that move until a node is full.
const movesMax = 8

// moveCost weighs the moves of pods: of several nodes, that becomes the full one which needs the
// cheapest moves. A Redis server has no disk and takes all it knows with it; a NATS server of
// the chart has none either, and gets its streams back from the others.
var moveCost = map[string]int{redisKind: 8, natsKind: 4, relayKind: 1, edgeKind: 1}

// least and most return how many pods of a kind a full node has. What the others have must be
// able to go on without it: an edge, a relay, a majority of NATS servers and, if there are two,
// a Redis server.
func (p placement) least(kind string) int { return min(1, len(p.of(kind, ""))) }

func (p placement) most(kind string) int {
	switch all := len(p.of(kind, "")); kind {
	case natsKind:
		return 1
	case redisKind:
		return max(1, all-1)
	default:
		return all - 1
	}
}

// possible returns an error if no node can become full. Without durable sessions there is no
// Redis server.
func (p placement) possible(durable bool) error {
	wanted := map[string]int{edgeKind: 2, relayKind: 2, natsKind: 3}
	if durable {
		wanted[redisKind] = 1
	}
	for _, kind := range kinds {
		if n := len(p.of(kind, "")); n < wanted[kind] {
			return fmt.Errorf("%d pods of kind %s, at least %d wanted: %s", n, kind, wanted[kind], p)
		}
	}
	return nil
}

// full returns an error unless the node has an edge, a relay, one NATS server and a Redis
// server, and others have what the deployment needs without it.
func (p placement) full(node string) error {
	for _, kind := range kinds {
		if n := len(p.of(kind, node)); n < p.least(kind) || n > p.most(kind) {
			return fmt.Errorf("%s has %d of %d pods of kind %s, between %d and %d wanted: %s",
				node, n, len(p.of(kind, "")), kind, p.least(kind), p.most(kind), p)
		}
	}
	return nil
}

// cheapest returns the node that becomes full by the cheapest moves: of several, the preferred
// one, or else the first.
func (p placement) cheapest(preferred string) string {
	cost := func(node string) (sum int) {
		for _, kind := range kinds {
			n := len(p.of(kind, node))
			sum += moveCost[kind] * max(p.least(kind)-n, n-p.most(kind), 0)
		}
		return sum
	}
	best := slices.MinFunc(p.nodes, func(a, b string) int { return cmp.Compare(cost(a), cost(b)) })
	if slices.Contains(p.nodes, preferred) && cost(preferred) == cost(best) {
		return preferred
	}
	return best
}

// A podMove deletes a pod while some nodes take no pods, so that the next one is on another.
type podMove struct {
	placed
	closed []string
}

// pack moves pods until a node is full, and returns it. move makes a move and returns where the
// pods are then.
func (p placement) pack(preferred string, move func(podMove) (placement, error)) (node string, err error) {
	node = p.cheapest(preferred)
	for range movesMax {
		m, more := p.next(node)
		if !more {
			break
		}
		if p, err = move(m); err != nil {
			return "", err
		}
	}
	if err := p.full(node); err != nil {
		return "", fmt.Errorf("no node is full after %d moves at most: %w", movesMax, err)
	}
	return node, nil
}

// next returns the next move that makes a node full; false if none is left.
func (p placement) next(node string) (podMove, bool) {
	for _, kind := range kinds {
		on := p.of(kind, node)
		if len(on) > p.most(kind) {
			return podMove{on[len(on)-1], []string{node}}, true
		}
		if len(on) < p.least(kind) {
			others := slices.DeleteFunc(slices.Clone(p.nodes), func(n string) bool { return n == node })
			busiest := slices.MaxFunc(others, func(a, b string) int { return len(p.of(kind, a)) - len(p.of(kind, b)) })
			from := p.of(kind, busiest)
			return podMove{from[len(from)-1], others}, true
		}
	}
	return podMove{}, false
}
