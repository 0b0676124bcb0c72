//go:build linux

package clustertest

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/dnprelay/dnprelay/internal/proc"
	"github.com/dnprelay/dnprelay/testbed/rig"
)

// Times of faults.
const (
	faultLeast   = 100 * time.Millisecond
	faultMost    = 10 * time.Second
	takeOverMost = 20 * time.Second
	natsDown     = 30 * time.Second
)

// A scene is one fault while it happens.
type scene struct {
	*run
	home       *rig.Node // the relay that held the shard
	started    time.Time
	healed     time.Time                   // the end of the fault
	after      func(context.Context) error // repairs the rest once players have everything; may be nil
	violations []string
}

// strike causes a fault, and returns when it has healed.
func (s *scene) strike(ctx context.Context, fault string) error {
	switch fault {
	case "kill":
		return s.kill(ctx)
	case "pause":
		return s.pause(ctx)
	case "partition":
		return s.partition(ctx)
	case "nats-leader":
		return s.natsLeader(ctx)
	case "link":
		return s.link(ctx)
	case "nats-down":
		return s.natsDown(ctx)
	}
	return fmt.Errorf("fault %q is not implemented", fault)
}

// kill crashes the holder. The fault has healed when another relay holds the shard.
func (s *scene) kill(ctx context.Context) error {
	epochs := s.game.epochCount()
	if err := s.home.Kill(); err != nil {
		return err
	}
	s.change()
	err := proc.Await(ctx, takeOverMost, "another relay takes over", func() bool { return s.game.epochCount() > epochs })
	s.healed = time.Now()
	s.after = func(context.Context) error { return s.home.Start() }
	return err
}

// pause stops the holder's process for a while.
func (s *scene) pause(ctx context.Context) error {
	if err := s.home.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	s.during(ctx, s.random(faultLeast, faultMost))
	err := s.home.Signal(syscall.SIGCONT)
	s.healed = time.Now()
	return err
}

func (s *scene) partition(ctx context.Context) error {
	if err := s.Cut(s.home.Host, true); err != nil {
		return err
	}
	s.during(ctx, s.random(faultLeast, faultMost))
	err := s.Cut(s.home.Host, false)
	s.healed = time.Now()
	return err
}

// natsLeader crashes the NATS server that leads the stream of the shard, and starts it
// again. Updates must continue meanwhile.
func (s *scene) natsLeader(ctx context.Context) error {
	leader, _ := s.streamLeader(stream())
	if leader == nil {
		return errors.New("the stream has no leader")
	}
	if err := leader.Kill(); err != nil {
		return err
	}
	s.during(ctx, s.random(2*time.Second, 8*time.Second))
	err := leader.Start()
	s.healed = time.Now()
	return err
}

func (s *scene) link(ctx context.Context) error {
	stall := s.rng.IntN(2) == 0
	for _, p := range s.toNATS {
		if stall {
			p.Stall(true)
		} else {
			p.ResetAll()
		}
	}
	if stall {
		s.during(ctx, s.random(faultLeast, 4*time.Second))
	}
	for _, p := range s.toNATS {
		p.Stall(false)
	}
	s.healed = time.Now()
	return nil
}

// natsDown crashes all NATS servers and starts them again after natsDown.
func (s *scene) natsDown(ctx context.Context) error {
	for _, n := range s.NATS {
		if err := n.Kill(); err != nil {
			return err
		}
	}
	for end := time.Now().Add(natsDown); time.Now().Before(end); {
		proc.Sleep(ctx, time.Second)
		s.checkWithoutNATS(time.Since(s.started))
	}
	s.change()
	for _, n := range s.NATS {
		if err := n.Start(); err != nil {
			return err
		}
	}
	s.healed = time.Now()
	return ctx.Err()
}

// during waits, and changes some states in the middle.
func (s *scene) during(ctx context.Context, d time.Duration) {
	proc.Sleep(ctx, d/2)
	s.change()
	proc.Sleep(ctx, d/2)
}
