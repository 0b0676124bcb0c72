//go:build linux

package lab

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/bench"
	"github.com/dnprelay/dnprelay/internal/proc"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats.go"
)

// Sizes of a flood. The addresses of players are outside of the forged ones.
const (
	floodPlayers  = 200
	floodStates   = 20
	floodArrivals = 400 // players that connect during the second flood
	floodRequests = 1_000_000
	watchPause    = 50 * time.Millisecond
	forgedBatch   = 64     // requests between two looks at the clock
	forgedRate    = 50_000 // forged requests per second while players connect
	floodWindow   = 2 * time.Second

	arrivalPause   = 50 * time.Millisecond // 20 per second, within the limit of their network
	arrivalTimeout = 10 * time.Second      // for the last of them
	silenceMax     = time.Second           // of a link that changes 20 times per second

	firstForged  = 127<<24 | 16<<16 // 127.16.0.0 to 127.79.255.255
	forgedSpread = 1 << 22
)

// A FloodResult is the effect of forged connection requests on an edge.
type FloodResult struct {
	Players     int
	Sent        int           // forged requests at full rate
	Took        time.Duration // for them
	RSSBefore   int64         // of the edge, in bytes
	RSSPeak     int64         // the highest until the end
	Interrupted int           // players that were closed, or saw no update for silenceMax
	Rate        float64       // forged requests per second while players connected
	Arrivals    int
	Arrived     int // that have all links
	Closes      CloseResult
	Drops       string // of the edge, by reason
}

// A floodRun is a scene under a flood.
type floodRun struct{ *bench.Scene }

// Flood lets 200 clients play while a million connection requests with forged sources
// arrive as fast as the machine makes them; then it lets more clients connect while 50,000
// per second arrive. The edge has its default limits. All addresses are of loopback.
func Flood(ctx context.Context, cfg bench.Config) (res FloodResult, err error) {
	cfg.Window, cfg.Limits = floodWindow, true
	scene, err := bench.New(cfg).Start(ctx, &bench.Case{Name: "flood", States: floodStates, Hz: 20, Clients: floodPlayers + floodArrivals, Edges: 1, Alone: true})
	if err != nil {
		return res, fmt.Errorf("flood: %w", err)
	}
	defer scene.Close()
	s := floodRun{scene}
	if err := s.linkPlayers(ctx); err != nil {
		return res, fmt.Errorf("flood: %w", err)
	}
	res = FloodResult{Players: floodPlayers, RSSBefore: s.Stack.RSS(), Arrivals: floodArrivals}
	f, err := newForger(s.Stack.Ports[0])
	if err != nil {
		return res, err
	}
	defer f.socket.Close()
	stop := s.watchPlayers(ctx)
	err = s.playWhile(ctx, func() {
		start := time.Now()
		f.send(ctx, floodRequests, 0)
		res.Sent, res.Took = f.sent, time.Since(start)
	})
	progress("%d forged requests in %v; the edge dropped:%s", res.Sent, res.Took.Round(time.Millisecond), s.Stack.Drops())
	if err == nil {
		err = s.playWhile(ctx, func() { res.Rate = s.arrive(ctx, f) })
	}
	res.Interrupted, res.RSSPeak = stop()
	res.Arrived = s.complete() - floodPlayers
	progress("%d of %d players connected; forged closes follow for %v", res.Arrived, floodArrivals, closesFor)
	if err == nil {
		err = s.playWhile(ctx, func() { s.forgeCloses(ctx, &res.Closes) })
	}
	if err == nil {
		err = s.leave(ctx, &res.Closes)
	}
	res.Drops = s.Stack.Drops()
	return res, err
}

func (s floodRun) linkPlayers(ctx context.Context) error {
	s.Swarm.Connect(floodPlayers)
	err := proc.Await(ctx, bench.LinkTimeout, "all players have their links", func() bool { return s.complete() >= floodPlayers })
	if err != nil {
		return fmt.Errorf("%w: only %d of %d; the edge dropped:%s", err, s.complete(), floodPlayers, s.Stack.Drops())
	}
	return s.playWhile(ctx, func() { time.Sleep(bench.SettleTime) }) // until the memory has its size
}

// playWhile publishes and measures windows until f has returned.
func (s floodRun) playWhile(ctx context.Context, f func()) error {
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	for {
		var round bench.Round
		err := s.Measure(ctx, &round, s.Case.States)
		select {
		case <-done:
			return err
		default:
			if err != nil {
				<-done
				return err
			}
		}
	}
}

// arrive floods while one player after the other connects. It returns the rate of the
// flood.
func (s floodRun) arrive(ctx context.Context, f *forger) float64 {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	before, start := f.sent, time.Now()
	done := make(chan struct{})
	go func() { defer close(done); f.send(ctx, floodRequests<<10, forgedRate) }()
	for i := range floodArrivals {
		s.Swarm.Connect(floodPlayers + i + 1)
		time.Sleep(arrivalPause)
	}
	_ = proc.Await(ctx, arrivalTimeout, "all players have their links", func() bool { return s.complete() >= s.Case.Clients }) // the result counts them
	rate := time.Since(start)
	cancel()
	<-done
	return float64(f.sent-before) / rate.Seconds()
}

func (s floodRun) complete() (n int) {
	s.Swarm.Do(func(clients []bench.Client) {
		for i := range clients {
			if s.linked(&clients[i]) {
				n++
			}
		}
	})
	return n
}

// linked reports whether a client has a link to every state. States have the first link
// ids; a hello has any.
func (s floodRun) linked(c *bench.Client) bool {
	n := s.Case.States
	return c.Phase == bench.Connected && len(c.Links) >= n && !slices.ContainsFunc(c.Links[:n], func(l bench.ClientLink) bool { return !l.Up })
}

// watchPlayers looks at the memory of the edge and at all players until the returned
// function is called, which returns the interrupted players and the highest memory.
func (s floodRun) watchPlayers(ctx context.Context) (stop func() (interrupted int, peak int64)) {
	ctx, cancel := context.WithCancel(ctx)
	var marks [floodPlayers]bool
	var peak int64
	var watching sync.WaitGroup
	watching.Go(func() {
		for ; ctx.Err() == nil; proc.Sleep(ctx, watchPause) {
			peak = max(peak, s.Stack.RSS())
			s.markInterrupted(&marks)
		}
	})
	return func() (interrupted int, _ int64) {
		cancel()
		watching.Wait()
		for _, yes := range marks {
			if yes {
				interrupted++
			}
		}
		return interrupted, peak
	}
}

// markInterrupted marks the players that are closed, or that have a link without an update
// for silenceMax.
func (s floodRun) markInterrupted(marks *[floodPlayers]bool) {
	s.Swarm.Do(func(clients []bench.Client) {
		for i := range marks {
			c := &clients[i]
			marks[i] = marks[i] || c.Phase != bench.Connected ||
				slices.ContainsFunc(c.Links, func(l bench.ClientLink) bool { return s.Swarm.Stale(l, silenceMax) })
		}
	})
}

// A forger sends connection requests from addresses that are not its own.
type forger struct {
	socket *bench.Socket
	port   uint16
	sent   int
}

func newForger(port uint16) (*forger, error) {
	socket, err := bench.OpenSocket()
	return &forger{socket: socket, port: port}, err
}

// send sends n requests, rate per second or as fast as it can if rate is 0. Answers stay
// in the socket until its buffer is full.
func (f *forger) send(ctx context.Context, n, rate int) {
	start := time.Now()
	for i := 0; i < n && ctx.Err() == nil; i++ {
		from := firstForged + rand.Uint32N(forgedSpread)
		f.socket.Send(from, f.port, wire.AppendConnectionRequest(f.socket.Room()))
		f.sent++
		if i%forgedBatch == 0 && rate > 0 {
			time.Sleep(time.Until(start.Add(time.Duration(i) * time.Second / time.Duration(rate))))
		}
	}
	f.socket.Flush()
}

// Bars of a flood.
const (
	floodRSSMax  = 16 << 20
	floodArrives = 0.99
)

// Write prints the figures beside their bars, and reports whether all were reached.
func (r *FloodResult) Write(w io.Writer) (ok bool) {
	growth, share := r.RSSPeak-r.RSSBefore, float64(r.Arrived)/float64(r.Arrivals)
	verdict := map[bool]string{true: "ok", false: "MISSED"}
	ok = true
	line := func(good bool, format string, args ...any) {
		ok = ok && good
		fmt.Fprintf(w, format+"  %s\n", append(args, verdict[good])...)
	}
	fmt.Fprintf(w, "%d forged requests from %d addresses in %v (%.0f/s) while %d clients play; then %.0f/s while %d more connect\n",
		r.Sent, forgedSpread, r.Took.Round(time.Millisecond), float64(r.Sent)/r.Took.Seconds(), r.Players, r.Rate, r.Arrivals)
	line(growth <= floodRSSMax, "edge memory      %5.1f MiB, at most %5.1f: grew by %.1f MiB (bar 16)", mib(r.RSSBefore), mib(r.RSSPeak), mib(growth))
	line(r.Interrupted == 0, "interrupted      %d of %d players (bar 0)", r.Interrupted, r.Players)
	line(share >= floodArrives, "connected        %d of %d = %.2f %% (bar 99 %%)", r.Arrived, r.Arrivals, 100*share)
	r.Closes.write(line)
	fmt.Fprintf(w, "the edge dropped:%s\n", r.Drops)
	return ok
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }

// Forged closes: for how long every player receives one per second, and how many clients
// really leave afterwards.
const (
	closesFor   = 30 * time.Second
	closePause  = time.Second
	leavers     = 50
	closeDecide = 3 * time.Second        // longer than an edge waits for a sign of life of the client
	leaveMax    = 2 * time.Second        // until a real close has freed the session
	leaveLate   = 200 * time.Millisecond // for loops, events and this program
)

// A CloseResult is the effect of forged and real closes.
type CloseResult struct {
	Forged  int // ConnectionClose datagrams in the name of players
	Lost    int // players that were closed
	Left    int // of the leavers, within leaveMax + leaveLate
	Slowest time.Duration
}

// forgeCloses sends a close in the name of every player, once per second, while they play.
// It leaves from the port of the player, so it is what a forger sends, byte for byte.
func (s floodRun) forgeCloses(ctx context.Context, res *CloseResult) {
	for end := time.Now().Add(closesFor); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(closePause) {
		s.Swarm.Do(func([]bench.Client) {
			for i := range floodPlayers {
				s.sendClose(i)
				res.Forged++
			}
		})
	}
	time.Sleep(closeDecide)
	s.Swarm.Do(func(clients []bench.Client) {
		for i := range floodPlayers {
			if clients[i].Phase != bench.Connected {
				res.Lost++
			}
		}
	})
}

func (s floodRun) sendClose(index int) {
	s.Swarm.Send(index, []byte{byte(wire.CommandConnectionClose)})
}

// leave lets the last players with a session leave, and waits for the events of that.
func (s floodRun) leave(ctx context.Context, res *CloseResult) error {
	nc, err := nats.Connect(s.Stack.URL)
	if err != nil {
		return err
	}
	defer nc.Close()
	left, err := nc.SubscribeSync(subject.Names{}.Event("*"))
	if err != nil {
		return err
	}
	if err := nc.Flush(); err != nil {
		return err
	}
	start := time.Now()
	s.Swarm.Do(func(clients []bench.Client) {
		for i, sent := len(clients)-1, 0; i >= 0 && sent < leavers; i-- {
			if c := &clients[i]; s.linked(c) { // others have no session
				s.sendClose(i)
				c.Phase = bench.Closed // it answers nothing
				sent++
			}
		}
	})
	for res.Left < leavers {
		wait, cancel := context.WithDeadline(ctx, start.Add(leaveMax+leaveLate))
		m, err := left.NextMsgWithContext(wait)
		cancel()
		if err != nil {
			return nil // the result counts those that left
		}
		if strings.Contains(string(m.Data), `"type":"left"`) {
			res.Left++
			res.Slowest = time.Since(start)
		}
	}
	return nil
}

// write prints the figures beside their bars.
func (r *CloseResult) write(line func(good bool, format string, args ...any)) {
	line(r.Lost == 0, "forged closes    %d in %v: %d sessions lost (bar 0)", r.Forged, closesFor, r.Lost)
	line(r.Left == leavers, "real closes      %d of %d sessions free within %v, the last after %.2f s (bar all)", r.Left, leavers, leaveMax+leaveLate, r.Slowest.Seconds())
}
