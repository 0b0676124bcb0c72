//go:build linux

package clustertest

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/dnp/dnptest"
)

// A player is a model client that notes what it sees.
type player struct {
	name  string
	clean bool // nothing happens to its datagrams, so they arrive in order
	peer  *dnptest.Peer

	mu       sync.Mutex // of what the client's goroutine notes and measurements read
	seen     map[string]uint32
	at       map[string]time.Time // when the value of a state changed
	updates  track
	back     []step
	problems []string
}

// A step is a value that went back.
type step struct {
	key      string
	from, to uint32
	at       time.Time
}

// join connects players to all edges: to each one over a clean path, and two with
// the manners of different libraries through the proxies.
func (d *deployment) join(ctx context.Context) (all []*player, err error) {
	for i, e := range d.edges {
		direct := netip.AddrPortFrom(e.addr, dnpPort)
		proxy := netip.AddrPortFrom(d.proxies.addr, uint16(dnpPort+i))
		for _, c := range []struct {
			to    netip.AddrPort
			b     dnptest.Behaviour
			clean bool
		}{{direct, dnptest.Cpp(), true}, {proxy, dnptest.Cpp(), false}, {proxy, dnptest.Java(), false}} {
			p := &player{name: fmt.Sprintf("%s%d@%s", c.b.Name, len(all), e.name), clean: c.clean, seen: map[string]uint32{}, at: map[string]time.Time{}}
			err = d.players.in(func() (err error) {
				p.peer, err = dnptest.RunUDP(ctx, dnptest.Config{Behaviour: c.b, Server: c.to, App: p.app()}, netip.AddrPort{})
				return err
			})
			if err != nil {
				return all, err
			}
			all = append(all, p)
		}
	}
	for _, p := range all {
		wait, cancel := context.WithTimeout(ctx, startTimeout)
		err = p.peer.Until(wait, func(c *dnptest.Client) bool { return c.Phase() == dnptest.Connected })
		cancel()
		if err != nil {
			return all, fmt.Errorf("%s does not connect: %w", p.name, err)
		}
	}
	return all, nil
}

func (p *player) app() dnptest.App {
	return dnptest.App{
		Updated:  p.updated,
		Closed:   func(reason string) { p.problem("%s was disconnected: %s", p.name, reason) },
		LinkDown: func(l *dnptest.Link) { p.down(string(l.Message)) },
	}
}

func (p *player) problem(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.problems = append(p.problems, time.Now().Format("15:04:05.000 ")+fmt.Sprintf(format, args...))
}

func (p *player) updated(l *dnptest.Link, _ int) {
	value := l.State.Value(0)
	if len(value) != 4 {
		p.problem("%s: a value of %d bytes in %s", p.name, len(value), l.Message)
		return
	}
	v, key, now := binary.LittleEndian.Uint32(value), string(l.Message), time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.seen[key]
	if v < old {
		p.back = append(p.back, step{key, old, v, now})
	}
	if v != old {
		p.seen[key], p.at[key] = v, now
	}
	if v > old && slices.Contains(busyKeys, key) {
		p.updates.add(now)
	}
}

func (p *player) down(key string) {
	if !strings.HasPrefix(key, ledgerPrefix) {
		p.problem("%s lost its link to %s", p.name, key)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.seen, key)
}

// value returns what the player sees; 0 for nothing.
func (p *player) value(key string) uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen[key]
}

// gap is track.gap of the updates of busy states.
func (p *player) gap(from, to time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.updates.gap(from, to)
}

// takeProblems returns what went wrong since the last call.
func (p *player) takeProblems() (problems []string, back []step) {
	p.mu.Lock()
	defer p.mu.Unlock()
	problems, back = p.problems, p.back
	p.problems, p.back = nil, nil
	return problems, back
}
