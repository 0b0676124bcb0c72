//go:build linux

package main

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Metrics that say which pod has most to do.
const (
	sessionsMetric = "dnp_edge_sessions"
	spacesMetric   = "dnp_relay_spaces"
)

// A fleet is all that plays: clients, the game server and the balancer before the edges.
type fleet struct {
	k        *kube
	players  []*player
	game     *game
	balancer *balancer
	late     lateness
}

// A scenario does something to a deployment that is played on, and returns when it is
// done with it; clients may still be away then.
type scenario struct {
	name string
	do   func(k *kube) error
}

const (
	nodeCut  = "node of an edge cut off for 30 s"
	natsRoll = "rolling update of NATS"
)

var scenarios = []scenario{
	{"nothing", func(k *kube) error { return k.sleep(20 * time.Second) }},
	{"rolling update of edges", func(k *kube) error { return k.restart("deployment/dnprelay-edge") }},
	{"rolling update of relays", func(k *kube) error { return k.restart("statefulset/dnprelay-relay") }},
	{"edge deleted by force", func(k *kube) error { return k.deletePod(edges, "8414", sessionsMetric, "deployment/dnprelay-edge") }},
	{"relay deleted by force", func(k *kube) error { return k.deletePod(relays, "8413", spacesMetric, "statefulset/dnprelay-relay") }},
	{"helm upgrade of edges and relays", (*kube).upgrade},
	{"helm rollback", (*kube).rollback},
	{natsRoll, func(k *kube) error { return k.restart("statefulset/dnprelay-nats") }},
	{nodeCut, (*kube).cutNode},
}

// play exposes the edges to clients outside, lets everybody play through all scenarios
// and returns a row for each. The error names violations.
func play(k *kube) ([]row, error) {
	if err := k.expose(playValues(k.cfg.durability)...); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(k.ctx)
	var wait sync.WaitGroup
	defer wait.Wait()
	defer cancel()
	f, err := newFleet(ctx, k, k.cfg.players, &wait)
	if err != nil {
		return nil, err
	}
	var rows []row
	var bad []string
	for i, s := range scenarios {
		if !listed(k.cfg.rows, strconv.Itoa(i+1)) {
			continue
		}
		r, err := f.measure(s)
		if err != nil {
			return rows, err
		}
		rows = append(rows, r)
		fmt.Println("  ", r)
		bad = append(bad, r.violations(k.cfg.durability)...)
	}
	if len(bad) > 0 {
		return rows, fmt.Errorf("%s", strings.Join(bad, "; "))
	}
	return rows, nil
}

// playValues are the values of a deployment that is played on.
func playValues(durability string) []string {
	return []string{
		"edge.service.type=LoadBalancer,edge.auth.allowOpenOnPublicService=true",
		fmt.Sprintf("edge.config.sessionDurability=%s,redis.enabled=%t", durability, durability == "log"),
	}
}

// expose installs in namespace play, gives the service of the edges an address, and waits
// until everything is ready.
func (k *kube) expose(values ...string) error {
	if _, err := k.namespace("play"); err != nil { // without the step before this one there is none
		return err
	}
	if err := k.install("play", false, values...); err != nil {
		return err
	}
	if _, err := k.command("", k.cfg.cluster, "lb"); err != nil {
		return err
	}
	if err := k.install("play", true, values...); err != nil {
		return err
	}
	for _, w := range []string{"deployment/dnprelay-edge", "statefulset/dnprelay-relay", "statefulset/dnprelay-nats"} {
		if err := k.rolledOut(w); err != nil { // helm does not wait for the old pods to go
			return err
		}
	}
	return nil
}

// newFleet starts a number of clients and everybody else, and waits until all clients play.
func newFleet(ctx context.Context, k *kube, players int, wait *sync.WaitGroup) (*fleet, error) {
	text, err := k.ctl("play", "get", "service", "dnprelay-edge", "-o", "jsonpath={.status.loadBalancer.ingress[0].ip} {.spec.healthCheckNodePort}")
	if err != nil {
		return nil, err
	}
	address, port, _ := strings.Cut(text, " ")
	nodes, err := k.ctl("default", "get", "nodes", "-o", `jsonpath={range .items[*]}{.status.addresses[?(@.type=="InternalIP")].address} {end}`)
	if err != nil {
		return nil, err
	}
	b, err := newBalancer(address, port, strings.Fields(nodes))
	if err != nil {
		return nil, err
	}
	wait.Go(func() { b.run(ctx) })
	f := &fleet{k: k, balancer: b}
	wait.Go(func() { f.late.run(ctx) })
	if f.game, err = newGame(k); err != nil {
		return nil, err
	}
	wait.Go(func() { f.game.run(ctx.Done()) })
	server, err := netip.ParseAddr(address)
	if err != nil {
		return nil, fmt.Errorf("the service has the address %q", address)
	}
	for i := range players {
		p := &player{index: i, local: netip.AddrFrom4([4]byte{10, 198, byte(i / 250), byte(1 + i%250)}), server: netip.AddrPortFrom(server, 3413), heard: map[int]int{}, left: make(chan struct{})}
		if err := ip("addr", "replace", p.local.String()+"/32", "dev", "lo"); err != nil {
			return nil, err
		}
		f.players = append(f.players, p)
		wait.Go(func() { p.run(ctx) })
	}
	return f, f.settle()
}

// settle waits until all clients have played for three seconds.
func (f *fleet) settle() error {
	var since time.Time
	return f.k.await(f.k.cfg.settle, "all clients play", func() bool {
		now := time.Now()
		if slices.ContainsFunc(f.players, func(p *player) bool { return !p.playing(now) }) {
			since = time.Time{}
			return false
		}
		if since.IsZero() {
			since = now
		}
		return now.Sub(since) > 3*time.Second
	})
}

// measure lets one scenario happen and returns what clients saw.
func (f *fleet) measure(s scenario) (r row, err error) {
	first := f.game.numbers() + 2 // the last one may be on its way
	for _, p := range f.players {
		p.begin()
	}
	f.balancer.moved()
	f.late.take()
	start := time.Now()
	if err := s.do(f.k); err != nil {
		return r, fmt.Errorf("%s: %w", s.name, err)
	}
	r.Name, r.Took = s.name, time.Since(start)
	unsettled := f.settle()
	last := f.game.numbers()
	if err := f.k.sleep(3 * time.Second); err != nil { // for what is on its way
		return r, err
	}
	_ = f.k.await(20*time.Second, "the game server heard everything", f.heard) // what it did not is counted
	r.Late = f.late.take()
	for _, p := range f.players {
		r.add(p.end(), f.game, first, last)
	}
	for _, m := range f.balancer.moved() {
		r.Moves = append(r.Moves, fmt.Sprintf("%.1f s: %s", m.at.Sub(start).Seconds(), m.nodes))
	}
	if unsettled != nil {
		r.Problem = unsettled.Error()
	}
	return r, nil
}

// heard reports whether the game server has everything that an edge acknowledged.
func (f *fleet) heard() bool {
	return !slices.ContainsFunc(f.players, func(p *player) bool {
		return slices.ContainsFunc(p.end().acked, func(m message) bool { return f.game.times(m) == 0 })
	})
}

func (k *kube) sleep(d time.Duration) error {
	select {
	case <-k.ctx.Done():
		return k.ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// restart replaces the pods of a workload one after the other.
func (k *kube) restart(workload string) error {
	if _, err := k.ctl("play", "rollout", "restart", workload); err != nil {
		return err
	}
	return k.rolledOut(workload)
}

// upgrade changes a value that all edges and relays have.
func (k *kube) upgrade() error {
	if err := k.install("play", true, append(playValues(k.cfg.durability), "log.level=debug")...); err != nil {
		return err
	}
	return k.nodesRolledOut()
}

// rollback takes the upgrade back.
func (k *kube) rollback() error {
	if _, err := k.helm("play", "rollback", "dnprelay", "--wait", "--timeout", "4m"); err != nil {
		return err
	}
	return k.nodesRolledOut()
}

func (k *kube) nodesRolledOut() error {
	if err := k.rolledOut("deployment/dnprelay-edge"); err != nil {
		return err
	}
	return k.rolledOut("statefulset/dnprelay-relay")
}

func (k *kube) rolledOut(workload string) error {
	_, err := k.ctl("play", "rollout", "status", workload, "--timeout", "4m")
	return err
}

// busiest returns the pod with the largest value of a metric.
func (k *kube) busiest(selector, port, metric string) (busiest pod, err error) {
	all, err := k.pods("play", selector)
	most := -1.0
	for _, p := range all {
		if n := readMetric(p.addr+":"+port, metric); n > most {
			busiest, most = p, n
		}
	}
	if err == nil && most < 0 {
		err = fmt.Errorf("no pod with %s has the metric %s", selector, metric)
	}
	return busiest, err
}

// readMetric returns the sum of a metric of a node, or -1 without it.
func readMetric(address, metric string) float64 {
	body, _ := get(address, "/metrics")
	sum, found := 0.0, false
	for line := range strings.Lines(body) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if name, _, _ = strings.Cut(name, "{"); name != metric {
			continue
		}
		if n, err := strconv.ParseFloat(value[strings.LastIndexByte(value, ' ')+1:], 64); err == nil {
			sum, found = sum+n, true
		}
	}
	if !found {
		return -1
	}
	return sum
}

// deletePod takes the busiest pod away without asking it, and waits for the next one.
func (k *kube) deletePod(selector, port, metric, workload string) error {
	p, err := k.busiest(selector, port, metric)
	if err != nil {
		return err
	}
	if _, err := k.ctl("play", "delete", "pod", p.name, "--grace-period=0", "--force"); err != nil {
		return err
	}
	return k.rolledOut(workload)
}

// cutNode takes the node of the busiest edge off the network for half a minute.
func (k *kube) cutNode() error {
	p, err := k.busiest(edges, "8414", sessionsMetric)
	if err != nil {
		return err
	}
	number := strings.TrimPrefix(p.node, "kn")
	if _, err := k.command("", k.cfg.cluster, "cut", number); err != nil {
		return err
	}
	slept := k.sleep(30 * time.Second)
	if _, err := k.command("", k.cfg.cluster, "heal", number); err != nil {
		return err
	}
	if slept != nil {
		return slept
	}
	_, err = k.ctl("default", "wait", "--for=condition=Ready", "node/"+p.node, "--timeout=60s")
	return err
}
