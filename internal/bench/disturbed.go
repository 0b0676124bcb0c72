//go:build linux

package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// Of ten clients in the disturbed series the last two are the trouble.
const (
	quietClients  = 8
	stalledClient = 8
	floodClient   = 9
	floodRate     = 50_000                // datagrams a second
	floodPause    = time.Millisecond      // between bursts
	shoutPause    = 50 * time.Millisecond // between reliable messages to all
)

func disturbedCase() Case {
	return Case{Name: "disturbed", States: 100, Hz: 20, Clients: 10, Edges: 1, Alone: true}
}

// Disturbed measures eight clients in turn undisturbed and beside one that
// acknowledges nothing and one that floods its edge. All get reliable messages, so
// that something waits for the one that stalls.
func (r *Runner) Disturbed(ctx context.Context) ([]Result, error) {
	c := disturbedCase()
	s, err := r.open(ctx, &c)
	if err != nil {
		return nil, fmt.Errorf("disturbed: %w", err)
	}
	defer s.close()
	s.swarm.count(quietClients)
	stop := s.shout(ctx)
	defer stop()
	var calm, loud []round
	for range r.cfg.Rounds {
		var one, other round
		if err := s.ours(ctx, &one, c.States); err != nil {
			return nil, fmt.Errorf("disturbed: %w", err)
		}
		if err := s.disturb(ctx, &other); err != nil {
			return nil, fmt.Errorf("disturbed: %w", err)
		}
		calm, loud = append(calm, one), append(loud, other)
	}
	return s.compare(calm, loud), nil
}

// disturb measures a window with trouble in it.
func (s *scene) disturb(ctx context.Context, r *round) error {
	s.swarm.stall(stalledClient)
	defer s.swarm.stall(-1)
	defer s.swarm.flood(floodClient)()
	return s.ours(ctx, r, s.c.States)
}

// compare returns the result of both kinds of windows, the second with its ratios
// to the first.
func (s *scene) compare(calm, loud []round) []Result {
	c := *s.c
	c.Name = "undisturbed"
	s.c = &c
	first := s.result(calm)
	c.Name = "disturbed"
	second := s.result(loud)
	pairs := make([]round, len(calm)) // as the ratios of a round, so that median and spread are those of all series
	for i := range pairs {
		pairs[i].bare = ratio(float64(loud[i].window.latency.quantile(0.99)), float64(calm[i].window.latency.quantile(0.99)))
		pairs[i].raw = ratio(updates(&loud[i])/loud[i].wall.Seconds(), updates(&calm[i])/calm[i].wall.Seconds())
	}
	latency := func(r *round) float64 { return r.bare }
	second.LatencyRatio, second.LatencySpread = median(pairs, latency), spread(pairs, latency)
	second.UpdatesRatio = median(pairs, func(r *round) float64 { return r.raw })
	return []Result{first, second}
}

// shout sends reliable messages to all clients until the returned function is
// called.
func (s *scene) shout(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_ = s.publisher.nc.Publish(s.publisher.subjects.ToAll(space), []byte("a reliable message to everybody")) // what fails shows in the figures
			select {
			case <-ctx.Done():
			case <-time.After(shoutPause):
			}
		}
	}()
	return func() { cancel(); <-done }
}

// count has only the first n clients count.
func (w *swarm) count(n int) {
	w.mu.Lock()
	w.counted = n
	w.mu.Unlock()
}

// stall has one client answer nothing; -1 ends it.
func (w *swarm) stall(index int) {
	w.mu.Lock()
	w.stalled = index
	w.mu.Unlock()
}

// flood sends floodRate datagrams a second in the name of a client until the
// returned function is called: what is cheap to make and not cheap to refuse.
func (w *swarm) flood(index int) (stop func()) {
	socket := &swarmSocket{fd: w.socket.fd}
	socket.out.init()
	kinds := [][]byte{
		wire.ReliableAck{Seq: 999, Code: wire.AckSuccess}.Append(nil),
		append([]byte{byte(wire.CommandReliableMessage), 0xF0, 0xF0}, make([]byte, 30)...),  // far outside of the window
		append([]byte{byte(wire.CommandLinkUpdate), 1, 1, 0, 1, 0, 0}, make([]byte, 12)...), // of a link that it may not write
		append([]byte{byte(wire.CommandMessage)}, make([]byte, 20)...),
		{0xFF, 1, 2, 3},
	}
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		start, sent := time.Now(), 0
		for {
			select {
			case <-quit:
				return
			case <-time.After(floodPause):
			}
			for due := int(time.Since(start).Seconds() * floodRate); sent < due; sent++ {
				b := append(socket.room(), kinds[sent%len(kinds)]...)
				socket.send(clientAddress(index), w.ports[0], b)
			}
			socket.flush()
		}
	}()
	return func() { close(quit); <-done }
}
