package compose

import (
	"cmp"
	"context"
	crand "crypto/rand"
	"encoding/gob"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/gossip"
	"github.com/dnprelay/dnprelay/dnp/udp"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/internal/turn"
	"golang.org/x/sync/errgroup"
)

// restartPause is how long an edge of relay dev stays away that ended: long enough to see that it is gone, and its
// sessions elsewhere.
const restartPause = 10 * time.Second

// startTimeout is how long an edge of relay dev waits for NATS.
const startTimeout = 30 * time.Second

// An edgeProcess is an edge of relay dev with its process.
type edgeProcess struct {
	EdgeCommand
	pid   atomic.Int64
	ready atomic.Bool
}

// edges are the edges of relay dev --edges.
type edges struct {
	list   []*edgeProcess
	gossip *gossip.Gossip
	key    string        // file with that of gossip
	redis  *edgeTool     // nil if --redis names one
	all    chan struct{} // closed when all have been ready
	log    *slog.Logger
}

// openEdges prepares what the edges need, and returns their health.
func (d *dev) openEdges(_ context.Context, c *DevCommand) (health func() telemetry.Health, err error) {
	if err := d.findPorts(c); err != nil {
		return nil, err
	}
	e := &edges{all: make(chan struct{}), log: d.log}
	d.edges, d.web, c.SessionDurability = e, &webListeners{log: d.log}, "log"
	if c.Redis == "" {
		if e.redis, c.Redis, err = startRedis(); err != nil {
			return nil, fmt.Errorf("the edges have no Redis: %w", err)
		}
	}
	if err := e.writeKey(); err != nil {
		return nil, fmt.Errorf("the edges have no key of gossip: %w", err)
	}
	join := config.Gossip{GossipBind: "127.0.0.1:0", GossipKeyFile: e.key}
	if d.gossip, err = NewGossip(&join, cluster.RoleRelay, d.name, d.shards, d.log); err != nil {
		return nil, err
	}
	d.gossip.SetPhase(cluster.PhaseReady)
	e.gossip, join.GossipJoin = d.gossip, []string{d.gossip.Addr().String()}
	for i := range c.Edges {
		p, err := c.edge(i)
		if err != nil {
			return nil, err
		}
		p.NATSURL, p.Gossip = d.embedded.URL(), join
		e.list = append(e.list, p)
	}
	return e.health, nil
}

// findPorts chooses the ports that the edges share. No other program may have them.
func (d *dev) findPorts(c *DevCommand) (err error) {
	for i := range c.Listen {
		sockets, err := udp.Listen(udp.Config{Addr: c.Listen[i].Addr})
		if err == nil {
			c.Listen[i].Addr = sockets[0].LocalAddr()
			err = sockets[0].Close()
		}
		if err != nil {
			return fmt.Errorf("--listen: %w", err)
		}
		d.addrs = append(d.addrs, c.Listen[i].Addr)
	}
	if c.WebSocket == "" {
		return nil
	}
	if c.WebSocket, err = freeAddress(c.WebSocket); err != nil {
		return fmt.Errorf("--websocket: %w", err)
	}
	return nil
}

// edge returns an edge, counted from 0.
func (c *DevCommand) edge(i int) (p *edgeProcess, err error) {
	p = &edgeProcess{EdgeCommand: EdgeCommand{
		Cluster: config.Cluster{Node: config.Node{Name: fmt.Sprint("edge-", i+1), StartTimeout: startTimeout}, Sharding: c.Sharding},
		Edge:    c.Edge, Web: c.Web, Sessions: c.Sessions, Admin: c.Admin, Logging: c.Logging,
		Forward: config.Forward{ForwardListen: "127.0.0.1:0"}, Dev: true,
	}}
	if i == 0 { // sessions of viewers, and of Variants by UDP, end with their edge
		p.LLUDP, p.Variants = c.LLUDP, c.Variants
	}
	p.WebTransport = "" // each edge would need a port of its own, and by WebSocket a browser notices at once that its edge is dead
	if c.HTTP != "" {
		p.HTTP, err = freeAddress("127.0.0.1:0")
	}
	return p, err
}

// freeAddress returns an address of TCP with a free port.
func freeAddress(address string) (string, error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// writeKey makes the key of gossip, without which edges do not forward.
func (e *edges) writeKey() error {
	f, err := os.CreateTemp("", "dnprelay-gossip-")
	if err != nil {
		return err
	}
	e.key = f.Name()
	key := make([]byte, 32)
	crand.Read(key)
	_, err = fmt.Fprintln(f, hex.EncodeToString(key))
	return cmp.Or(err, f.Close())
}

// run runs the edges until ctx ends, and calls tell when all of them serve.
func (e *edges) run(ctx context.Context, tell func()) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return e.gossip.Run(ctx) })
	group.Go(func() error {
		FollowRoster(ctx, e.gossip, e.follow)
		return nil
	})
	for _, p := range e.list {
		group.Go(func() error { return e.keep(ctx, p) })
	}
	group.Go(func() error {
		select {
		case <-e.all:
			tell()
		case <-ctx.Done():
		}
		return nil
	})
	if e.redis != nil {
		group.Go(func() error {
			if ended := e.redis.run(ctx); ctx.Err() == nil {
				return fmt.Errorf("the Redis of the edges ended: %v", ended)
			}
			return nil
		})
	}
	return group.Wait()
}

// follow notes which edges are ready.
func (e *edges) follow(r cluster.Roster) {
	ready, all := make(map[string]bool), true
	for m := range r.All() {
		ready[m.Name] = m.Role == cluster.RoleEdge && m.Phase == cluster.PhaseReady
	}
	for _, p := range e.list {
		p.ready.Store(ready[p.Name])
		all = all && ready[p.Name]
	}
	select {
	case <-e.all:
	default:
		if all {
			close(e.all)
		}
	}
}

// keep starts an edge, and starts it again when it ended, as the process manager of a deployment does, until ctx ends.
// It returns an error if an edge ends before all of them have served, because it cannot work then.
func (e *edges) keep(ctx context.Context, p *edgeProcess) error {
	for {
		ended := e.serve(ctx, p)
		if ctx.Err() != nil {
			return nil
		}
		select {
		case <-e.all:
		default:
			return fmt.Errorf("%s does not start: %v", p.Name, ended)
		}
		e.log.Warn("edge ended, starting it again", "edge", p.Name, "reason", ended, "after", restartPause)
		if !turn.Pause(ctx, restartPause) {
			return nil
		}
	}
}

// serve runs the process of an edge until it ends. When ctx ends, the process does.
func (e *edges) serve(ctx context.Context, p *edgeProcess) (ended error) {
	tool, err := startEdgeTool(os.Stdout, "dev-edge", p.Name)
	if err != nil {
		return err
	}
	p.pid.Store(int64(tool.Process.Pid))
	e.log.Info("edge started", "edge", p.Name, "process", tool.Process.Pid)
	told := gob.NewEncoder(tool.input).Encode(&p.EdgeCommand)
	if ended = tool.run(ctx); ended == nil {
		ended = cmp.Or(told, errors.New("it drained"))
	}
	return ended
}

// An edgeTool is a process of the program edge that works for relay dev. It ends when its standard input is closed, as
// that is when relay dev ends, for whatever reason.
type edgeTool struct {
	*exec.Cmd
	input io.WriteCloser
}

// edgeProgram returns the path of the program edge, which lies beside this one.
func edgeProgram() (string, error) {
	self, err := os.Executable()
	return filepath.Join(filepath.Dir(self), "edge"), err
}

// edgeProblem adds that there is no program for the edges.
func edgeProblem(list *config.Problems) {
	program, err := edgeProgram()
	if err == nil {
		_, err = os.Stat(program)
	}
	list.AddIf(err != nil, "--edges", "more than one needs the program edge beside relay: %v", err)
}

// startEdgeTool starts the program edge with a hidden command of it.
func startEdgeTool(output io.Writer, args ...string) (*edgeTool, error) {
	program, err := edgeProgram()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = output, os.Stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	return &edgeTool{Cmd: cmd, input: input}, cmd.Start()
}

// run waits until the process ends, which it is made to when ctx ends.
func (t *edgeTool) run(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { _ = t.Process.Kill() })()
	return t.Wait()
}

// startRedis starts a Redis, and returns its URL.
func startRedis() (t *edgeTool, url string, err error) {
	output, input, err := os.Pipe()
	if err != nil {
		return nil, "", err
	}
	defer output.Close()
	t, err = startEdgeTool(input, "dev-redis")
	input.Close()
	if err == nil {
		_, err = fmt.Fscanln(output, &url)
	}
	return t, url, err
}

// health says which edges do not serve.
func (e *edges) health() (h telemetry.Health) {
	for _, p := range e.list {
		if !p.ready.Load() {
			h.Missing = append(h.Missing, p.Name)
		}
	}
	h.Ready = len(h.Missing) < len(e.list)
	return h
}

// tell prints where clients come, and what is to try with several edges.
func (e *edges) tell(w io.Writer) {
	first := e.list[0]
	if first.WebSocket != "" {
		flags := webFlags{Web: &first.Web}
		fmt.Fprintf(w, "  web page      %s://%s/\n  web clients   %s://%[2]s\n", flags.scheme("http"), first.WebSocket, flags.scheme("ws"))
	}
	for _, p := range e.list {
		fmt.Fprintf(w, "  %-12s  process %d", p.Name, p.pid.Load())
		if p.HTTP != "" {
			fmt.Fprintf(w, ", http://%s/metrics", p.HTTP)
		}
		fmt.Fprintln(w)
	}
}

// tellKill prints what is to try with several edges.
func (e *edges) tellKill(w io.Writer) {
	fmt.Fprintf(w, "Kill an edge, and see in the console, at Cluster, how its sessions go on at another. It comes back after %.0f s:\n  kill -9 %d     # edge-1\n", restartPause.Seconds(), e.list[0].pid.Load())
}

// close ends what openEdges opened.
func (e *edges) close() {
	if e.redis != nil {
		e.redis.input.Close()
	}
	_ = os.Remove(e.key) // the system cleans up temporary files that cannot be removed
}
