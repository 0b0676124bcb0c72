//go:build linux

package clustertest

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/internal/proc"
)

// Sizes of the cluster.
const (
	servers = 3 // of NATS
	relays  = 3
	edges   = 2
)

const (
	natsPort   = 4222
	routePort  = 6222
	gossipPort = 7946
	dnpPort    = 3413

	space        = "match"
	shards       = 64
	storeStreams = 4

	startTimeout = 60 * time.Second
)

// A deployment is all processes and the network between them.
type deployment struct {
	*network
	cfg *Config
	dir string

	nats, relays, edges     []*node
	game, players, proxies  *host
	toNATS                  []*tcpProxy // from the edges, one for each server
	toEdge                  []*udpProxy // from impaired clients
	web                     *http.Client
	gossipKey, gossipJoined string
}

// A node is a program on a host.
type node struct {
	*host
	proc.Node
}

// deploy starts everything and waits until every node is ready.
func deploy(ctx context.Context, cfg *Config) (d *deployment, err error) {
	d = &deployment{cfg: cfg, dir: cfg.Dir}
	if d.network, err = newNetwork(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			d.close()
		}
	}()
	if err := d.makeHosts(); err != nil {
		return d, err
	}
	if err := d.makeNodes(); err != nil {
		return d, err
	}
	for _, n := range d.nodes() {
		if err := n.Start(); err != nil {
			return d, err
		}
	}
	return d, d.ready(ctx)
}

// makeHosts makes the namespaces and the proxies in one of them.
func (d *deployment) makeHosts() (err error) {
	host := func(name string, last int) *host {
		h, e := d.add(name, byte(last))
		err = errors.Join(err, e)
		return h
	}
	group := func(prefix string, count, first int) (list []*node) {
		for i := range count {
			name := fmt.Sprint(prefix, i+1)
			h := host(name, first+i)
			n := &node{host: h, Node: proc.Node{Name: name, Log: proc.LogFile(d.dir, name)}}
			if h != nil {
				n.On = h.do
			}
			list = append(list, n)
		}
		return list
	}
	d.nats, d.relays, d.edges = group("nats", servers, 11), group("relay", relays, 21), group("edge", edges, 31)
	d.game, d.players, d.proxies = host("game", 41), host("players", 51), host("proxies", 61)
	if err != nil {
		return err
	}
	d.web = newWeb(d.game.netns)
	for i, n := range d.nats {
		p, err := newTCPProxy(d.proxies.netns, d.proxies.at(uint16(natsPort+i)), n.at(natsPort), 0)
		if err != nil {
			return err
		}
		d.toNATS = append(d.toNATS, p)
	}
	for i, e := range d.edges {
		p, err := newUDPProxy(d.proxies.netns, netip.AddrPortFrom(d.proxies.addr, uint16(dnpPort+i)),
			netip.AddrPortFrom(e.addr, dnpPort), d.cfg.Impaired, newDice(d.cfg.Seed, uint64(i)))
		if err != nil {
			return err
		}
		d.toEdge = append(d.toEdge, p)
	}
	return nil
}

// makeNodes says what runs where.
func (d *deployment) makeNodes() error {
	key := make([]byte, 32)
	rand.Read(key)
	d.gossipKey = filepath.Join(d.dir, "gossip.key")
	if err := os.WriteFile(d.gossipKey, []byte(hex.EncodeToString(key)+"\n"), 0o600); err != nil {
		return err
	}
	var routes, urls, proxied, join []string
	for i, n := range d.nats {
		routes = append(routes, "nats://"+n.at(routePort))
		urls = append(urls, "nats://"+n.at(natsPort))
		proxied = append(proxied, fmt.Sprintf("nats://%s", d.proxies.at(uint16(natsPort+i))))
	}
	for _, r := range d.relays {
		join = append(join, r.at(gossipPort))
	}
	d.gossipJoined = strings.Join(join, ",")
	for _, n := range d.nats {
		n.File, n.Args = filepath.Join(d.cfg.Bin, "nats-server"), []string{"-c", d.cfg.NATSConf}
		n.Env = []string{
			"NATS_NAME=" + n.name, "NATS_LISTEN=" + n.at(natsPort), "NATS_ROUTE=" + n.at(routePort),
			"NATS_ROUTES=[" + strings.Join(routes, ",") + "]", "NATS_STORE=" + filepath.Join(d.dir, n.name),
		}
	}
	for _, n := range d.relays {
		n.File = filepath.Join(d.cfg.Bin, "relay")
		n.Args = append(d.common(n, urls), "--replicas", fmt.Sprint(servers), "--store-streams", fmt.Sprint(storeStreams))
	}
	for _, n := range d.edges {
		n.File = filepath.Join(d.cfg.Bin, "edge")
		n.Args = append(d.common(n, proxied), "--listen", "udp://"+n.at(dnpPort), "--workers", "2", "--open-space", space)
	}
	return nil
}

// common are the flags of every node.
func (d *deployment) common(n *node, urls []string) []string {
	return []string{
		"serve", "--node", n.name, "--nats-url", strings.Join(urls, ","), "--http", n.at(webPort), "--shards", fmt.Sprint(shards),
		"--gossip-bind", n.at(gossipPort), "--gossip-join", d.gossipJoined, "--gossip-key-file", d.gossipKey,
	}
}

// nodes returns all nodes in the order of their start.
func (d *deployment) nodes() []*node {
	return append(append(append([]*node{}, d.nats...), d.relays...), d.edges...)
}

// ready waits until all relays and edges are.
func (d *deployment) ready(ctx context.Context) error {
	for _, n := range append(append([]*node{}, d.relays...), d.edges...) {
		err := proc.Await(ctx, startTimeout, n.name+" is ready", func() bool { return n.Ended() != nil || ask(d.web, n.host).ready })
		if err = errors.Join(n.Ended(), err); err != nil {
			return err
		}
	}
	return nil
}

// check returns an error if a process has ended that was not told to.
func (d *deployment) check() (err error) {
	for _, n := range d.nodes() {
		err = errors.Join(err, n.Ended())
	}
	return err
}

// relay returns the relay with this name, or nil.
func (d *deployment) relay(name string) *node { return named(d.relays, name) }

func named(list []*node, name string) *node {
	for _, n := range list {
		if n.name == name {
			return n
		}
	}
	return nil
}

// close ends everything. What was paused or cut off ends, too.
func (d *deployment) close() {
	for _, h := range d.hosts {
		_ = d.cut(h, false) // fails for all that are not cut off
	}
	for _, list := range [][]*node{d.edges, d.relays, d.nats} {
		done := make(chan struct{}, len(list))
		for _, n := range list {
			go func() { n.Stop(); done <- struct{}{} }()
		}
		for range list {
			<-done
		}
	}
	for _, p := range d.toEdge {
		p.close()
	}
	for _, p := range d.toNATS {
		p.close()
	}
	d.network.close()
}
