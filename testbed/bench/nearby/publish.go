//go:build linux

package nearby

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
	"github.com/dnprelay/dnprelay/testbed/bench"
)

// opsPerMessage bounds the ops of a publish, so that a message stays far below the largest payload of NATS.
const opsPerMessage = 500

// put makes the states of both spaces.
func (s *scene) put(ctx context.Context) error {
	if err := s.request(ctx, nearSpace, 0, 1, func(b []byte, _ int) []byte { return appendInterest(b, &s.Load) }); err != nil {
		return fmt.Errorf("name the interest: %w", err)
	}
	for _, space := range []string{nearSpace, plainSpace} {
		for first := 0; first < s.Load.States; first += opsPerMessage {
			err := s.request(ctx, space, first, min(first+opsPerMessage, s.Load.States), func(b []byte, i int) []byte {
				return appendPut(b, s.near, i, space == nearSpace)
			})
			if err != nil {
				return fmt.Errorf("put the states: %w", err)
			}
		}
	}
	return nil
}

func (s *scene) request(ctx context.Context, space string, first, end int, appendOp func(b []byte, i int) []byte) error {
	return bench.Request(ctx, s.nc, s.subjects.Publish(space, ""), bench.Message(first, end, appendOp))
}

// connect lets the clients of a case connect to edges.
func (s *scene) connect(c *bench.Case, edges []netip.AddrPort, watch bench.Watcher) (*bench.Swarm, error) {
	swarm, err := bench.NewSwarm(c, &bench.Stack{Edges: edges})
	if err != nil {
		return nil, err
	}
	swarm.Watch = watch
	if err := swarm.Pace(lookPause); err != nil {
		return nil, err
	}
	swarm.Start()
	swarm.Connect(c.Clients)
	return swarm, nil
}

// join gives each client that joins an object to be, and waits until all have links to what is in their sight.
func (s *scene) join(ctx context.Context) error {
	start, players := time.Now(), 0
	for {
		var eyes, missing, all int
		var err error
		if players, err = s.assign(ctx, players); err != nil {
			return err
		}
		s.swarm.Do(func([]bench.Client) {
			eyes = s.watch.eyes()
			if eyes == s.Load.Clients {
				s.watch.compare(time.Now(), 0, len(s.watch.clients))
				missing, all = s.watch.lacks()
			}
		})
		if eyes == s.Load.Clients && missing == 0 && s.plain.Connected() == 1 {
			bench.Progress("%d clients have %d links after %v", eyes, all, time.Since(start).Round(time.Millisecond))
			return s.events.Unsubscribe() // NATS would carry a copy of each event for it
		}
		if err := s.stack.Check(); err != nil {
			return err
		}
		if time.Since(start) > bench.LinkTimeout || ctx.Err() != nil {
			return fmt.Errorf("%d of %d clients know which object they are, and lack %d of %d links; edges dropped:%s; generator lost %d", eyes, s.Load.Clients, missing, all,
				s.stack.Drops(), s.swarm.Overflows())
		}
		time.Sleep(joinPause)
	}
}

// assign makes clients that joined objects, and returns how many have one.
func (s *scene) assign(ctx context.Context, players int) (int, error) {
	s.mu.Lock()
	joined := s.joined
	s.mu.Unlock()
	end := min(len(joined), s.Load.Clients, players+opsPerMessage/2)
	if end == players {
		return players, nil
	}
	err := s.request(ctx, nearSpace, players, end, func(b []byte, i int) []byte { return appendPlayer(b, joined[i], i) })
	switch {
	case payload.HasCode(err, replication.CodeUnknownClient):
		return players, nil // the relay does not know the client yet; the caller calls again
	case err != nil:
		return players, fmt.Errorf("give clients eyes: %w", err)
	}
	return end, nil
}

// publish plays the ticks of a timeline. A late message is sent at once, and late is set to the most of that; none is left out. With
// a swarm, truth goes on, too.
func (s *scene) publish(ctx context.Context, space string, w *world, line *timeline, swarm *bench.Swarm, late *time.Duration) error {
	to, parts := s.subjects.Publish(space, ""), s.Load.parts()
	var message []byte // NATS copies it
	set := func(b []byte, i int) []byte { return appendSet(b, w, i) }
	for n := line.first; n < line.end && ctx.Err() == nil; n++ {
		w.step()
		if swarm != nil {
			swarm.Do(func([]bench.Client) { s.watch.tick = n })
		}
		for part := range parts {
			if wait := time.Until(line.due(n, part)); wait > 0 {
				select {
				case <-ctx.Done():
					return ctx.Err()
				case <-time.After(wait):
				}
			}
			*late = max(*late, time.Since(line.due(n, part)))
			first, end := s.Load.span(part)
			message = bench.AppendMessage(message, first, end, set)
			if err := s.nc.Publish(to, message); err != nil {
				return err
			}
			if swarm != nil {
				swarm.DoNow(func([]bench.Client) {
					s.watch.compare(time.Now(), part*s.Load.Clients/parts, (part+1)*s.Load.Clients/parts)
				})
			}
		}
	}
	return ctx.Err()
}
