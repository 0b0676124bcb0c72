//go:build linux

package clustertest

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/lease"
	"github.com/dnprelay/dnprelay/cluster/natslease"
	"github.com/dnprelay/dnprelay/testbed/play"
	"github.com/dnprelay/dnprelay/testbed/rig"
	"github.com/nats-io/nats.go"
)

// Sizes of the cluster.
const (
	servers = 3 // of NATS
	relays  = 3
	edges   = 2

	space        = "match"
	shards       = 64
	storeStreams = 4
)

// shard is the one to which the space belongs.
var shard = cluster.Shard(space, shards)

// A testCluster is a deployment in namespaces with proxies before its edges.
type testCluster struct {
	*rig.Deployment
	toEdge []*play.Balancer // from the clients behind a bad path
}

// deploy starts everything and waits until every node is ready.
func deploy(ctx context.Context, cfg *Config) (c *testCluster, err error) {
	deployment := cfg.Config
	if deployment.Network, err = rig.NewNamespaces(); err != nil {
		return nil, err
	}
	deployment.NATS, deployment.Relays, deployment.Edges = servers, relays, edges
	deployment.NodeFlags = []string{"--shards", fmt.Sprint(shards)}
	deployment.RelayFlags = []string{"--store-streams", fmt.Sprint(storeStreams)}
	deployment.EdgeFlags = []string{"--workers", "2", "--open-space", space}
	c = &testCluster{}
	c.Deployment, err = rig.Deploy(ctx, deployment)
	for i := 0; i < edges && err == nil; i++ {
		var p *play.Balancer
		p, err = play.NewBalancer(play.BalancerConfig{
			Listen: c.Here.AddrPort(0), Edges: c.EdgeAddrs()[i : i+1], Host: c.Here, Path: impaired, Seed: cfg.Seed + uint64(i),
		})
		if err == nil {
			c.toEdge = append(c.toEdge, p)
		}
	}
	return c, err
}

func (c *testCluster) close() {
	c.Close()
	for _, p := range c.toEdge {
		p.Close()
	}
}

// holder returns the relay that holds the shard of the space by the record in the store;
// nil if no relay does or the store does not answer.
func (r *run) holder() *rig.Node {
	request := fmt.Sprintf(`{"last_by_subj":%q}`, r.game.subjects.StoreOwn(shard))
	m, err := r.game.nc.Request("$JS.API.STREAM.MSG.GET."+stream(), []byte(request), time.Second)
	if err != nil {
		return nil
	}
	var a struct {
		Message struct{ Data []byte }
	}
	var own lease.Owner
	if json.Unmarshal(m.Data, &a) != nil || json.Unmarshal(a.Message.Data, &own) != nil || own.Node == "" {
		return nil
	}
	return rig.Named(r.Relays, own.Node)
}

func stream() string { return natslease.StreamName(shard % storeStreams) }

// streamLeader returns the NATS server that leads the stream of the shard, nil if there is
// none.
func (r *run) streamLeader() *rig.Node {
	js, err := r.game.nc.JetStream(nats.MaxWait(time.Second))
	if err != nil {
		return nil
	}
	info, err := js.StreamInfo(stream())
	if err != nil || info.Cluster == nil {
		return nil
	}
	return rig.Named(r.NATS, info.Cluster.Leader)
}

// failMost bounds the time that a publish may take to fail without NATS. It leaves room
// for a busy machine and is far below any timeout.
const failMost = time.Second

// natsNoticed is how long nodes may take to report that NATS is missing. A connection to
// a dead process ends at once.
const natsNoticed = 3 * time.Second

// checkWithoutNATS checks nodes and publishers while NATS is away: edges serve and report
// that it is missing, relays are not ready, publishers get errors at once.
func (s *scene) checkWithoutNATS(since time.Duration) {
	if since < natsNoticed {
		return
	}
	note := func(format string, args ...any) {
		s.violations = append(s.violations, fmt.Sprintf("%.0f s without NATS: ", since.Seconds())+fmt.Sprintf(format, args...))
	}
	check := func(n *rig.Node, ready bool) {
		if h := s.Web.Health(n.Host.At(rig.HTTPPort)); !h.Live || h.Ready != ready || !h.Lacks("nats") {
			note("%s is live: %v, ready: %v, missing: %q", n.Name, h.Live, h.Ready, h.Missing)
		}
	}
	for _, n := range s.Edges {
		check(n, true)
	}
	for _, n := range s.Relays {
		check(n, false)
	}
	s.game.mu.Lock()
	defer s.game.mu.Unlock()
	if s.game.failed == 0 || s.game.slowest > failMost {
		note("%d publishes failed at once, the slowest after %v", s.game.failed, s.game.slowest)
	}
}
