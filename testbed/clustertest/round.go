//go:build linux

package clustertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/internal/proc"
	"github.com/dnprelay/dnprelay/testbed/play"
	"github.com/dnprelay/dnprelay/testbed/rig"
)

// How long a round waits for the cluster to be whole again, and for the shard to come back
// to the relay on which the roster places it.
const (
	wholeMost  = 90 * time.Second
	returnMost = 15 * time.Second
)

func (r *run) round(ctx context.Context, f Fault) (m Round, err error) {
	m.Fault = f.Name
	if err := r.settle(ctx); err != nil {
		return m, err
	}
	if err := r.ledger.put(ctx); err != nil {
		return m, err
	}
	// Relays store each half second, so a publish that was accepted a second ago is stored.
	// The random rest moves the fault within that half second.
	proc.Sleep(ctx, time.Second+r.random(0, time.Second))
	if _, err := r.equalSince(ctx, true); err != nil {
		return m, err
	}
	r.forget()
	home, epochs := r.holder(), r.game.epochCount()
	if home == nil {
		return m, errors.New("no relay holds the shard")
	}
	// Some states change just before the fault, so that they are accepted and not stored;
	// others change during the fault.
	for _, key := range quietKeys {
		r.game.change(key)
		proc.Sleep(ctx, pace/2)
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

// settle waits until the cluster is as before the first fault.
func (r *run) settle(ctx context.Context) error {
	err := proc.Await(ctx, wholeMost, "all nodes are ready", func() bool {
		return !slices.ContainsFunc(slices.Concat(r.Relays, r.Edges), func(n *rig.Node) bool { return !r.IsReady(n) })
	})
	if err == nil {
		err = proc.Await(ctx, wholeMost, "the store has all copies", r.storeWhole)
	}
	if err == nil {
		_, err = r.equalSince(ctx, true)
	}
	return errors.Join(err, r.Check())
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
	end := accepted
	if since.After(end) {
		end = since
	}
	m.NoPublish = r.game.gap(s.started, end)
	for _, p := range r.players {
		m.NoUpdate = max(m.NoUpdate, p.Gap(s.started, end))
	}
}

// comeHome waits until the relay that held the shard holds it again, and measures the
// interruption of that hand-over.
func (r *run) comeHome(ctx context.Context, s *scene, m *Round) {
	start := time.Now()
	err := proc.Await(ctx, returnMost, "the shard comes home", func() bool { return r.holder() == s.home })
	if err != nil {
		m.Violations = append(m.Violations, err.Error())
	}
	proc.Sleep(ctx, time.Second)
	m.Return = r.game.gap(start, time.Now())
	if _, err := r.equalSince(ctx, true); err != nil {
		m.Violations = append(m.Violations, "after the shard came home: "+err.Error())
	}
}

func (r *run) judge(m *Round, epochs int) {
	for _, p := range r.players {
		back := p.StepsBack()
		m.Violations = append(m.Violations, p.takeProblems()...)
		if !p.clean {
			continue // datagrams that overtake each other set values back until the next repeat
		}
		count := map[string]int{}
		for _, b := range back {
			m.RolledBack = max(m.RolledBack, r.rolledBack(b))
			if count[b.Key]++; count[b.Key] > epochs {
				m.Violations = append(m.Violations, fmt.Sprintf("%s: %s went from %d back to %d at %s; in %d new epochs that was time %d",
					p.Name, b.Key, b.From, b.To, b.At.Format("15:04:05.000"), epochs, count[b.Key]))
			}
		}
	}
	m.Epochs = epochs
}

// rolledBack returns the publishes that were accepted and that a step back lost, as a time
// at the pace of the game server.
func (r *run) rolledBack(b play.StepBack) time.Duration {
	if !slices.Contains(busyKeys, b.Key) {
		return 0
	}
	return time.Duration(r.game.acceptedBetween(b.To, b.From)) * pace
}

func (r *run) forget() {
	for _, p := range r.players {
		p.StepsBack()
		p.takeProblems()
	}
}

func (r *run) change() {
	for _, key := range quietKeys[:1+r.rng.IntN(len(quietKeys))] {
		r.game.change(key)
	}
}

// random returns a duration, by the seed of the run.
func (r *run) random(least, most time.Duration) time.Duration {
	return least + time.Duration(r.rng.Int64N(int64(most-least)))
}
