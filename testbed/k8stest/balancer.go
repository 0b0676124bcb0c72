//go:build linux

package k8stest

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/testbed/history"
	"github.com/dnprelay/dnprelay/testbed/rig"
)

// Health checks of a balancer.
const (
	checkEvery   = time.Second
	checkTimeout = 500 * time.Millisecond
	failsMax     = 2     // in a row: then flows leave the node
	groupID      = "100" // of the next hops
)

// A balancer works like those of clouds for a UDP service with externalTrafficPolicy Local:
// it asks each node whether it has an edge, spreads flows over the nodes that have, and
// keeps a flow where it is until its node has no edge. The resilient groups of next hops
// of the kernel spread and keep flows.
type balancer struct {
	address string
	nodes   []string // addresses
	port    string   // of the health check
	fails   []int    // in a row, by node
	group   string   // of next hops in the kernel
	log     *history.Log
	web     rig.Web
}

// newBalancer prepares the route to the address of a service. Nothing is routed yet.
func newBalancer(address, port string, nodes []string, log *history.Log) (*balancer, error) {
	b := &balancer{address: address, nodes: nodes, port: port, fails: make([]int, len(nodes)), log: log, web: rig.NewWeb(nil, checkTimeout)}
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

func (b *balancer) run(ctx context.Context) {
	rig.Every(ctx, checkEvery, func() {
		if err := b.check(); err != nil {
			fmt.Println("   balancer:", err)
		}
	})
}

// check asks all nodes and routes over those that have an edge.
func (b *balancer) check() error {
	answers := make([]chan bool, len(b.nodes))
	for i, n := range b.nodes {
		answers[i] = make(chan bool, 1)
		go func() {
			_, status := b.web.Get(n+":"+b.port, "/healthz")
			answers[i] <- status == http.StatusOK
		}()
	}
	var good []string
	for i := range b.nodes {
		if <-answers[i] {
			b.fails[i] = 0
		} else {
			b.fails[i]++
		}
		if b.fails[i] < failsMax {
			good = append(good, fmt.Sprint(i+1))
		}
	}
	group := strings.Join(good, "/")
	if group == b.group || group == "" {
		return nil // without a healthy node, flows stay
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
	b.log.Add(history.Record{Kind: history.Route, Note: group})
	if first {
		return ip("route", "replace", b.address+"/32", "nhid", groupID)
	}
	return nil
}

func ip(args ...string) error { return rig.Command("ip", args...) }
