package gossip

import (
	"context"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// Times between two attempts to join, while there are no others.
const (
	joinBackoffMin = 250 * time.Millisecond
	joinBackoffMax = 5 * time.Second
	joinsAtOnce    = 8
)

// An outcome is what became of an attempt to join.
type outcome struct {
	refused *RefusedError // the first
	clash   *ShardsError
	unknown []string         // names that did not resolve
	silent  []netip.AddrPort // addresses where nobody answered
}

// keepJoined looks for members until ctx ends: first often, then, because each
// side of a partition forgets the other after half a minute, every RejoinInterval.
// It returns an error when the others refuse this node, which was never one of
// them.
func (g *Gossip) keepJoined(ctx context.Context) error {
	told := false
	for attempt := 0; ; attempt++ {
		o := g.join(ctx)
		if ctx.Err() != nil {
			return nil
		}
		again, err := g.judge(o)
		if err != nil {
			return err
		}
		if !told && !g.table.established() && len(g.cfg.Join) > 0 && !again {
			told = true
			g.log.Info("gossip: nobody to join yet", "unknown", o.unknown, "silent", o.silent)
		}
		wait := joinWait(attempt, g.table.established(), g.cfg.RejoinInterval, rand.Float64())
		if again {
			wait = 0
		}
		if !sleep(ctx, wait) {
			return nil
		}
	}
}

// joinWait returns how long to wait after an attempt, the how-manieth from 0.
// random is in [0,1) and spreads nodes that start together.
func joinWait(attempt int, established bool, interval time.Duration, random float64) time.Duration {
	wait := interval
	if !established {
		wait = min(joinBackoffMin<<min(attempt, 10), joinBackoffMax, interval)
	}
	return time.Duration(float64(wait) * (0.8 + 0.4*random))
}

// judge decides what follows from an attempt: an error that ends this node, or
// another attempt at once with another key.
func (g *Gossip) judge(o outcome) (again bool, err error) {
	if o.refused == nil && o.clash == nil {
		return false, nil
	}
	if g.table.established() {
		for _, err := range []error{asError(o.refused), asError(o.clash)} {
			if err != nil {
				g.complain("a node refused to join", err)
			}
		}
		return false, nil
	}
	if o.clash != nil {
		return false, o.clash
	}
	if o.refused.Refusal == WrongKey && g.keys.tryNext() {
		return true, nil
	}
	return false, o.refused
}

// asError avoids an error that holds a nil pointer.
func asError[E interface {
	comparable
	error
}](err E) error {
	var none E
	if err == none {
		return nil
	}
	return err
}

// complain logs what an operator has to repair, but not every time.
func (g *Gossip) complain(text string, err error) {
	if missed, ok := g.logger.allow("complaint "+text, time.Now()); ok {
		g.log.Warn("gossip: "+text, "error", err, "alike", missed)
	}
}

// join tries to join every address of the names that is not of a member.
func (g *Gossip) join(ctx context.Context) (o outcome) {
	addrs, unknown := targets(ctx, g.cfg.Resolver, g.cfg.Join)
	o.unknown = unknown
	rand.Shuffle(len(addrs), func(i, j int) { addrs[i], addrs[j] = addrs[j], addrs[i] })
	var mu sync.Mutex // joins run side by side, because one may wait for a silent address
	var wait sync.WaitGroup
	for batch := range slices.Chunk(addrs, joinsAtOnce) {
		for _, addr := range batch {
			if ctx.Err() != nil || g.own(addr) || g.table.knows(addr) {
				continue
			}
			wait.Go(func() {
				err := g.joinOne(addr)
				mu.Lock()
				defer mu.Unlock()
				o.note(addr, err)
			})
		}
		wait.Wait()
	}
	o.clash = g.table.takeClash()
	return o
}

func (g *Gossip) joinOne(addr netip.AddrPort) error {
	_, err := g.list.Join([]string{addr.String()})
	return err
}

func (o *outcome) note(addr netip.AddrPort, err error) {
	if err == nil {
		return // the table knows
	}
	if r, ok := refusal(err); ok {
		if o.refused == nil {
			o.refused = &RefusedError{Addr: addr, Refusal: r}
		}
		return
	}
	o.silent = append(o.silent, addr)
}

// own reports whether an address is of this node.
func (g *Gossip) own(addr netip.AddrPort) bool {
	if addr == g.advertise || addr == g.bound {
		return true
	}
	return addr.Port() == g.bound.Port() && g.bound.Addr().IsUnspecified() &&
		(addr.Addr().IsLoopback() || slices.Contains(g.machine, addr.Addr()))
}
