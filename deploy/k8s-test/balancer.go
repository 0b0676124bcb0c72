//go:build linux

package main

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// How a balancer looks at nodes: every checkEvery, and it takes two failures in a row.
const (
	checkEvery   = time.Second
	checkTimeout = 500 * time.Millisecond
	groupID      = "100" // of the next hops
)

// A balancer does what those of clouds do for a UDP service with externalTrafficPolicy
// Local: it asks each node whether it has an edge, spreads flows over those that have,
// and keeps a flow where it is until its node has no edge. The kernel's resilient groups
// of next hops do the spreading and the keeping.
type balancer struct {
	address string
	nodes   []string // addresses
	port    string   // of the health check
	fails   []int    // in a row, by node
	group   string   // what the kernel was told

	mu    sync.Mutex
	moves []move // since the last look
	web   http.Client
}

// A move is when the balancer spread flows anew, and over which nodes.
type move struct {
	at    time.Time
	nodes string
}

// moved returns what the balancer did since it was asked last.
func (b *balancer) moved() []move {
	b.mu.Lock()
	defer b.mu.Unlock()
	moves := b.moves
	b.moves = nil
	return moves
}

// newBalancer prepares the way to a service's address. Nothing is routed yet.
func newBalancer(address, port string, nodes []string) (*balancer, error) {
	b := &balancer{address: address, nodes: nodes, port: port, fails: make([]int, len(nodes))}
	b.web = http.Client{Timeout: checkTimeout, Transport: &http.Transport{DisableKeepAlives: true}}
	if err := ip("addr", "replace", "10.198.255.254/32", "dev", "lo"); err != nil {
		return nil, err
	}
	for i, n := range nodes {
		if err := ip("nexthop", "replace", "id", fmt.Sprint(i+1), "via", n, "dev", "kube0"); err != nil {
			return nil, err
		}
	}
	return b, nil
}

// run checks and routes until ctx ends.
func (b *balancer) run(ctx context.Context) {
	tick := time.NewTicker(checkEvery)
	defer tick.Stop()
	for {
		if err := b.check(ctx); err != nil {
			fmt.Println("   balancer:", err)
		}
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// check asks all nodes and routes over those that have an edge.
func (b *balancer) check(ctx context.Context) error {
	answers := make([]chan bool, len(b.nodes))
	for i, n := range b.nodes {
		answers[i] = make(chan bool, 1)
		go func() { answers[i] <- b.healthy(ctx, n) }()
	}
	var good []string
	for i := range b.nodes {
		if <-answers[i] {
			b.fails[i] = 0
		} else {
			b.fails[i]++
		}
		if b.fails[i] < 2 {
			good = append(good, fmt.Sprint(i+1))
		}
	}
	group := strings.Join(good, "/")
	if group == b.group || group == "" {
		return nil // with nowhere to go, flows stay
	}
	args := []string{"nexthop", "replace", "id", groupID, "group", group, "type", "resilient"}
	if b.group == "" {
		args = append(args, "buckets", "128", "idle_timer", "120", "unbalanced_timer", "0")
	}
	if err := ip(args...); err != nil {
		return err
	}
	first := b.group == ""
	b.group = group
	b.mu.Lock()
	b.moves = append(b.moves, move{time.Now(), group})
	b.mu.Unlock()
	if first {
		return ip("route", "replace", b.address+"/32", "nhid", groupID)
	}
	return nil
}

func (b *balancer) healthy(ctx context.Context, node string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+node+":"+b.port+"/healthz", nil)
	if err != nil {
		return false
	}
	answer, err := b.web.Do(request)
	if err != nil {
		return false
	}
	answer.Body.Close()
	return answer.StatusCode == http.StatusOK
}

// ip runs the program of iproute2.
func ip(args ...string) error {
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
	}
	return nil
}
