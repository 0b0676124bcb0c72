//go:build linux

package k8stest

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/testbed/history"
	"github.com/dnprelay/dnprelay/testbed/rig"
)

// Health checks of a balancer.
const (
	checkEvery   = time.Second
	checkTimeout = 500 * time.Millisecond
)

// firstTable is the number of the kernel's routing table for the first flow, and the priority of
// the rule that leads to it.
const firstTable = 1000

// A balancer works like those of clouds for a UDP service with externalTrafficPolicy Local:
// it asks each node whether it has an edge, spreads flows over the nodes that have, and
// keeps a flow where it is until its node has no edge. Each flow has a route of its own in the
// kernel, chosen by the address of the client, so that the balancer knows over which node each
// player comes in, and records in the history when a fault cuts that way.
type balancer struct {
	address string   // of the service
	addrs   []string // of the nodes
	port    string   // of the health check
	log     *history.Log
	web     rig.Web
	ip      func(lines ...string) error // changes rules and routes of the kernel

	// Health checks move flows while a fault begins or ends, and the history has to say over which
	// node each flow came in at that moment, so no single goroutine can own the table.
	mu    sync.Mutex
	flows flowTable
	off   int // the node that is cut off; -1 for none
}

// newBalancer returns a balancer without flows, to which all nodes are closed until a check.
func newBalancer(address, port string, nodes []way, log *history.Log) *balancer {
	b := &balancer{
		address: address, port: port, log: log, web: rig.NewWeb(nil, checkTimeout), ip: ipBatch,
		flows: newFlowTable(nodes), off: -1,
	}
	for _, n := range nodes {
		b.addrs = append(b.addrs, n.addr)
	}
	return b
}

// run checks the nodes until ctx ends.
func (b *balancer) run(ctx context.Context) {
	rig.Every(ctx, checkEvery, func() {
		if err := b.check(); err != nil {
			fmt.Println("   balancer:", err)
		}
	})
}

// check asks all nodes and moves the flows of those that have no edge.
func (b *balancer) check() error {
	answers := make([]chan bool, len(b.addrs))
	for i, addr := range b.addrs {
		answers[i] = make(chan bool, 1)
		go func() {
			_, status := b.web.Get(addr+":"+b.port, "/healthz")
			answers[i] <- status == http.StatusOK
		}()
	}
	passed := make([]bool, len(answers))
	for i := range answers {
		passed[i] = <-answers[i]
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, ok := range passed {
		b.flows.checked(i, ok)
	}
	return b.reroute(b.flows.leave())
}

// join gives a client a flow. The client must not have sent anything yet.
func (b *balancer) join(player string, client netip.Addr) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	i, ok := b.flows.add(player, client)
	if !ok {
		return fmt.Errorf("no flow for %s: no node has an edge", player)
	}
	_ = b.ip(fmt.Sprintf("rule del pref %d", firstTable+i)) // of an earlier balancer; usually there is none
	return b.ip(b.route(i), fmt.Sprintf("rule add pref %d from %s to %s lookup %d", firstTable+i, client, b.address, firstTable+i))
}

// route returns the command that sends a flow over its node.
func (b *balancer) route(i int) string {
	return fmt.Sprintf("route replace %s/32 via %s dev kube0 table %d", b.address, b.flows.ways[b.flows.flows[i].node].addr, firstTable+i)
}

// avoid keeps all flows off a node, or admits new ones again.
func (b *balancer) avoid(node string, on bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	i, err := b.flows.find(node)
	if err != nil {
		return err
	}
	b.flows.ways[i].avoided = on
	return b.reroute(b.flows.leave())
}

// even spreads the flows evenly.
func (b *balancer) even() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.reroute(b.flows.even())
}

// reroute changes routes in the kernel after moves. The way of a flow that leaves the node that
// is cut off is well again.
func (b *balancer) reroute(moves []move) error {
	if len(moves) == 0 {
		return nil
	}
	var lines []string
	for _, m := range moves {
		lines = append(lines, b.route(m.flow))
		if m.to == b.off {
			b.noteCut(m.flow, history.CutStart)
		}
	}
	err := b.ip(lines...)
	for _, m := range moves {
		if m.from == b.off {
			b.noteCut(m.flow, history.CutEnd)
		}
	}
	b.log.Add(history.Record{Kind: history.Route, Note: b.flows.String()})
	return err
}

// cut records that the node is cut off from now on, and with it the way of its flows.
func (b *balancer) cut(node string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	i, err := b.flows.find(node)
	if err != nil {
		return err
	}
	b.off = i
	b.noteCuts(history.CutStart)
	return nil
}

// heal records that the node that was cut off is back.
func (b *balancer) heal() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.noteCuts(history.CutEnd)
	b.off = -1
}

func (b *balancer) noteCuts(note string) {
	for i, f := range b.flows.flows {
		if f.node == b.off {
			b.noteCut(i, note)
		}
	}
}

func (b *balancer) noteCut(i int, note string) {
	b.log.Add(history.Record{Kind: history.Cut, Who: b.flows.flows[i].player, Note: note})
}

// sees reports whether all these nodes, and no others, pass their health checks.
func (b *balancer) sees(nodes []string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, w := range b.flows.ways {
		if b.flows.healthy(i) != slices.Contains(nodes, w.name) {
			return false
		}
	}
	return true
}

// over returns how many flows come in over a node, and how many there are.
func (b *balancer) over(node string) (count, all int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.flows.flows {
		if b.flows.ways[f.node].name == node {
			count++
		}
	}
	return count, len(b.flows.flows)
}

// String lists the nodes with their flows.
func (b *balancer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.flows.String()
}

// ipBatch runs commands of ip in order, up to the first that fails.
func ipBatch(lines ...string) error {
	cmd := exec.Command("ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ip -batch: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}
