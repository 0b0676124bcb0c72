//go:build linux

package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/bench"
	"github.com/dnprelay/dnprelay/internal/proc"
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

// A floodRun is a scene under a flood, and the report about it.
type floodRun struct {
	*bench.Scene
	out    io.Writer
	failed bool // a bar was missed
}

// Flood lets 200 clients play while a million connection requests with forged sources
// arrive as fast as the machine makes them; then it lets more clients connect while 50,000
// per second arrive; then every player receives forged closes. It prints the figures beside
// their bars, and returns an error if one was missed. The edge has its default limits. All
// addresses are of loopback.
func Flood(ctx context.Context, r *bench.Runner, out io.Writer) error {
	r.Window, r.Limits = floodWindow, true
	scene, err := r.Start(ctx, &bench.Case{Name: "flood", States: floodStates, Hz: 20, Clients: floodPlayers + floodArrivals, Edges: 1, Alone: true})
	if err != nil {
		return fmt.Errorf("flood: %w", err)
	}
	defer scene.Close()
	s := &floodRun{Scene: scene, out: out}
	if err := s.linkPlayers(ctx); err != nil {
		return fmt.Errorf("flood: %w", err)
	}
	before := s.Stack.RSS()
	f, err := newForger(s.Stack.Ports[0])
	if err != nil {
		return err
	}
	defer f.socket.Close()
	stop := s.watchPlayers(ctx)
	var took time.Duration
	var rate float64
	err = s.playWhile(ctx, func() { took = f.send(ctx, floodRequests, 0) })
	sent := f.sent
	bench.Progress("%d forged requests in %v; the edge dropped:%s", sent, took.Round(time.Millisecond), s.Stack.Drops())
	if err == nil {
		err = s.playWhile(ctx, func() { rate = s.arrive(ctx, f) })
	}
	interrupted, peak := stop()
	arrived := s.complete() - floodPlayers
	share := float64(arrived) / floodArrivals
	fmt.Fprintf(out, "%d forged requests from %d addresses in %v (%.0f/s) while %d clients play; then %.0f/s while %d more connect\n",
		sent, forgedSpread, took.Round(time.Millisecond), float64(sent)/took.Seconds(), floodPlayers, rate, floodArrivals)
	s.bar(peak-before <= floodRSSMax, "edge memory      %5.1f MiB, at most %5.1f: grew by %.1f MiB (bar 16)", mib(before), mib(peak), mib(peak-before))
	s.bar(interrupted == 0, "interrupted      %d of %d players (bar 0)", interrupted, floodPlayers)
	s.bar(share >= floodArrives, "connected        %d of %d = %.2f %% (bar 99 %%)", arrived, floodArrivals, 100*share)
	bench.Progress("forged closes follow for %v", closesFor)
	if err == nil {
		err = s.playWhile(ctx, func() { s.forgeCloses(ctx) })
	}
	if err == nil {
		err = s.leave(ctx)
	}
	fmt.Fprintf(out, "the edge dropped:%s\n", s.Stack.Drops())
	if err == nil && s.failed {
		err = errors.New("flood: a bar was missed")
	}
	return err
}

// bar prints a figure beside its bar.
func (s *floodRun) bar(good bool, format string, args ...any) {
	verdict := "ok"
	if !good {
		verdict, s.failed = "MISSED", true
	}
	fmt.Fprintf(s.out, format+"  %s\n", append(args, verdict)...)
}

func (s *floodRun) linkPlayers(ctx context.Context) error {
	s.Swarm.Connect(floodPlayers)
	err := proc.Await(ctx, bench.LinkTimeout, "all players have their links", func() bool { return s.complete() >= floodPlayers })
	if err != nil {
		return fmt.Errorf("%w: only %d of %d; the edge dropped:%s", err, s.complete(), floodPlayers, s.Stack.Drops())
	}
	return s.playWhile(ctx, func() { time.Sleep(bench.SettleTime) }) // until the memory has its size
}

// playWhile publishes and measures windows until f has returned.
func (s *floodRun) playWhile(ctx context.Context, f func()) error {
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
func (s *floodRun) arrive(ctx context.Context, f *forger) float64 {
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

func (s *floodRun) complete() (n int) {
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
func (s *floodRun) linked(c *bench.Client) bool {
	n := s.Case.States
	return c.Phase == bench.Connected && len(c.Links) >= n && !slices.ContainsFunc(c.Links[:n], func(l bench.ClientLink) bool { return !l.Up })
}

// watchPlayers looks at the memory of the edge and at all players until the returned
// function is called, which returns the interrupted players and the highest memory.
func (s *floodRun) watchPlayers(ctx context.Context) (stop func() (interrupted int, peak int64)) {
	var marks [floodPlayers]bool
	var peak int64
	end := during(ctx, watchPause, func() {
		peak = max(peak, s.Stack.RSS())
		s.markInterrupted(&marks)
	})
	return func() (interrupted int, _ int64) {
		end()
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
func (s *floodRun) markInterrupted(marks *[floodPlayers]bool) {
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
func (f *forger) send(ctx context.Context, n, rate int) time.Duration {
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
	return time.Since(start)
}

// Bars of a flood.
const (
	floodRSSMax  = 16 << 20
	floodArrives = 0.99
)

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

// forgeCloses sends a close in the name of every player, once per second, while they play.
// It leaves from the port of the player, so it is what a forger sends, byte for byte.
func (s *floodRun) forgeCloses(ctx context.Context) {
	forged, lost := 0, 0
	for end := time.Now().Add(closesFor); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(closePause) {
		s.Swarm.Do(func([]bench.Client) {
			for i := range floodPlayers {
				s.sendClose(i)
				forged++
			}
		})
	}
	time.Sleep(closeDecide)
	s.Swarm.Do(func(clients []bench.Client) {
		for i := range floodPlayers {
			if clients[i].Phase != bench.Connected {
				lost++
			}
		}
	})
	s.bar(lost == 0, "forged closes    %d in %v: %d sessions lost (bar 0)", forged, closesFor, lost)
}

func (s *floodRun) sendClose(index int) {
	s.Swarm.Send(index, []byte{byte(wire.CommandConnectionClose)})
}

// leave lets the last players with a session leave, and waits for the events of that.
func (s *floodRun) leave(ctx context.Context) error {
	left, err := s.Publisher.NC.SubscribeSync(s.Publisher.Subjects.Event(bench.Space))
	if err != nil {
		return err
	}
	if err := s.Publisher.NC.Flush(); err != nil {
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
	freed, slowest := 0, time.Duration(0)
	for freed < leavers {
		wait, cancel := context.WithDeadline(ctx, start.Add(leaveMax+leaveLate))
		m, err := left.NextMsgWithContext(wait)
		cancel()
		if err != nil {
			break // the bar counts those that left
		}
		if strings.Contains(string(m.Data), `"type":"left"`) {
			freed, slowest = freed+1, time.Since(start)
		}
	}
	s.bar(freed == leavers, "real closes      %d of %d sessions free within %v, the last after %.2f s (bar all)", freed, leavers, leaveMax+leaveLate, slowest.Seconds())
	return nil
}
