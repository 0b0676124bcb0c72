//go:build linux

package play

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/dnprelay/dnprelay/internal/proctest"
	"github.com/dnprelay/dnprelay/sessionlog"
	"github.com/dnprelay/dnprelay/testbed/history"
	"github.com/dnprelay/dnprelay/testbed/rig"
	"github.com/nats-io/nats.go"
)

// Space is the space of a match.
const Space = "match"

// Times of a match.
const (
	SlowPace  = 500 * time.Millisecond // between messages of each client, each way, unless somebody sets another
	worldPace = 20 * time.Millisecond  // between changes of the world, so no shorter silence can be seen
	crashRest = 1500 * time.Millisecond
	drainMost = 90 * time.Second
	deafMost  = 15 * time.Second // after a fault, for players that only listen
)

// A MatchConfig describes the deployment and the players.
type MatchConfig struct {
	rig.Config // without the flags of edges; with Web, clients come by WebSocket

	Durability string // of sessions: log or none
	Clients    int
	Listeners  int // of the clients: they send no message
	Seed       uint64
	Reroute    time.Duration // from the death of an edge until its flows move
	File       string        // the history
	Progress   func(format string, args ...any)
}

// A Match is a deployment with a game on it: clients behind a balancer, and a game server.
type Match struct {
	*rig.Deployment
	*Balancer
	*Crowd
	NC *nats.Conn // for questions to NATS

	cfg MatchConfig
}

// Open deploys everything, starts a history, and waits until the game server has heard all
// players. Close ends everything, also after an error.
func Open(ctx context.Context, cfg MatchConfig) (m *Match, err error) {
	cfg.EdgeFlags = []string{"--workers", "1", "--open-space", Space, "--sessions-per-address", "0", "--address-rate", "0", "--session-durability", cfg.Durability}
	if cfg.Durability == "log" {
		cfg.EdgeFlags = append(cfg.EdgeFlags, "--session-replicas", strconv.Itoa(cfg.NATS))
	} else {
		cfg.Redis = ""
	}
	if cfg.Web {
		cfg.EdgeFlags = append(cfg.EdgeFlags, "--websocket-connections", "10000")
	}
	cfg.Progress("seed %d; logs are in %s, the history in %s", cfg.Seed, cfg.Dir, cfg.File)
	m = &Match{cfg: cfg}
	if m.Deployment, err = rig.Deploy(ctx, cfg.Config); err != nil {
		return m, err
	}
	if ctx, m.Crowd, err = NewCrowd(ctx, cfg.File); err != nil {
		return m, err
	}
	m.Log.Add(history.Record{Kind: history.Run, Note: fmt.Sprintf("seed %d, %d clients of which %d only listen, %d relays, %d edges, %d NATS servers, by WebSocket %t, durability %s, flows move after %v",
		cfg.Seed, cfg.Clients, cfg.Listeners, cfg.Relays, cfg.Edges, cfg.NATS, cfg.Web, cfg.Durability, cfg.Reroute)})
	m.NC, err = nats.Connect(m.url(), nats.SetCustomDialer(m.Here), nats.MaxReconnects(-1), nats.ReconnectWait(100*time.Millisecond),
		nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2))
	if err != nil {
		return m, err
	}
	if err := m.play(ctx); err != nil {
		return m, err
	}
	if _, err := m.NC.Subscribe("dnp.v1.log.>", m.watchLog); err != nil {
		return m, err
	}
	return m, proctest.Await(ctx, rig.StartTimeout, "the game server hears all players that speak, and all others see updates", func() bool {
		return m.game.HeardParties() >= cfg.Clients-cfg.Listeners && len(m.deaf()) == 0
	})
}

// deaf returns the players that only listen and saw no update lately.
func (m *Match) deaf() (names []string) {
	for _, p := range m.Players {
		if history.Listener(p.Name) && !p.Playing(time.Now()) {
			names = append(names, p.Name)
		}
	}
	return names
}

// AwaitListeners waits until all players that only listen see updates. Those that do not are problems.
func (m *Match) AwaitListeners(ctx context.Context) {
	_ = proctest.Await(ctx, deafMost, "listeners see updates", func() bool { return len(m.deaf()) == 0 }) // the loop says who does not
	for _, name := range m.deaf() {
		m.Log.Add(history.Record{Kind: history.Problem, Who: name, Note: fmt.Sprintf("%s only listens, and has seen no update for %v", name, deafMost)})
	}
}

func (m *Match) url() string { return strings.Join(m.NATSURLs, ",") }

func (m *Match) play(ctx context.Context) (err error) {
	local := m.Here.AddrPort(0)
	m.Pace.Set(SlowPace)
	if m.Balancer, err = NewBalancer(BalancerConfig{Listen: local, Edges: m.EdgeAddrs(), Host: m.Here, Web: m.cfg.Web, Seed: m.cfg.Seed, Note: m.Note}); err != nil {
		return err
	}
	err = m.StartGame(ctx, GameConfig{URL: m.url(), Options: []nats.Option{nats.SetCustomDialer(m.Here)}, Space: Space, WorldPace: worldPace, Log: m.cfg.Durability == "log"})
	kinds := Behaviours()
	for i := 0; i < m.cfg.Clients && err == nil; i++ {
		b := kinds[i%len(kinds)]
		name := fmt.Sprint(b.Name, i)
		if (i+1)*m.cfg.Listeners/m.cfg.Clients > i*m.cfg.Listeners/m.cfg.Clients { // evenly among all
			name = history.ListenerPrefix + name
		}
		m.Join(ctx, &Player{
			Name: name, Behaviour: b, Server: m.Addr(), Local: local, Host: m.Here,
			Rand: rand.New(rand.NewPCG(m.cfg.Seed, uint64(100+i))), Flow: m.Name, Ended: m.Forget,
		})
	}
	return err
}

// watchLog records each session that its owner hands over, as the log has it.
func (m *Match) watchLog(msg *nats.Msg) {
	k, err := sessionlog.ParseBlock(msg.Data)
	if err != nil || k.Hand == nil || k.Ckpt == nil {
		return
	}
	if who := m.NameAt(k.Ckpt.Info.Addr.Port()); who != "" {
		m.Log.Add(history.Record{Kind: history.Handed, Who: who})
	}
}

// Close ends everything.
func (m *Match) Close() {
	if m.Crowd != nil {
		_ = m.Stop() // the check of the file finds missing records
	}
	if m.Balancer != nil {
		m.Balancer.Close()
	}
	if m.NC != nil {
		m.NC.Close()
	}
	m.Deployment.Close()
}

// Crash crashes an edge. Its flows move after MatchConfig.Reroute, and the edge starts
// again.
func (m *Match) Crash(ctx context.Context, how string, edge int) error {
	e := m.Edges[edge]
	err := m.Log.During(how, e.Name, func() error {
		if err := e.Kill(); err != nil {
			return err
		}
		rig.Sleep(ctx, m.cfg.Reroute)
		m.Reroute(edge, true)
		rig.Sleep(ctx, crashRest)
		return nil
	})
	if err != nil {
		return err
	}
	return m.Restart(ctx, edge)
}

// Drain tells an edge to leave, and waits for its end. Its flows move MatchConfig.Reroute
// after it is no longer ready: at once, or with the next datagram of each client.
func (m *Match) Drain(ctx context.Context, edge int, atOnce bool) error {
	e := m.Edges[edge]
	m.Avoid(edge, true)
	if err := e.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	err := proctest.Await(ctx, drainMost, e.Name+" has handed its sessions over", func() bool { return e.Ended() != nil || !m.IsReady(e) })
	if err != nil {
		return err
	}
	rig.Sleep(ctx, m.cfg.Reroute)
	m.Reroute(edge, atOnce)
	return m.AwaitEnd(ctx, e)
}

// AwaitEnd waits until a node has ended.
func (m *Match) AwaitEnd(ctx context.Context, n *rig.Node) error {
	return proctest.Await(ctx, drainMost, n.Name+" has ended", func() bool { return n.Ended() != nil })
}

// Restart starts an edge that has ended, and gives it flows again.
func (m *Match) Restart(ctx context.Context, edge int) error {
	if err := m.Deployment.Restart(ctx, m.Edges[edge]); err != nil {
		return err
	}
	m.Avoid(edge, false)
	return nil
}
