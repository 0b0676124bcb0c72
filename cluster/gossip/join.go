package gossip

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/turn"
)

// Bounds of the attempts to join. The times are those between two attempts while there are no others.
const (
	joinBackoffMin = 250 * time.Millisecond
	joinBackoffMax = 5 * time.Second
	joinsAtOnce    = 8
)

// An outcome is the outcome of an attempt to join.
type outcome struct {
	refused  error            // the first
	wrongKey bool             // is the reason of refused
	clash    error            // of the number of shards
	unknown  []string         // names that did not resolve
	silent   []netip.AddrPort // addresses without an answer
}

// keepJoined looks for members until ctx ends: first often, then every RejoinInterval, because each side
// of a partition forgets the other after half a minute. It returns an error if the others refuse this
// node and it has never met one.
func (g *Gossip) keepJoined(ctx context.Context) error {
	told := false
	for attempt := 0; ; attempt++ {
		o := g.join(ctx)
		if ctx.Err() != nil {
			return nil
		}
		again, err := g.judge(o)
		switch {
		case err != nil:
			return err
		case again:
			continue
		}
		if !told && !g.table.established() && len(g.cfg.Join) > 0 {
			told = true
			g.log.Info("gossip: no node to join yet", "unknown", o.unknown, "silent", o.silent)
		}
		if !turn.Pause(ctx, joinWait(attempt, g.table.established(), g.cfg.RejoinInterval, rand.Float64())) {
			return nil
		}
	}
}

// joinWait returns how long to wait after an attempt, counted from 0. random is in [0,1) and spreads
// nodes that start together.
func joinWait(attempt int, established bool, interval time.Duration, random float64) time.Duration {
	wait := interval
	if !established {
		wait = min(joinBackoffMin<<min(attempt, 10), joinBackoffMax, interval)
	}
	return time.Duration(float64(wait) * (0.8 + 0.4*random))
}

// judge decides what follows an attempt: an error that ends this node, or another attempt at once with
// another key.
func (g *Gossip) judge(o outcome) (again bool, err error) {
	switch {
	case g.table.established():
		for _, err := range []error{o.refused, o.clash} {
			if err != nil {
				g.complain("a node refused to join", err)
			}
		}
		return false, nil
	case o.clash != nil:
		return false, o.clash
	case o.wrongKey && g.keys.tryNext():
		return true, nil
	}
	return false, o.refused
}

// complain logs a problem that an operator has to solve, but not every time.
func (g *Gossip) complain(text string, err error) {
	if missed, ok := g.logger.allow("complaint "+text, time.Now()); ok {
		g.log.Warn("gossip: "+text, "error", err, "alike", missed)
	}
}

// join tries to join every address of the configured names that is not a member's.
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
		return // the table has the member
	}
	switch r := refusal(err); {
	case r == "":
		o.silent = append(o.silent, addr)
	case o.refused == nil:
		o.refused, o.wrongKey = fmt.Errorf(string(r), addr), r == wrongKey
	}
}

// own reports whether an address is this node's.
func (g *Gossip) own(addr netip.AddrPort) bool {
	if addr == g.advertise || addr == g.bound {
		return true
	}
	return addr.Port() == g.bound.Port() && g.bound.Addr().IsUnspecified() &&
		(addr.Addr().IsLoopback() || slices.Contains(g.machine, addr.Addr()))
}

// Bounds of the addresses to join.
const (
	joinNamesMax   = 64
	joinTargetsMax = 256 // addresses of all names; further ones are left out until some are members
	resolveTimeout = 2 * time.Second
)

// targets resolves names. It returns the names that do not resolve, too, which is no error: the names of
// pods appear only with the pods.
func targets(ctx context.Context, resolver Resolver, names []string) (addrs []netip.AddrPort, unknown []string) {
	for _, name := range names {
		host, port, err := cluster.ParseTarget(name, DefaultPort)
		if err != nil {
			continue // Open has checked it
		}
		found := lookup(ctx, resolver, host)
		if len(found) == 0 {
			unknown = append(unknown, name)
		}
		for _, ip := range found {
			addr := netip.AddrPortFrom(ip.Unmap().WithZone(""), port)
			if len(addrs) < joinTargetsMax && !slices.Contains(addrs, addr) {
				addrs = append(addrs, addr)
			}
		}
	}
	return addrs, unknown
}

func lookup(ctx context.Context, resolver Resolver, host string) []netip.Addr {
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	found, err := resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil
	}
	return found
}

// A refusalReason says that a member answered, but has other keys, so that neither node understands the
// other. A node that starts cannot work then. It is a line that says what is wrong and what to do: a
// format for fmt, whose %v is the address of the member.
type refusalReason string

// The reasons: both have keys, but none in common; only this node has a key; only the member has one.
const (
	wrongKey   refusalReason = "gossip: wrong key: %v does not know the gossip key of this node, or the reverse: --gossip-key-file must hold a key of the cluster"
	noKeyThere refusalReason = "gossip: %v speaks without a key, this node has one: every node of a cluster needs the same --gossip-key-file, or none"
	noKeyHere  refusalReason = "gossip: %v speaks with a key, this node has none: set --gossip-key-file to the one of the cluster"
)

// refusals are the texts with which memberlist says that two nodes do not understand each other, as in
// its security.go and net.go. A member that cannot decrypt the message of a newcomer answers with such
// an error, encrypted with its own key, which the newcomer in turn cannot decrypt: so the newcomer
// usually sees its own failure and not the answer. After "remote error" the roles are exchanged.
var refusals = []struct {
	text string
	here refusalReason // when this node says it
	told refusalReason // when the other one says it
}{
	{"no installed keys could decrypt the message", wrongKey, wrongKey},
	{"encryption is configured but remote state is not encrypted", noKeyThere, noKeyHere},
	{"remote state is encrypted and encryption is not configured", noKeyHere, noKeyThere},
}

// refusal returns the reason of the refusal in an error of memberlist's Join, which keeps only the
// text of a cause; empty if there is none.
func refusal(err error) refusalReason {
	text := err.Error()
	for _, r := range refusals {
		if strings.Contains(text, "remote error: "+r.text) {
			return r.told
		}
		if strings.Contains(text, r.text) {
			return r.here
		}
	}
	return ""
}

// shardsError says that a member belongs to a deployment with another number of shards. The two nodes
// would send publishes to different relays.
func shardsError(m cluster.Member, ours uint16) error {
	return fmt.Errorf("gossip: %s has %d shards, this node %d: --shards must be the same on every node", m.Name, m.Shards, ours)
}
