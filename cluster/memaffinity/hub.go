package memaffinity

import (
	"slices"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
)

// tryTime is how long the permission to take a session over is exclusive.
const tryTime = time.Second

// A Hub has the claims of all nodes.
type Hub struct {
	now func() time.Time

	mu     sync.Mutex // nodes have goroutines of their own
	claims map[string]claim
	tries  map[string]attempt
	nodes  map[string]*Node // those that are alive
}

type claim struct {
	node  string
	epoch uint64
}

type attempt struct {
	node string
	till time.Time
}

// New returns an empty Hub. now is its clock.
func New(now func() time.Time) *Hub {
	return &Hub{now: now, claims: map[string]claim{}, tries: map[string]attempt{}, nodes: map[string]*Node{}}
}

// Claim returns the node that claims a session, and the epoch.
func (h *Hub) Claim(name string) (node string, epoch uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := h.claims[name]
	return c.node, c.epoch
}

// Node returns the affinity of a node.
func (h *Hub) Node(name string) *Node {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := &Node{h: h, name: name, replaced: func(string, cluster.Served) {}}
	h.nodes[name] = n
	return n
}

// A Node is cluster.Affinity for one node.
type Node struct {
	h        *Hub
	name     string
	replaced func(string, cluster.Served)
}

var _ cluster.Affinity = (*Node)(nil)

// Leave ends the node. Its claims stay.
func (n *Node) Leave() {
	n.h.mu.Lock()
	defer n.h.mu.Unlock()
	delete(n.h.nodes, n.name)
}

// OnReplaced implements cluster.Affinity.
func (n *Node) OnReplaced(handle func(string, cluster.Served)) { n.replaced = handle }

// Claim implements cluster.Affinity.
func (n *Node) Claim(name string, epoch uint64) {
	h := n.h
	h.mu.Lock()
	had := h.claims[name]
	if had.epoch <= epoch {
		h.claims[name] = claim{n.name, epoch}
		delete(h.tries, name)
	}
	loser := h.nodes[had.node]
	h.mu.Unlock()
	switch {
	case had.epoch > epoch && had.node != n.name:
		n.replaced(name, cluster.Served{Node: had.node, Epoch: had.epoch})
	case had.epoch < epoch && loser != nil && loser != n:
		loser.replaced(name, cluster.Served{Node: n.name, Epoch: epoch})
	}
}

// Release implements cluster.Affinity.
func (n *Node) Release(name string, epoch uint64) {
	n.h.mu.Lock()
	defer n.h.mu.Unlock()
	if n.h.claims[name] == (claim{n.name, epoch}) {
		delete(n.h.claims, name)
	}
}

// Find implements cluster.Affinity.
func (n *Node) Find(name string, answer func(cluster.Served, error)) {
	n.h.mu.Lock()
	s := n.h.served(name)
	n.h.mu.Unlock()
	answer(s, nil)
}

// Try implements cluster.Affinity.
func (n *Node) Try(name string, seen cluster.Served, answer func(cluster.Served, error)) {
	n.h.mu.Lock()
	s := n.h.served(name)
	if s.Trying == "" && s.Node == seen.Node && s.Epoch == seen.Epoch {
		n.h.tries[name] = attempt{n.name, n.h.now().Add(tryTime)}
		s.Trying = n.name
	}
	n.h.mu.Unlock()
	answer(s, nil)
}

// served is called with the lock held.
func (h *Hub) served(name string) cluster.Served {
	c := h.claims[name]
	s := cluster.Served{Node: c.node, Epoch: c.epoch, Alive: h.nodes[c.node] != nil}
	if a, ok := h.tries[name]; ok && h.now().Before(a.till) {
		s.Trying = a.node
	} else {
		delete(h.tries, name)
	}
	return s
}

// Claimed implements cluster.Affinity.
func (n *Node) Claimed(node string, each func([]string), done func(error)) {
	var names []string
	n.h.mu.Lock()
	for name, c := range n.h.claims {
		if c.node == node {
			names = append(names, name)
		}
	}
	n.h.mu.Unlock()
	slices.Sort(names) // so that a seed repeats exactly
	if len(names) > 0 {
		each(names)
	}
	done(nil)
}
