//go:build linux

package bench

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// What a flood is made of. The players' addresses are outside of the forged ones.
const (
	floodPlayers  = 200
	floodStates   = 20
	floodArrivals = 400 // players that come during the second flood
	floodRequests = 1_000_000
	forgedRate    = 50_000 // forged requests per second while players come
	floodWindow   = 2 * time.Second

	arrivalPause   = 50 * time.Millisecond // 20 a second, within the limit of their network
	arrivalTimeout = 10 * time.Second      // for the last of them
	silenceMax     = time.Second           // of a link that changes 20 times a second

	firstForged  = 127<<24 | 16<<16 // 127.16.0.0 to 127.79.255.255
	forgedSpread = 1 << 22
)

// A FloodResult is what forged connection requests did to an edge.
type FloodResult struct {
	Players     int
	Sent        int           // forged requests at full rate
	Took        time.Duration // for them
	RSSBefore   int64         // of the edge, in bytes
	RSSPeak     int64         // the most that was seen until the end
	Interrupted int           // players that were closed, or saw nothing new for silenceMax
	Rate        float64       // forged requests per second while players came
	Arrivals    int
	Arrived     int // that have all links
	Closes      CloseResult
	Drops       string // of the edge, by reason
}

// Flood plays with 200 clients while a million connection requests with forged sources
// arrive as fast as the machine makes them, and lets more clients come while 50,000 a
// second do. The edge has the limits that it has by default. All addresses are of
// loopback.
func (r *Runner) Flood(ctx context.Context) (res FloodResult, err error) {
	r.cfg.Window, r.cfg.Profile, r.cfg.limits = floodWindow, "", true
	c := Case{Name: "flood", States: floodStates, Hz: 20, Clients: floodPlayers + floodArrivals, Edges: 1, Alone: true}
	s := &scene{r: r, c: &c, script: newScript(&c), next: 1}
	defer s.close()
	if err := s.prepareFlood(ctx); err != nil {
		return res, fmt.Errorf("flood: %w", err)
	}
	res = FloodResult{Players: floodPlayers, RSSBefore: s.stack.rss(), Arrivals: floodArrivals}
	f, err := newForger(s.stack.ports[0])
	if err != nil {
		return res, err
	}
	defer f.socket.close()
	w := s.watchPlayers()
	err = s.playWhile(ctx, func() {
		start := time.Now()
		f.send(ctx, floodRequests, 0)
		res.Sent, res.Took = f.sent, time.Since(start)
	})
	r.cfg.Progress("%d forged requests in %v; the edge dropped:%s", res.Sent, res.Took.Round(time.Millisecond), s.stack.drops())
	if err == nil {
		err = s.playWhile(ctx, func() { res.Rate = s.arrive(ctx, f) })
	}
	res.Interrupted, res.RSSPeak = w.stop()
	res.Arrived = s.complete() - floodPlayers
	r.cfg.Progress("%d of %d players came; now somebody forges their ends for %v", res.Arrived, floodArrivals, closesFor)
	if err == nil {
		err = s.playWhile(ctx, func() { s.forgeCloses(ctx, &res.Closes) })
	}
	if err == nil {
		err = s.leave(ctx, &res.Closes)
	}
	res.Drops = s.stack.drops()
	return res, err
}

// prepareFlood starts everything and links the players.
func (s *scene) prepareFlood(ctx context.Context) (err error) {
	if s.stack, err = s.r.startStack(ctx, 1); err != nil {
		return err
	}
	if s.publisher, err = newPublisher(s.c, s.script, s.stack.url); err != nil {
		return err
	}
	if err = s.publisher.putAll(ctx); err != nil {
		return err
	}
	if s.swarm, err = newSwarm(s.c, s.script, s.stack.ports); err != nil {
		return err
	}
	go s.swarm.run()
	s.swarm.connect(floodPlayers)
	for end := time.Now().Add(linkTimeout); s.complete() < floodPlayers; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) || ctx.Err() != nil {
			return fmt.Errorf("only %d of %d players have their links; the edge dropped:%s", s.complete(), floodPlayers, s.stack.drops())
		}
	}
	return s.playWhile(ctx, func() { time.Sleep(settleTime) }) // so that the memory has its size
}

// playWhile publishes and plays until f has returned.
func (s *scene) playWhile(ctx context.Context, f func()) error {
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	for {
		var rd round
		err := s.ours(ctx, &rd, s.c.active())
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

// arrive floods and lets one player after the other connect. It returns the rate of the
// flood.
func (s *scene) arrive(ctx context.Context, f *forger) float64 {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	before, start := f.sent, time.Now()
	done := make(chan struct{})
	go func() { defer close(done); f.send(ctx, floodRequests<<10, forgedRate) }()
	for i := range floodArrivals {
		s.swarm.connect(floodPlayers + i + 1)
		time.Sleep(arrivalPause)
	}
	for end := time.Now().Add(arrivalTimeout); time.Now().Before(end) && s.complete() < s.c.Clients; {
		time.Sleep(20 * time.Millisecond)
	}
	rate := time.Since(start)
	cancel()
	<-done
	return float64(f.sent-before) / rate.Seconds()
}

// complete returns how many clients have a link to every state.
func (s *scene) complete() (n int) {
	s.swarm.mu.Lock()
	defer s.swarm.mu.Unlock()
	for i := range s.swarm.clients {
		if s.swarm.clients[i].phase == clientConnected && s.swarm.clients[i].has(s.c.States) {
			n++
		}
	}
	return n
}

// has reports whether the client has so many links. They have the first LinkIds; a
// hello has any.
func (c *client) has(states int) bool {
	return len(c.links) >= states && !slices.ContainsFunc(c.links[:states], func(l clientLink) bool { return !l.up })
}

// A playerWatch notes which players are interrupted and how large the edge gets.
type playerWatch struct {
	end, done   chan struct{}
	interrupted [floodPlayers]bool
	peak        int64
}

func (s *scene) watchPlayers() *playerWatch {
	w := &playerWatch{end: make(chan struct{}), done: make(chan struct{})}
	go func() {
		defer close(w.done)
		for {
			select {
			case <-w.end:
				return
			case <-time.After(50 * time.Millisecond):
				w.peak = max(w.peak, s.stack.rss())
				s.swarm.interruptions(&w.interrupted)
			}
		}
	}()
	return w
}

func (w *playerWatch) stop() (interrupted int, peak int64) {
	close(w.end)
	<-w.done
	for _, yes := range w.interrupted {
		if yes {
			interrupted++
		}
	}
	return interrupted, w.peak
}

// interruptions marks the players that are closed, or that have a link which shows
// nothing newer than silenceMax. Between two windows nothing is published.
func (w *swarm) interruptions(marks *[floodPlayers]bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	for i := range marks {
		c := &w.clients[i]
		marks[i] = marks[i] || c.phase != clientConnected
		for _, l := range c.links {
			if w.window != nil && l.up && l.seen >= w.line.first && now.Sub(w.line.due(l.seen)) > silenceMax {
				marks[i] = true
			}
		}
	}
}

// A forger sends connection requests from addresses that are not its own.
type forger struct {
	socket *swarmSocket
	port   uint16
	sent   int
}

func newForger(port uint16) (*forger, error) {
	socket, err := openSwarm()
	return &forger{socket: socket, port: port}, err
}

// send sends n requests, rate a second or as fast as it can if rate is 0. What comes
// back stays in the socket until its buffer is full.
func (f *forger) send(ctx context.Context, n, rate int) {
	start := time.Now()
	for i := 0; i < n && ctx.Err() == nil; i++ {
		from := firstForged + rand.Uint32N(forgedSpread)
		room := f.socket.room()
		f.socket.send(from, f.port, wire.AppendConnectionRequest(room))
		f.sent++
		if i%socketBatch == 0 && rate > 0 {
			time.Sleep(time.Until(start.Add(time.Duration(i) * time.Second / time.Duration(rate))))
		}
	}
	f.socket.flush()
}

// The bar.
const (
	floodRSSMax  = 16 << 20
	floodArrives = 0.99
)

// Write prints the figures beside the bar, and reports whether it was reached.
func (r *FloodResult) Write(w io.Writer) (ok bool) {
	growth, share := r.RSSPeak-r.RSSBefore, float64(r.Arrived)/float64(r.Arrivals)
	verdict := map[bool]string{true: "ok", false: "MISSED"}
	ok = true
	line := func(good bool, format string, args ...any) {
		ok = ok && good
		fmt.Fprintf(w, format+"  %s\n", append(args, verdict[good])...)
	}
	fmt.Fprintf(w, "%d forged requests from %d addresses in %v (%.0f/s) while %d clients play; then %.0f/s while %d more come\n",
		r.Sent, forgedSpread, r.Took.Round(time.Millisecond), float64(r.Sent)/r.Took.Seconds(), r.Players, r.Rate, r.Arrivals)
	line(growth <= floodRSSMax, "edge memory      %5.1f MiB, at most %5.1f: grew by %.1f MiB (bar 16)", mib(r.RSSBefore), mib(r.RSSPeak), mib(growth))
	line(r.Interrupted == 0, "interrupted      %d of %d players (bar 0)", r.Interrupted, r.Players)
	line(share >= floodArrives, "connected        %d of %d = %.2f %% (bar 99 %%)", r.Arrived, r.Arrivals, 100*share)
	r.Closes.write(line)
	fmt.Fprintf(w, "the edge dropped:%s\n", r.Drops)
	return ok
}

func mib(n int64) float64 { return float64(n) / (1 << 20) }
