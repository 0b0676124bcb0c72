//go:build linux

package clustertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/internal/proc"
)

// How long a round waits for the whole cluster to be whole again, and for the shard to
// come back to the relay on which the roster places it.
const (
	wholeMost  = 90 * time.Second
	returnMost = 15 * time.Second
)

// round lets one fault happen.
func (r *run) round(ctx context.Context, f Fault) (m Round, err error) {
	m.Fault = f.Name
	if err := r.settle(ctx); err != nil {
		return m, err
	}
	if err := r.ledger.put(ctx); err != nil {
		return m, err
	}
	// What was accepted a second ago is stored. The rest is so that the fault does not
	// meet the same moment of the half-second beat each time.
	r.sleep(ctx, time.Second+r.random(0, time.Second))
	if _, err := r.equalSince(ctx, true); err != nil {
		return m, err
	}
	r.forget()
	home, epochs := r.holder(), r.game.epochCount()
	if home == nil {
		return m, errors.New("nobody holds the shard")
	}
	// Some states change just before, so that they are accepted and not stored; others
	// meanwhile.
	for _, key := range quietKeys {
		r.game.change(key)
		r.sleep(ctx, pace/2)
	}
	strike := time.Now()
	s := &scene{run: r, home: home, started: strike}
	if err := s.strike(ctx, f.Name); err != nil {
		return m, err
	}
	m.Lasted = s.healed.Sub(strike)
	r.recover(ctx, s, &m)
	if s.after != nil {
		if err := s.after(ctx); err != nil {
			return m, err
		}
	}
	r.comeHome(ctx, s, &m)
	m.Violations = append(m.Violations, s.violations...)
	r.judge(&m, r.game.epochCount()-epochs)
	if err := r.ledger.remove(ctx); err != nil {
		m.Violations = append(m.Violations, err.Error())
	}
	return m, ctx.Err()
}

// settle waits until everything is as if nothing had happened.
func (r *run) settle(ctx context.Context) error {
	err := proc.Await(ctx, wholeMost, "all nodes are ready", func() bool {
		for _, n := range append(slices.Clone(r.relays), r.edges...) {
			if !ask(r.web, n.host).ready {
				return false
			}
		}
		return true
	})
	if err == nil {
		err = proc.Await(ctx, wholeMost, "the store has all copies", r.storeWhole)
	}
	if err == nil {
		_, err = r.equalSince(ctx, true)
	}
	return errors.Join(err, r.check())
}

// recover measures from the strike until players have everything.
func (r *run) recover(ctx context.Context, s *scene, m *Round) {
	since, err := r.equalSince(ctx, false)
	if err != nil {
		m.Violations = append(m.Violations, err.Error())
	}
	accepted, ok := r.game.firstAccepted(s.healed)
	if !ok {
		accepted = time.Now()
		m.Violations = append(m.Violations, "no publish was accepted after it healed")
	}
	m.Accepted = accepted.Sub(s.healed)
	m.Equal = max(0, since.Sub(accepted))
	end := maxTime(since, accepted)
	m.NoPublish = r.game.gap(s.started, end)
	for _, p := range r.everybody {
		m.NoUpdate = max(m.NoUpdate, p.gap(s.started, end))
	}
}

// comeHome waits until the relay that held the shard holds it again, and measures
// what that costs.
func (r *run) comeHome(ctx context.Context, s *scene, m *Round) {
	start := time.Now()
	err := proc.Await(ctx, returnMost, "the shard comes home", func() bool { return r.holder() == s.home })
	if err != nil {
		m.Violations = append(m.Violations, err.Error())
	}
	r.sleep(ctx, time.Second)
	m.Return = r.game.gap(start, time.Now())
	if _, err := r.equalSince(ctx, true); err != nil {
		m.Violations = append(m.Violations, "after the shard came home: "+err.Error())
	}
}

// judge looks for what must not happen.
func (r *run) judge(m *Round, epochs int) {
	for _, p := range r.everybody {
		problems, back := p.takeProblems()
		m.Violations = append(m.Violations, problems...)
		if !p.clean {
			continue // datagrams that overtake each other set values back; they are sent again
		}
		count := map[string]int{}
		for _, b := range back {
			m.RolledBack = max(m.RolledBack, r.rolledBack(b))
			if count[b.key]++; count[b.key] > epochs {
				m.Violations = append(m.Violations, fmt.Sprintf("%s: %s went from %d back to %d at %s; in %d new epochs that was time %d",
					p.name, b.key, b.from, b.to, b.at.Format("15:04:05.000"), epochs, count[b.key]))
			}
		}
	}
	m.Epochs = epochs
}

// rolledBack says how much of what was accepted a step lost: the time between the
// publishes of the two numbers, but for those that nobody accepted.
func (r *run) rolledBack(b step) time.Duration {
	if !slices.Contains(busyKeys, b.key) {
		return 0
	}
	return time.Duration(r.game.acceptedBetween(b.to, b.from)) * pace
}

// forget forgets what players noted before the round.
func (r *run) forget() {
	for _, p := range r.everybody {
		p.takeProblems()
	}
}

// change changes some quiet states.
func (r *run) change() {
	for _, key := range quietKeys[:1+r.rng.IntN(len(quietKeys))] {
		r.game.change(key)
	}
}

// random returns a duration of the run's seed.
func (r *run) random(least, most time.Duration) time.Duration {
	return least + time.Duration(r.rng.Int64N(int64(most-least)))
}

// sleep waits, but not beyond the end of ctx.
func (r *run) sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

func maxTime(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// firstAccepted returns when the first publish was accepted after a moment.
func (g *game) firstAccepted(from time.Time) (time.Time, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.accepted.first(from)
}

// gap is track.gap of the accepted publishes.
func (g *game) gap(from, to time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.accepted.gap(from, to)
}

// acceptedBetween returns how many publishes behind first, up to last, were accepted.
func (g *game) acceptedBetween(first, last uint32) (count int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.newest {
		if p.n > first && p.n <= last {
			count++
		}
	}
	return count
}
