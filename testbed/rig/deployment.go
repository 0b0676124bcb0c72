//go:build linux

// Package rig runs a whole deployment as processes of one machine: NATS servers, Redis,
// relays and edges, each with an address of its own. The addresses are of the loopback
// network, or of network namespaces around a bridge, which needs root. Hosts in
// namespaces can be cut off from the others.
//
//	d, err := rig.Deploy(ctx, rig.Config{Bin: "bin", NATSConf: "helm/relay/charts/nats/files/nats-server.conf", Dir: dir, NATS: 1, Relays: 1, Edges: 3})
//	defer d.Close()
//
// All processes end with this one. Namespaces have no names; they end with the last
// process and socket in them.
package rig

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/internal/proctest"
	"github.com/nats-io/nats.go"
	"github.com/redis/go-redis/v9"
)

// Ports of the hosts. All edges listen for clients on one port at different addresses, as
// pods do: the port that a client talks to belongs to the name of its session.
const (
	NATSPort    = 4222
	natsWebPort = 8222
	routePort   = 6222
	redisPort   = 6379
	gossipPort  = 7946
	HTTPPort    = 8413
	forwardPort = 3414
	DNPPort     = 3413
	WebPort     = 3480
)

// StartTimeout bounds the start of a deployment.
const StartTimeout = 60 * time.Second

// A Config says what to deploy.
type Config struct {
	Bin      string   // folder with relay, edge and nats-server
	Programs string   // folder with relay and edge, if it is another one
	NATSConf string   // configuration of a clustered NATS server; one server alone takes only its mappings
	Redis    string   // the program redis-server; empty = none
	Dir      string   // for logs and streams; it must exist
	Network  *Network // nil means loopback; Deployment.Close closes it

	NATS, Relays, Edges int      // how many of each
	NodeFlags           []string // of relays and edges
	RelayFlags          []string
	EdgeFlags           []string // with Redis, edges also get --redis and --forward-listen
	Web                 bool     // edges listen for WebSockets at WebPort
}

// A Node is a program on a host. It can be started again after it ended.
type Node struct {
	Name string
	File string // the program
	Args []string
	Env  []string // added to the environment of this process
	Host *Host

	*proctest.Process        // nil before the first start
	log               string // file to which the output is appended
}

// Start starts the program.
func (n *Node) Start() error {
	out, err := os.OpenFile(n.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer out.Close()
	fmt.Fprintf(out, "--- %s started at %s\n", n.Name, time.Now().Format(time.StampMilli))
	cmd := exec.Command(n.File, n.Args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = append(os.Environ(), n.Env...), out, out
	return n.Host.start(func() error {
		p, err := proctest.Start(n.Name, cmd)
		if err == nil {
			n.Process = p
		}
		return err
	})
}

// A Deployment is all processes and the network between them.
type Deployment struct {
	*Network
	NATS, Relays, Edges []*Node
	Redis               *Node // nil without
	NATSURLs            []string
	Here                *Host // on which this process opens sockets to speak with the nodes
	Web                 Web

	cfg *Config
}

// Deploy starts everything and waits until every relay and edge is ready, and knows all others. Close ends what
// it started, also after an error.
func Deploy(ctx context.Context, cfg Config) (d *Deployment, err error) {
	d = &Deployment{cfg: &cfg, Network: cfg.Network}
	if d.Network == nil {
		d.Network = NewLoopback()
	}
	if err := d.makeNodes(); err != nil {
		return d, err
	}
	for _, n := range d.Nodes() {
		if err := n.Start(); err != nil {
			return d, err
		}
	}
	for _, n := range slices.Concat(d.Relays, d.Edges) {
		if err := d.AwaitReady(ctx, n); err != nil {
			return d, err
		}
	}
	return d, d.awaitMembers(ctx)
}

// awaitMembers waits until every relay and edge knows all others: an edge that dies before is missed by none.
func (d *Deployment) awaitMembers(ctx context.Context) error {
	all := slices.Concat(d.Relays, d.Edges)
	for _, n := range all {
		err := n.Await(ctx, StartTimeout, "knows all nodes", func() bool {
			known, _ := d.Web.Metric(n.Host.At(HTTPPort), "dnp_cluster_members")
			return int(known) == len(all)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *Deployment) makeNodes() (err error) {
	group := func(prefix string, count int) (list []*Node) {
		for i := range count {
			n, e := d.node(fmt.Sprint(prefix, i+1))
			list, err = append(list, n), errors.Join(err, e)
		}
		return list
	}
	d.NATS, d.Relays, d.Edges = group("nats", d.cfg.NATS), group("relay", d.cfg.Relays), group("edge", d.cfg.Edges)
	if d.cfg.Redis != "" {
		d.Redis = group("redis", 1)[0]
	}
	here, e := d.Add("here")
	if d.Here = here; cmp.Or(err, e) != nil {
		return cmp.Or(err, e)
	}
	d.Web = NewWeb(d.Here, WebTimeout)
	for _, n := range d.NATS {
		d.NATSURLs = append(d.NATSURLs, "nats://"+n.Host.At(NATSPort))
	}
	if d.Redis != nil {
		d.Redis.File = d.cfg.Redis
		d.Redis.Args = []string{"--bind", d.Redis.Host.Addr.String(), "--port", strconv.Itoa(redisPort), "--protected-mode", "no", "--save", "", "--dir", d.cfg.Dir}
	}
	if err := d.setNATS(); err != nil {
		return err
	}
	return d.setRelaysAndEdges()
}

// node makes a host and a process without a program. It is not nil even with an error.
func (d *Deployment) node(name string) (*Node, error) {
	host, err := d.Add(name)
	return &Node{Name: name, Host: host, log: filepath.Join(d.cfg.Dir, name+".log")}, err
}

func (d *Deployment) setNATS() error {
	var routes []string
	for _, n := range d.NATS {
		routes = append(routes, "nats://"+n.Host.At(routePort))
	}
	for i, n := range d.NATS {
		conf, err := d.natsConf(i)
		if err != nil {
			return err
		}
		store := d.store(n)
		if _, err := os.Stat(store); err == nil {
			return fmt.Errorf("%s has the streams of another run", store)
		}
		n.File, n.Args = filepath.Join(d.cfg.Bin, "nats-server"), []string{"-c", conf, "-m", strconv.Itoa(natsWebPort)}
		n.Env = []string{
			"NATS_NAME=" + n.Name, "NATS_LISTEN=" + n.Host.At(NATSPort), "NATS_ROUTE=" + n.Host.At(routePort),
			"NATS_ROUTES=[" + strings.Join(routes, ",") + "]", "NATS_STORE=" + store,
			"NATS_LOG_COPY=" + fmt.Sprint("dnprelay-log-", i+1),
		}
	}
	return nil
}

// store is the folder of a NATS server's streams.
func (d *Deployment) store(n *Node) string { return filepath.Join(d.cfg.Dir, n.Name) }

// WipeNATS deletes the streams of a NATS server that does not run.
func (d *Deployment) WipeNATS(n *Node) error { return os.RemoveAll(d.store(n)) }

// natsConf writes the configuration of a NATS server: the file for clustered servers, of which a
// server alone takes the mappings.
func (d *Deployment) natsConf(i int) (file string, err error) {
	text, part := "", d.cfg.NATSConf
	if len(d.NATS) == 1 {
		text = "server_name: $NATS_NAME\nlisten: $NATS_LISTEN\nmax_payload: 2MB\njetstream { store_dir: $NATS_STORE }\n"
		part = filepath.Join(filepath.Dir(part), "mappings.conf")
	}
	if part, err = filepath.Abs(part); err == nil {
		part, err = filepath.Rel(d.cfg.Dir, part) // nats-server reads it from the folder of this file on
	}
	if err != nil {
		return "", err
	}
	file = filepath.Join(d.cfg.Dir, d.NATS[i].Name+".conf")
	return file, os.WriteFile(file, fmt.Appendf(nil, "%sinclude '%s'\n", text, part), 0o644)
}

func (d *Deployment) setRelaysAndEdges() error {
	key := make([]byte, 32)
	rand.Read(key)
	keyFile := filepath.Join(d.cfg.Dir, "gossip.key")
	if err := os.WriteFile(keyFile, []byte(hex.EncodeToString(key)+"\n"), 0o600); err != nil {
		return err
	}
	var join []string
	for _, r := range d.Relays {
		join = append(join, r.Host.At(gossipPort))
	}
	set := func(n *Node, program string, flags ...string) {
		n.File = filepath.Join(cmp.Or(d.cfg.Programs, d.cfg.Bin), program)
		n.Args = append([]string{
			"serve", "--node", n.Name, "--nats-url", strings.Join(d.NATSURLs, ","), "--http", n.Host.At(HTTPPort),
			"--gossip-bind", n.Host.At(gossipPort), "--gossip-join", strings.Join(join, ","), "--gossip-key-file", keyFile,
		}, append(flags, d.cfg.NodeFlags...)...)
	}
	for _, n := range d.Relays {
		set(n, "relay", append([]string{"--replicas", strconv.Itoa(len(d.NATS))}, d.cfg.RelayFlags...)...)
	}
	for _, n := range d.Edges {
		flags := append([]string{"--listen", "udp://" + n.Host.At(DNPPort)}, d.cfg.EdgeFlags...)
		if d.cfg.Web {
			flags = append(flags, "--websocket", n.Host.At(WebPort))
		}
		if d.Redis != nil {
			flags = append(flags, "--redis", "redis://"+d.RedisAddr(), "--forward-listen", n.Host.At(forwardPort))
		}
		set(n, "edge", flags...)
	}
	return nil
}

// RedisAddr returns where Redis listens.
func (d *Deployment) RedisAddr() string { return d.Redis.Host.At(redisPort) }

// Nodes returns all nodes in the order of their start.
func (d *Deployment) Nodes() []*Node {
	list := append([]*Node{}, d.NATS...)
	if d.Redis != nil {
		list = append(list, d.Redis)
	}
	return append(append(list, d.Relays...), d.Edges...)
}

// Named returns the node of a list with this name, or nil.
func Named(list []*Node, name string) *Node {
	if i := slices.IndexFunc(list, func(n *Node) bool { return n.Name == name }); i >= 0 {
		return list[i]
	}
	return nil
}

// IsReady reports whether /readyz of a node says so.
func (d *Deployment) IsReady(n *Node) bool {
	_, status := d.Web.Get(n.Host.At(HTTPPort), "/readyz")
	return status == 200
}

// AwaitReady waits until a node is ready; the error says that it is not, or that it ended.
func (d *Deployment) AwaitReady(ctx context.Context, n *Node) error {
	return n.Await(ctx, StartTimeout, "is ready", func() bool { return d.IsReady(n) })
}

// Restart starts a node that has ended, and waits until it is ready.
func (d *Deployment) Restart(ctx context.Context, n *Node) error {
	if err := n.Start(); err != nil {
		return err
	}
	return d.AwaitReady(ctx, n)
}

// Check returns an error for each process that has ended and was not told to.
func (d *Deployment) Check() (err error) {
	for _, n := range d.Nodes() {
		err = errors.Join(err, n.Ended())
	}
	return err
}

// Close ends all processes as crashes do, and then the network.
func (d *Deployment) Close() {
	for _, n := range d.Nodes() {
		if n.Process != nil {
			_ = n.Kill() // fails only if it has ended
		}
	}
	d.Network.Close()
}

// redisClient returns a client of Redis that gives up after a second.
func (d *Deployment) redisClient() *redis.Client {
	dial := func(_ context.Context, network, addr string) (net.Conn, error) { return d.Here.Dial(network, addr) }
	return redis.NewClient(&redis.Options{Addr: d.RedisAddr(), Dialer: dial, ReadTimeout: time.Second, WriteTimeout: time.Second, MaxRetries: -1})
}

// TellRedis sends a command to Redis; only an error of the connection is reported.
func (d *Deployment) TellRedis(ctx context.Context, words ...any) error {
	c := d.redisClient()
	defer c.Close()
	err := c.Do(ctx, words...).Err()
	var answer redis.Error
	if errors.As(err, &answer) {
		return nil
	}
	return err
}

// EdgeAddrs returns where clients reach the edges.
func (d *Deployment) EdgeAddrs() (list []netip.AddrPort) {
	for _, e := range d.Edges {
		list = append(list, e.Host.AddrPort(DNPPort))
	}
	return list
}

// CPU returns the CPU time of nodes.
func CPU(nodes []*Node) (sum time.Duration) {
	for _, n := range nodes {
		sum += proctest.CPU(n.PID())
	}
	return sum
}

// Whole reports whether all NATS servers are healthy, and every stream has all copies, up to
// date.
func (d *Deployment) Whole(nc *nats.Conn) bool {
	for _, n := range d.NATS {
		if _, status := d.Web.Get(n.Host.At(natsWebPort), "/healthz"); status != http.StatusOK {
			return false
		}
	}
	js, err := nc.JetStream(nats.MaxWait(WebTimeout))
	if err != nil {
		return false
	}
	names, whole := 0, 0
	for range js.StreamNames() {
		names++
	}
	for s := range js.Streams() { // without those that have no leader
		if whole++; s.Config.Replicas > 1 && !current(s.Cluster, s.Config.Replicas) {
			return false
		}
	}
	return names > 0 && names == whole
}

func current(c *nats.ClusterInfo, copies int) bool {
	return c != nil && c.Leader != "" && len(c.Replicas) == copies-1 &&
		!slices.ContainsFunc(c.Replicas, func(r *nats.PeerInfo) bool { return !r.Current || r.Offline })
}

// NATSMessages returns how many messages the NATS servers have received.
func (d *Deployment) NATSMessages() (sum uint64) {
	for _, n := range d.NATS {
		var told struct {
			InMsgs uint64 `json:"in_msgs"`
		}
		text, _ := d.Web.Get(n.Host.At(natsWebPort), "/varz")
		_ = json.Unmarshal([]byte(text), &told) // a server that does not answer has received none
		sum += told.InMsgs
	}
	return sum
}

// RedisCommands returns how many commands Redis has carried out.
func (d *Deployment) RedisCommands(ctx context.Context) (uint64, error) {
	if d.Redis == nil {
		return 0, errors.New("there is no Redis")
	}
	c := d.redisClient()
	defer c.Close()
	info := c.InfoMap(ctx, "stats")
	if err := info.Err(); err != nil {
		return 0, err
	}
	return strconv.ParseUint(info.Item("Stats", "total_commands_processed"), 10, 64)
}

// Sleep waits for d or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Every calls f once per d until ctx ends.
func Every(ctx context.Context, d time.Duration, f func()) {
	tick := time.NewTicker(d)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			f()
		}
	}
}
