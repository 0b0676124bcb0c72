//go:build linux

package k8stest

import (
	"errors"
	"fmt"
	"strings"
	"time"
)

// cutFor is how long the full node is off the network.
const cutFor = 30 * time.Second

// arrange makes a node full and lets flows come in over it, or keeps all off, and waits until
// all clients play.
func (f *fleet) arrange(over bool) error {
	node, err := f.k.pack(f.full)
	if err != nil {
		return err
	}
	err = inOrder(
		f.seesEdges,
		func() error { return f.balancer.avoid(node, !over) },
		f.balancer.even,
		f.settle,
		func() error { return f.k.sleep(3 * time.Second) }, // for messages under way, and flows that moved
	)
	if err != nil {
		return err
	}
	p, err := f.k.steady()
	if err != nil {
		return err
	}
	if err := p.full(node); err != nil {
		return err
	}
	f.full = node
	count, all := f.balancer.over(node)
	fmt.Printf("   %s\n   %d of %d flows come in over %s, whose edges have %.0f sessions\n", p, count, all, node, f.sessionsOn(p, node))
	if over && (count == 0 || count == all) || !over && count > 0 {
		return fmt.Errorf("%d of %d flows come in over %s: %s", count, all, node, f.balancer)
	}
	return nil
}

// sessionsOn returns how many sessions the edges of a node have.
func (f *fleet) sessionsOn(p placement, node string) (sum float64) {
	for _, e := range p.of(edgeKind, node) {
		n, _ := f.k.web.Metric(e.addr+":8414", sessionsMetric) // for the console only
		sum += n
	}
	return sum
}

// cutFull takes the full node off the network for half a minute, and returns when everything is
// ready again.
func (f *fleet) cutFull() error {
	k, number := f.k, strings.TrimPrefix(f.full, "kn")
	if err := f.balancer.cut(f.full); err != nil {
		return err
	}
	if _, err := k.command("", k.cfg.Cluster, "cut", number); err != nil {
		return err
	}
	slept := k.sleep(cutFor)
	if _, err := k.command("", k.cfg.Cluster, "heal", number); err != nil {
		return err
	}
	f.balancer.heal()
	return inOrder(
		func() error { return slept },
		func() error {
			_, err := k.ctl("default", "wait", "--for=condition=Ready", "node/"+f.full, "--timeout=60s")
			return err
		},
		f.seesEdges,
		func() error { return f.balancer.avoid(f.full, false) },
	)
}

// pack moves pods until one node is full, and returns it: the last one if it still is, which is
// empty at first.
func (k *kube) pack(last string) (string, error) {
	p, err := k.steady()
	if err != nil {
		return "", err
	}
	if err := p.possible(k.cfg.Durability == "log"); err != nil {
		return "", fmt.Errorf("no node can have an edge, a relay, a NATS server and a Redis server: %w", err)
	}
	return p.pack(last, k.movePod)
}

// movePod deletes a pod while some nodes take no pods, and waits for the next one.
func (k *kube) movePod(m podMove) (p placement, err error) {
	fmt.Printf("   %s leaves %s, and the next one is not on %s\n", m.name, m.node, strings.Join(m.closed, " or "))
	if _, err := k.ctl("default", append([]string{"cordon"}, m.closed...)...); err != nil {
		return p, err
	}
	_, err = k.ctl("play", "delete", "pod", m.name)
	if err == nil {
		p, err = k.steady()
	}
	_, opened := k.ctl("default", append([]string{"uncordon"}, m.closed...)...)
	return p, errors.Join(err, opened)
}
