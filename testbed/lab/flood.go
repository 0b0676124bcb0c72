//go:build linux

package lab

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/proctest"
	"github.com/dnprelay/dnprelay/testbed/bench"
	"github.com/dnprelay/dnprelay/testbed/rig"
)

// Sizes of a flood.
const (
	floodPlayers  = 256 // those who connect come from other networks
	floodStates   = 20
	floodArrivals = 400 // players that connect during the flood
	floodRequests = 1_000_000
	floodWindow   = time.Second
	floodAlone    = 3 * time.Second // the flood before players connect
	floodCalm     = time.Second     // before that
	watchPause    = 50 * time.Millisecond
	arrivalPause  = 15 * time.Millisecond
)

// Bars of a flood.
const (
	floodGrowth = 16 << 20
	floodShare  = 0.99            // of the players who log in
	openShare   = 0.9             // of the others: one that loses its hello believes to be connected, and does not ask again
	floodWithin = 5 * time.Second // from a player's first request to its last link
	floodSlack  = 0.98            // of the rate
)

// A FloodConfig describes floods.
type FloodConfig struct {
	rig.Config        // without the numbers of nodes and the flags of edges
	Rate       int    // forged datagrams per second; half of it with open
	Only       string // only rows with this in their names
}

// A floodKind is one row of the table.
type floodKind struct {
	name, auth       string
	edges            int
	log              bool
	first            bool    // the row with more floods
	wanted           int     // forged datagrams per second
	outMost, inLeast float64 // bars: byte per byte of a stranger; share of the new players
}

// floodKinds returns all rows. Players who do not log in are proven at the first datagram, so that
// every forged one costs two answers.
func floodKinds(rate int) (all []floodKind) {
	for _, auth := range []string{"open", "token", "callout"} {
		k := floodKind{name: auth + ", one edge", auth: auth, edges: 1, wanted: rate, outMost: 1, inLeast: floodShare}
		if auth == "open" {
			k.first, k.wanted, k.outMost, k.inLeast = true, rate/2, 6, openShare
		}
		all = append(all, k)
		k.name, k.log, k.first = auth+", log and Redis", true, false
		all = append(all, k)
		k.name, k.edges = auth+", two edges, log, Redis", 2
		all = append(all, k)
	}
	return all
}

// A floodRow has the figures of a row.
type floodRow struct {
	floodKind
	rate        float64
	interrupted int
	arrived     int           // within floodWithin
	slowest     time.Duration // of those
	growth      int64         // of an edge's memory, before players connect
	grown       int64         // with those
	cpu, micros float64       // cores; microseconds per forged datagram
	out         float64       // bytes per byte
	nats, redis float64       // requests per forged datagram
}

// A floodRun is a scene under a flood, and what it shows.
type floodRun struct {
	*bench.Scene
	deployment *rig.Deployment
	forger     *bench.Forger
	row        floodRow
	logins     *bench.Logins
}

// Flood floods deployments of each kind while 200 clients play and 400 connect: with forged
// connection requests if players do not log in, with forged logins if they do, from a million
// addresses and in the names of players. Deployments with two edges have the players at one and
// the flood and those who connect at the other. The first is also flooded with a million
// requests as fast as the machine makes them, and with forged closes. Flood prints a table, and
// returns an error if a bar was missed. Edges have their default limits. All addresses are of
// loopback.
func Flood(ctx context.Context, r *bench.Runner, cfg FloodConfig, out io.Writer) error {
	r.Window, r.Limits = floodWindow, true
	var rows []floodRow
	var failed []error
	for _, k := range floodKinds(cfg.Rate) {
		if !strings.Contains(k.name, cfg.Only) || ctx.Err() != nil {
			continue
		}
		bench.Progress("%s", k.name)
		s := &floodRun{row: floodRow{floodKind: k}}
		err := s.run(ctx, r, cfg, out)
		if err != nil {
			err = fmt.Errorf("flood: %s: %w", k.name, err)
		}
		rows, failed = append(rows, s.row), append(failed, err)
	}
	if !writeFlood(out, rows) {
		failed = append(failed, errors.New("flood: a bar was missed"))
	}
	return errors.Join(failed...)
}

func (s *floodRun) run(ctx context.Context, r *bench.Runner, cfg FloodConfig, out io.Writer) error {
	stack, err := s.deploy(ctx, cfg)
	if s.deployment != nil {
		defer s.deployment.Close()
	}
	if err != nil {
		return err
	}
	c := &bench.Case{Name: "flood", States: floodStates, Hz: 20, Clients: floodPlayers + floodArrivals, Edges: s.row.edges, Alone: true}
	if s.Scene, err = r.StartOn(ctx, c, stack); err != nil {
		return err
	}
	defer s.Scene.Close()
	if s.forger, err = bench.NewForger(s.Swarm); err != nil {
		return err
	}
	defer s.forger.Close()
	s.forger.To, s.forger.Make, s.forger.Clients = stack.Edges[s.row.edges-1], s.logins.Forge, floodPlayers
	if err = s.linkPlayers(ctx); err != nil {
		return err
	}
	before := s.memory()
	stop := during(ctx, watchPause, func() { s.watch(before) })
	if s.row.first {
		err = s.During(ctx, func() {
			rate := s.forger.Send(ctx, floodRequests, 0) // as fast as it can
			fmt.Fprintf(out, "%d forged requests (%.0f/s) while %d clients play\n", floodRequests, rate, floodPlayers)
		})
	}
	if err == nil {
		err = s.During(ctx, func() { s.flood(ctx) })
	}
	stop()
	s.count()
	bench.Progress("the edges dropped:%s", s.Stack.Drops())
	if err == nil && s.row.first {
		err = s.closes(ctx, out)
	}
	return err
}

// deploy starts everything that a row needs.
func (s *floodRun) deploy(ctx context.Context, cfg FloodConfig) (stack *bench.Stack, err error) {
	k := &s.row.floodKind
	cfg.Dir = filepath.Join(cfg.Dir, strings.NewReplacer(" ", "-", ",", "").Replace(k.name))
	if err := os.MkdirAll(cfg.Dir, 0o755); err != nil {
		return nil, err
	}
	cfg.EdgeFlags = []string{"--workers", "1", "--pprof", "--auth", k.auth, "--open-space", bench.Space, "--log-level", "error"}
	keys := filepath.Join(cfg.Dir, "keys.pem")
	if s.logins, err = bench.NewLogins(k.auth, floodPlayers+floodArrivals, keys); err != nil {
		return nil, err
	}
	if k.auth == "token" {
		cfg.EdgeFlags = append(cfg.EdgeFlags, "--token-keys", keys)
	}
	if cfg.NATS, cfg.Relays, cfg.Edges = 1, 1, k.edges; k.log {
		cfg.EdgeFlags = append(cfg.EdgeFlags, "--session-durability", "log")
	} else {
		cfg.Redis = ""
	}
	if s.deployment, err = rig.Deploy(ctx, cfg.Config); err != nil {
		return nil, err
	}
	stack = &bench.Stack{URL: s.deployment.NATSURLs[0], Edges: s.deployment.EdgeAddrs()}
	for _, e := range s.deployment.Edges {
		stack.HTTP = append(stack.HTTP, e.Host.At(rig.HTTPPort))
	}
	return stack, nil
}

// linkPlayers lets the first players connect, with their logins.
func (s *floodRun) linkPlayers(ctx context.Context) error {
	if err := s.logins.Begin(s.Scene); err != nil {
		return err
	}
	s.Swarm.Do(func(clients []bench.Client) {
		for i := range clients {
			clients[i].Edge = uint8(s.row.edges-1) * uint8(min(1, i/floodPlayers))
		}
	})
	s.Swarm.Connect(floodPlayers)
	err := proctest.Await(ctx, bench.LinkTimeout, "all players have their links", func() bool { return s.Swarm.In() >= floodPlayers })
	if err != nil {
		return fmt.Errorf("%w: only %d of %d; the edges dropped:%s", err, s.Swarm.In(), floodPlayers, s.Stack.Drops())
	}
	return s.During(ctx, func() { rig.Sleep(ctx, bench.SettleTime) }) // until the memory has its size
}

// A floodMark is what was used up to a moment.
type floodMark struct {
	at               time.Time
	cpu, nats, redis float64 // seconds of the edges; messages; commands
}

func (s *floodRun) mark(ctx context.Context) floodMark {
	redis, _ := s.deployment.RedisCommands(ctx) // none without Redis
	return floodMark{time.Now(), rig.CPU(s.deployment.Edges).Seconds(), float64(s.deployment.NATSMessages()), float64(redis)}
}

// flood floods alone for a while, and then lets one player after the other connect.
func (s *floodRun) flood(ctx context.Context) {
	calm := s.mark(ctx)
	rig.Sleep(ctx, floodCalm)
	s.forger.Amplification() // of other floods
	first, forged := s.mark(ctx), int(floodAlone.Seconds()*float64(s.row.wanted))
	rate := s.forger.Send(ctx, forged, s.row.wanted)
	s.row.compare(calm, first, s.mark(ctx), float64(forged))
	s.row.out = s.forger.Amplification()
	s.Swarm.Do(func([]bench.Client) { s.row.growth = s.row.grown })
	bench.Progress("%.0f/s; then %d players connect", rate, floodArrivals)
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan float64)
	go func() { done <- s.forger.Send(ctx, floodRequests<<10, s.row.wanted) }()
	for i := range floodArrivals {
		s.Swarm.Connect(floodPlayers + i + 1)
		rig.Sleep(ctx, arrivalPause)
	}
	_ = proctest.Await(ctx, floodWithin, "all players have their links", func() bool { return s.Swarm.In() >= s.Case.Clients }) // the row counts them
	cancel()
	s.row.rate = <-done
}

// compare takes what a flood used beyond what the time before it used.
func (r *floodRow) compare(calm, first, second floodMark, forged float64) {
	wall := second.at.Sub(first.at).Seconds()
	more := func(a, b, c float64) float64 { return (c - b - (b-a)*wall/first.at.Sub(calm.at).Seconds()) / forged }
	r.cpu = (second.cpu - first.cpu) / wall
	r.micros = 1e6 * more(calm.cpu, first.cpu, second.cpu)
	r.nats = max(0, more(calm.nats, first.nats, second.nats))
	r.redis = max(0, more(calm.redis, first.redis, second.redis))
}

// memory returns the memory of each edge.
func (s *floodRun) memory() (list []int64) {
	for _, e := range s.deployment.Edges {
		list = append(list, proctest.RSS(e.PID()))
	}
	return list
}

// watch looks at the memory of the edges and whether a player has a link, which changes 20
// times per second, without an update for a second.
func (s *floodRun) watch(before []int64) {
	now := s.memory()
	s.Swarm.Do(func([]bench.Client) {
		for i, n := range now {
			s.row.grown = max(s.row.grown, n-before[i])
		}
		s.Swarm.MarkInterrupted(time.Second)
	})
}

// count counts the players that were interrupted and those that got in.
func (s *floodRun) count() {
	s.Swarm.Do(func(clients []bench.Client) {
		s.row.interrupted, s.row.arrived = 0, 0
		for _, c := range clients[:floodPlayers] {
			if c.Phase != bench.Connected || c.Interrupted {
				s.row.interrupted++
			}
		}
		for _, c := range clients[floodPlayers:] {
			if d := c.In.Sub(c.Began); c.Phase == bench.Connected && d > 0 && d <= floodWithin {
				s.row.arrived++
				s.row.slowest = max(s.row.slowest, d)
			}
		}
	})
}

// missed names the bars that a row missed.
func (r *floodRow) missed() (names string) {
	for _, bar := range []struct {
		name string
		good bool
	}{
		{"rate", r.rate >= floodSlack*float64(r.wanted)},
		{"interrupted", r.interrupted == 0},
		{"in", float64(r.arrived) >= r.inLeast*floodArrivals},
		{"memory", r.growth <= floodGrowth},
		{"out", r.out <= r.outMost},
	} {
		if !bar.good {
			names += " " + bar.name
		}
	}
	return names
}

// writeFlood prints a table and reports whether no row missed a bar.
func writeFlood(out io.Writer, rows []floodRow) (good bool) {
	good = true
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(w, "flood\tforged/s\tinterrupted\tin 5 s\tslowest\tgrowth MiB\twith those\tcores\tµs each\tbytes out/in\tNATS/1000\tRedis/1000\tmissed\t\n")
	for i := range rows {
		r := &rows[i]
		missed := r.missed()
		good = good && missed == ""
		fmt.Fprintf(w, "%s\t%.0f\t%d\t%.2f %%\t%.2f s\t%.1f\t%.1f\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t%s\t\n", r.name, r.rate, r.interrupted,
			100*float64(r.arrived)/floodArrivals, r.slowest.Seconds(), mib(r.growth), mib(r.grown), r.cpu, r.micros, r.out, 1000*r.nats, 1000*r.redis, cmp.Or(missed, "none"))
	}
	_ = w.Flush() // the bars are judged all the same
	return good
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

// Forged closes: for how long every player receives one per second, and how many clients
// really leave afterwards.
const (
	closesFor   = 30 * time.Second
	closePause  = time.Second
	leavers     = 50
	closeDecide = 3 * time.Second         // longer than an edge waits for a sign of life of the client
	leaveMax    = 7500 * time.Millisecond // until a real close has freed the session: 2 to 7 s of silence, as bad as the path seems
)

// closes sends a close in the name of every player, once per second, while they play. It leaves
// from the port of the player, so it is what a forger sends, byte for byte. Then clients leave.
func (s *floodRun) closes(ctx context.Context, out io.Writer) error {
	bench.Progress("forged closes follow for %v", closesFor)
	forged, before := 0, s.row.interrupted
	err := s.During(ctx, func() {
		stop := during(ctx, closePause, func() {
			s.Swarm.Do(func([]bench.Client) {
				for i := range floodPlayers {
					s.sendClose(i)
					forged++
				}
			})
		})
		rig.Sleep(ctx, closesFor)
		stop()
		rig.Sleep(ctx, closeDecide)
	})
	if err != nil {
		return err
	}
	s.count()
	fmt.Fprintf(out, "%d forged closes in %v: %d sessions lost (bar 0)\n", forged, closesFor, s.row.interrupted-before)
	freed, slowest, err := s.leave(ctx)
	fmt.Fprintf(out, "%d of %d real closes freed their sessions within %v, the last after %.2f s (bar all)\n", freed, leavers, leaveMax, slowest.Seconds())
	if err == nil && freed < leavers {
		err = errors.New("closes: a bar was missed")
	}
	return err
}

func (s *floodRun) sendClose(index int) {
	s.Swarm.Send(index, []byte{byte(wire.CommandConnectionClose)})
}

// leave lets the last players with a session leave, and waits for the events of that.
func (s *floodRun) leave(ctx context.Context) (freed int, slowest time.Duration, err error) {
	left, err := s.Publisher.NC.SubscribeSync(s.Publisher.Subjects.Event(bench.Space))
	if err == nil {
		err = s.Publisher.NC.Flush()
	}
	if err != nil {
		return 0, 0, err
	}
	start := time.Now()
	s.Swarm.Do(func(clients []bench.Client) {
		for i, sent := len(clients)-1, 0; i >= 0 && sent < leavers; i-- {
			if c := &clients[i]; c.Phase == bench.Connected && !c.In.IsZero() { // others have no session
				s.sendClose(i)
				c.Phase = bench.Closed // it answers nothing
				sent++
			}
		}
	})
	wait, cancel := context.WithDeadline(ctx, start.Add(leaveMax))
	defer cancel()
	for freed < leavers {
		m, err := left.NextMsgWithContext(wait)
		if err != nil {
			break // the bar counts those that left
		}
		if strings.Contains(string(m.Data), `"type":"left"`) {
			freed, slowest = freed+1, time.Since(start)
		}
	}
	return freed, slowest, nil
}
