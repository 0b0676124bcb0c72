//go:build linux

package clustertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/dnprelay/dnprelay/internal/proctest"
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
	rig.Sleep(ctx, time.Second+play.Random(r.rng, 0, time.Second))
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
		rig.Sleep(ctx, pace/2)
	}
	strike := time.Now()
	s := &scene{run: r, home: home, started: strike}
	if err := f.cause(s, ctx); err != nil {
		return m, err
	}
	s.healed = time.Now()
	m.Lasted = s.healed.Sub(strike)
	r.recover(ctx, s, &m)
	if s.after != nil {
		if err := s.after(); err != nil {
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
	err := proctest.Await(ctx, wholeMost, "all nodes are ready", func() bool {
		return !slices.ContainsFunc(slices.Concat(r.Relays, r.Edges), func(n *rig.Node) bool { return !r.IsReady(n) })
	})
	if err == nil {
		err = proctest.Await(ctx, wholeMost, "all streams have all copies", func() bool { return r.Whole(r.game.nc) })
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
	err := proctest.Await(ctx, returnMost, "the shard comes home", func() bool { return r.holder() == s.home })
	if err != nil {
		m.Violations = append(m.Violations, err.Error())
	}
	rig.Sleep(ctx, time.Second)
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

// Times of faults.
const (
	faultLeast   = 100 * time.Millisecond
	faultMost    = 10 * time.Second
	takeOverMost = 20 * time.Second
	natsDown     = 30 * time.Second
	resetTime    = 200 * time.Millisecond // in which each connection has something to send
)

// A scene is one fault while it happens.
type scene struct {
	*run
	home       *rig.Node // the relay that held the shard
	started    time.Time
	healed     time.Time    // the end of the fault
	after      func() error // repairs the rest once players have everything; may be nil
	violations []string
}

// kill crashes the holder. The fault has healed when another relay holds the shard.
func (s *scene) kill(ctx context.Context) error {
	epochs := s.game.epochCount()
	if err := s.home.Kill(); err != nil {
		return err
	}
	s.change()
	s.after = s.home.Start
	return proctest.Await(ctx, takeOverMost, "another relay takes over", func() bool { return s.game.epochCount() > epochs })
}

// pause stops the holder's process for a while.
func (s *scene) pause(ctx context.Context) error {
	if err := s.home.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	s.during(ctx, play.Random(s.rng, faultLeast, faultMost))
	return s.home.Signal(syscall.SIGCONT)
}

func (s *scene) partition(ctx context.Context) error {
	if err := s.Cut(s.home.Host, true); err != nil {
		return err
	}
	s.during(ctx, play.Random(s.rng, faultLeast, faultMost))
	return s.Cut(s.home.Host, false)
}

// natsLeader crashes the NATS server that leads the stream of the shard, and starts it
// again. Updates must continue meanwhile.
func (s *scene) natsLeader(ctx context.Context) error {
	leader := s.streamLeader()
	if leader == nil {
		return errors.New("the stream has no leader")
	}
	if err := leader.Kill(); err != nil {
		return err
	}
	s.during(ctx, play.Random(s.rng, 2*time.Second, 8*time.Second))
	return leader.Start()
}

func (s *scene) link(ctx context.Context) (err error) {
	how, d := rig.Reset, resetTime
	if s.rng.IntN(2) == 0 {
		how, d = rig.Drop, play.Random(s.rng, faultLeast, 4*time.Second)
	}
	for _, e := range s.Edges {
		err = errors.Join(err, e.Host.Block(rig.NATSPort, how))
	}
	s.during(ctx, d)
	for _, e := range s.Edges {
		err = errors.Join(err, e.Host.Unblock())
	}
	return err
}

// natsDown crashes all NATS servers and starts them again after natsDown.
func (s *scene) natsDown(ctx context.Context) error {
	for _, n := range s.NATS {
		if err := n.Kill(); err != nil {
			return err
		}
	}
	for end := time.Now().Add(natsDown); time.Now().Before(end); {
		rig.Sleep(ctx, time.Second)
		s.checkWithoutNATS(time.Since(s.started))
	}
	s.change()
	for _, n := range s.NATS {
		if err := n.Start(); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// during waits, and changes some states in the middle.
func (s *scene) during(ctx context.Context, d time.Duration) {
	rig.Sleep(ctx, d/2)
	s.change()
	rig.Sleep(ctx, d/2)
}
