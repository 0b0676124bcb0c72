//go:build linux

package k8stest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/testbed/history"
	"github.com/dnprelay/dnprelay/testbed/play"
	"github.com/dnprelay/dnprelay/testbed/rig"
	natsgo "github.com/nats-io/nats.go"
)

// Metrics that tell the busiest pod.
const (
	sessionsMetric = "dnp_edge_sessions"
	spacesMetric   = "dnp_relay_spaces"
)

// The pace of the game.
const (
	worldPace   = 100 * time.Millisecond // of the state that all clients see
	messagePace = 250 * time.Millisecond // of messages, both ways
	slowMost    = 2 * time.Second        // between two messages of a slow player, one of history.Listener
)

// A fleet is clients, a game server and the balancer before the edges.
type fleet struct {
	*play.Crowd
	k        *kube
	name     string // begins the names of players: messages of an earlier fleet may be in the stream
	balancer *balancer
	late     lateness
	full     string // the node that arrange filled
}

// A scenario disturbs a deployment under load and returns when it is done; clients may
// still be disconnected then.
type scenario struct {
	name    string
	prepare func(f *fleet) error // brings about what do disturbs, and is not judged; nil if nothing is needed
	do      func(f *fleet) error
}

const (
	nothing   = "nothing"
	preparing = "preparation" // of a scenario; a phase without a row
	fullCut   = "node with an edge, a relay, a NATS server and Redis cut off for 30 s"
	avoidCut  = "the same node, and no flow comes in over it"
)

var scenarios = []scenario{
	{nothing, nil, func(f *fleet) error { return f.k.sleep(20 * time.Second) }},
	{"rolling update of edges", nil, func(f *fleet) error { return f.k.restart("deployment/dnprelay-edge") }},
	{"rolling update of relays", nil, func(f *fleet) error { return f.k.restart("statefulset/dnprelay-relay") }},
	{"edge deleted by force", nil, func(f *fleet) error { return f.k.deletePod(edges, "8414", sessionsMetric, "deployment/dnprelay-edge") }},
	{"relay deleted by force", nil, func(f *fleet) error { return f.k.deletePod(relays, "8413", spacesMetric, "statefulset/dnprelay-relay") }},
	{"helm upgrade of edges and relays", nil, func(f *fleet) error { return f.k.upgrade() }},
	{"helm rollback", nil, func(f *fleet) error { return f.k.rollback() }},
	{"rolling update of NATS", nil, func(f *fleet) error { return f.k.restart("statefulset/dnprelay-nats") }},
	{fullCut, func(f *fleet) error { return f.arrange(true) }, (*fleet).cutFull},
	{avoidCut, func(f *fleet) error { return f.arrange(false) }, (*fleet).cutFull},
}

// playScenarios exposes the edges to clients outside, runs all scenarios while they play,
// and returns a row for each.
func playScenarios(k *kube) ([]Row, error) {
	if err := k.expose(playValues(k.cfg.Durability)...); err != nil {
		return nil, err
	}
	f, err := newFleet(k, "players", k.cfg.Players)
	if err != nil {
		return nil, err
	}
	defer f.Stop() // the check of the file finds missing records
	for i, s := range scenarios {
		if !listed(k.cfg.Rows, strconv.Itoa(i+1)) {
			continue
		}
		if err := f.measure(s); err != nil {
			rows, bad := f.finish()
			return rows, errors.Join(err, bad)
		}
	}
	return f.finish()
}

// playValues are the values of a deployment with players.
func playValues(durability string) []string {
	return []string{
		"edge.service.type=LoadBalancer,edge.auth.allowOpenOnPublicService=true",
		fmt.Sprintf("edge.config.sessionDurability=%s,redis.enabled=%t", durability, durability == "log"),
	}
}

// expose installs in namespace play, gives the service of the edges an address, and waits
// until everything is ready.
func (k *kube) expose(values ...string) error {
	if _, err := k.namespace("play"); err != nil { // it does not exist if the step defaults was not run
		return err
	}
	if err := k.install("play", false, values...); err != nil {
		return err
	}
	if _, err := k.command("", k.cfg.Cluster, "lb"); err != nil {
		return err
	}
	if err := k.install("play", true, values...); err != nil {
		return err
	}
	return k.rolledOut("deployment/dnprelay-edge", "statefulset/dnprelay-relay", "statefulset/dnprelay-nats") // helm does not wait for the old pods to go
}

// newFleet starts players, the game server and the balancer, and waits until all players
// play. name is that of the history.
func newFleet(k *kube, name string, players int) (*fleet, error) {
	text, err := k.ctl("play", "get", "service", "dnprelay-edge", "-o", "jsonpath={.status.loadBalancer.ingress[0].ip} {.spec.healthCheckNodePort}")
	if err != nil {
		return nil, err
	}
	address, port, _ := strings.Cut(text, " ")
	server, err := netip.ParseAddr(address)
	if err != nil {
		return nil, fmt.Errorf("the service has the address %q", address)
	}
	nodes, err := k.ways()
	if err != nil {
		return nil, err
	}
	ctx, crowd, err := play.NewCrowd(k.ctx, filepath.Join(k.cfg.Dir, name+".jsonl"))
	if err != nil {
		return nil, err
	}
	f := &fleet{Crowd: crowd, k: k, name: name, balancer: newBalancer(address, port, nodes, crowd.Log)}
	if err := f.start(ctx, netip.AddrPortFrom(server, 3413), players); err != nil {
		_ = f.Stop() // the first error says more
		return nil, err
	}
	return f, nil
}

// ways returns the nodes of the cluster.
func (k *kube) ways() (list []way, err error) {
	text, err := k.ctl("default", "get", "nodes", "-o", `jsonpath={range .items[*]}{.metadata.name} {.status.addresses[?(@.type=="InternalIP")].address}{"\n"}{end}`)
	for line := range strings.Lines(text) {
		if f := strings.Fields(line); len(f) == 2 {
			list = append(list, way{name: f[0], addr: f[1]})
		}
	}
	return list, err
}

// start starts the balancer, the game and the players, and waits until all play.
func (f *fleet) start(ctx context.Context, server netip.AddrPort, players int) error {
	f.Pace.Set(messagePace)
	f.Breaks.Set(slowMost - play.Spread)
	f.Go(func() { f.balancer.run(ctx) })
	f.Go(func() { f.late.run(ctx) })
	if err := f.seesEdges(); err != nil {
		return err
	}
	if err := f.startGame(ctx); err != nil {
		return err
	}
	for i := range players {
		p := &play.Player{
			Name: playerName(f.name, i), Behaviour: dnptest.Cpp(), Server: server,
			Local: netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 198, byte(i / 250), byte(1 + i%250)}), 0),
			Rand:  rand.New(rand.NewPCG(1, uint64(i))),
		}
		if err := ipBatch("addr replace " + p.Local.Addr().String() + "/32 dev lo"); err != nil {
			return err
		}
		if err := f.balancer.join(p.Name, p.Local.Addr()); err != nil {
			return err
		}
		f.Join(ctx, p)
	}
	f.Log.Add(history.Record{Kind: history.Route, Note: f.balancer.String()})
	return f.settle()
}

// playerName returns the name of player i. Half of the players are slow: every second pair of
// neighbours, which the balancer sends over different nodes.
func playerName(fleet string, i int) string {
	if (i+1)/2%2 == 1 {
		fleet = history.ListenerPrefix + fleet
	}
	return fmt.Sprint(fleet, i)
}

// A podDialer dials pods by their names, as the DNS of the cluster resolves them: the next
// pod of a name has another address.
type podDialer struct{ k *kube }

func (d podDialer) Dial(network, address string) (net.Conn, error) {
	name, port, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	ip, err := d.k.ctl("play", "get", "pod", name, "-o", "jsonpath={.status.podIP}")
	if err != nil {
		return nil, err
	}
	return net.DialTimeout(network, net.JoinHostPort(ip, port), time.Second)
}

// startGame connects the game server to NATS at the names of its pods.
func (f *fleet) startGame(ctx context.Context) error {
	password, err := f.k.secret("play", "dnprelay-nats-auth", "publisher")
	if err != nil {
		return err
	}
	servers, err := f.k.pods("play", nats)
	if err != nil {
		return err
	}
	var urls []string
	for _, s := range servers {
		urls = append(urls, "nats://"+s.name+":4222")
	}
	err = f.StartGame(ctx, play.GameConfig{
		URL: strings.Join(urls, ","), Space: "demo", WorldPace: worldPace, Log: f.k.cfg.Durability == "log",
		Options: []natsgo.Option{
			natsgo.UserInfo("publisher", password), natsgo.SetCustomDialer(podDialer{f.k}), natsgo.SkipHostLookup(), natsgo.IgnoreDiscoveredServers(),
			natsgo.ReconnectWait(100 * time.Millisecond), natsgo.PingInterval(time.Second), natsgo.MaxPingsOutstanding(2),
		},
	})
	if err != nil {
		return fmt.Errorf("game server: %w", err)
	}
	return nil
}

// settle waits until all players have played for three seconds.
func (f *fleet) settle() error {
	var since time.Time
	return f.k.await(f.k.cfg.Settle, "all clients play", func() bool {
		now := time.Now()
		if slices.ContainsFunc(f.Players, func(p *play.Player) bool { return !p.Playing(now) }) {
			since = time.Time{}
			return false
		}
		if since.IsZero() {
			since = now
		}
		return now.Sub(since) > 3*time.Second
	})
}

// measure runs one scenario as a phase of the history.
func (f *fleet) measure(s scenario) error {
	if s.prepare != nil {
		f.Log.Phase(preparing, 0)
		if err := s.prepare(f); err != nil {
			return fmt.Errorf("preparation of %q: %w", s.name, err)
		}
	}
	f.Log.Phase(s.name, 0)
	f.late.take()
	start := time.Now()
	if err := f.Log.During(s.name, "", func() error { return s.do(f) }); err != nil {
		return fmt.Errorf("%s: %w", s.name, err)
	}
	took := time.Since(start)
	if err := f.settle(); err != nil {
		f.Log.Add(history.Record{Kind: history.Problem, Note: err.Error()})
	}
	if err := f.k.sleep(3 * time.Second); err != nil { // for messages under way
		return err
	}
	f.Log.Add(history.Record{Kind: history.Late, D: f.late.take().Microseconds()})
	for _, p := range f.Players {
		f.Log.Add(history.Record{Kind: history.Stale, Who: p.Name, D: p.Gap(start, time.Now()).Microseconds()})
	}
	fmt.Printf("   %s: %.2f s\n", s.name, took.Seconds())
	return nil
}

// finish ends the messages, waits for those under way, and returns two rows for each scenario: of
// the players that speak often, and of slow ones. The error names violations.
func (f *fleet) finish() ([]Row, error) {
	all, err := f.Finish(f.k.ctx)
	unsaved := f.k.saveLogs("play")
	if err != nil {
		return nil, errors.Join(err, unsaved)
	}
	often, bad := f.Judge(history.Speaker)
	slow, worse := f.Judge(history.Listener)
	if err := errors.Join(bad, worse); err != nil {
		return nil, errors.Join(err, unsaved)
	}
	for _, line := range all.Remarks {
		fmt.Println("   REMARK", line)
	}
	var rows []Row
	var violations []string
	for _, r := range newRows(often.Phases, slow.Phases, f.Players) {
		fmt.Println("  ", r)
		if r.Name == preparing {
			continue
		}
		rows, violations = append(rows, r), append(violations, r.violations(f.k.cfg.Durability)...)
	}
	if len(violations) > 0 {
		return rows, errors.Join(errors.New(strings.Join(violations, "; ")), unsaved)
	}
	return rows, unsaved
}

// latePace is the time between two looks at the clock of a lateness.
const latePace = 20 * time.Millisecond

// A lateness measures for how long the machine delays this program. Servers and edges are
// delayed as long, so it tells a busy machine from a fault of theirs.
type lateness struct{ longest atomic.Int64 }

// run measures until ctx ends.
func (l *lateness) run(ctx context.Context) {
	last := time.Now()
	rig.Every(ctx, latePace, func() {
		now := time.Now()
		l.longest.Store(max(l.longest.Load(), int64(now.Sub(last)-latePace)))
		last = now
	})
}

// take returns the longest delay since the last call.
func (l *lateness) take() time.Duration { return time.Duration(l.longest.Swap(0)) }

func (k *kube) sleep(d time.Duration) error {
	rig.Sleep(k.ctx, d)
	return k.ctx.Err()
}

func (k *kube) restart(workload string) error {
	if _, err := k.ctl("play", "rollout", "restart", workload); err != nil {
		return err
	}
	return k.rolledOut(workload)
}

func (k *kube) upgrade() error {
	if err := k.install("play", true, append(playValues(k.cfg.Durability), "log.level=debug")...); err != nil {
		return err
	}
	return k.rolledOut("deployment/dnprelay-edge", "statefulset/dnprelay-relay")
}

func (k *kube) rollback() error {
	if _, err := k.helm("play", "rollback", "dnprelay", "--wait", "--timeout", "4m"); err != nil {
		return err
	}
	return k.rolledOut("deployment/dnprelay-edge", "statefulset/dnprelay-relay")
}

// rolledOut waits until workloads have only new pods.
func (k *kube) rolledOut(workloads ...string) error {
	for _, w := range workloads {
		if _, err := k.ctl("play", "rollout", "status", w, "--timeout", "4m"); err != nil {
			return err
		}
	}
	return nil
}

// A load is a metric of pods: the pod with the largest value, that value, and the sum of all.
type load struct {
	pod
	most, all float64
}

func (k *kube) load(selector, port, metric string) (l load, err error) {
	pods, err := k.pods("play", selector)
	for _, p := range pods {
		n, ok := k.web.Metric(p.addr+":"+port, metric)
		if l.all += n; ok && (l.name == "" || n > l.most) {
			l.pod, l.most = p, n
		}
	}
	if err == nil && l.name == "" {
		err = fmt.Errorf("no pod with %s has the metric %s", selector, metric)
	}
	return l, err
}

// deletePod deletes the busiest pod by force, and waits for the next one.
func (k *kube) deletePod(selector, port, metric, workload string) error {
	p, err := k.load(selector, port, metric)
	if err != nil {
		return err
	}
	if _, err := k.ctl("play", "delete", "pod", p.name, "--grace-period=0", "--force"); err != nil {
		return err
	}
	return k.rolledOut(workload)
}
