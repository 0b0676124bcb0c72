//go:build linux

package main

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/dnp/dnptest"
)

// A player is a client as the C++ library makes them, with an address of its own, that
// connects again as soon as it is disconnected.
type player struct {
	index  int
	local  netip.Addr
	server netip.AddrPort
	left   chan struct{} // closed when the player has had enough

	mu        sync.Mutex // of what the client's goroutine and measurements touch
	connected bool
	said      int // messages so far
	unsure    []message
	acked     []message     // since begin
	heard     map[int]int   // numbers of the game server, how often, since begin
	last      time.Time     // of the newest update
	gap       time.Duration // longest time between updates since begin
	closed    []string      // reasons, since begin
}

// leave ends the player, who says so to the edge.
func (p *player) leave() { close(p.left) }

// run plays until ctx ends or the player leaves.
func (p *player) run(ctx context.Context) {
	for ctx.Err() == nil {
		if err := p.session(ctx); err != nil {
			fmt.Printf("   player %d: %v\n", p.index, err)
		}
		select {
		case <-ctx.Done():
		case <-p.left:
			return
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// session plays from one connection to its end.
func (p *player) session(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	app := dnptest.App{
		Connected: func() { p.set(true) },
		Closed:    func(reason string) { p.lost(reason); cancel() },
		Updated:   p.updated,
		Message:   p.message,
	}
	peer, err := dnptest.RunUDP(ctx, dnptest.Config{Behaviour: dnptest.Cpp(), Server: p.server, App: app}, netip.AddrPortFrom(p.local, 0))
	if err != nil {
		return err
	}
	defer peer.Close()
	tick := time.NewTicker(messagePace)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.left:
			_ = peer.Do(func(now time.Time, c *dnptest.Client) { c.Close(now) }) // a client that has ended has left
			return nil
		case <-tick.C:
			if peer.Do(p.talk) != nil {
				return nil
			}
		}
	}
}

func (p *player) set(connected bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.connected = connected
	p.unsure = p.unsure[:0]
}

// lost notes the end of a connection, or of an attempt, which is not counted: the
// interruption began with the end of the last connection.
func (p *player) lost(reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.connected {
		p.closed = append(p.closed, reason)
	}
	p.connected = false
}

// talk says the next number, unless several wait for the edge, and learns which ones
// the edge has acknowledged.
func (p *player) talk(now time.Time, c *dnptest.Client) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c.Phase() != dnptest.Connected {
		return
	}
	done := max(0, len(p.unsure)-c.Queued())
	p.acked = append(p.acked, p.unsure[:done]...)
	p.unsure = slices.Delete(p.unsure, 0, done)
	if c.Queued() > 5 {
		return
	}
	m := message{p.index, p.said + 1}
	if c.Send(now, fmt.Appendf(nil, "%d %d", m.player, m.n)) == nil {
		p.said = m.n
		p.unsure = append(p.unsure, m)
	}
}

func (p *player) updated(l *dnptest.Link, _ int) {
	if string(l.Message) != clock {
		return
	}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.last.IsZero() {
		p.gap = max(p.gap, now.Sub(p.last))
	}
	p.last = now
}

func (p *player) message(m dnptest.Message) {
	if n, err := strconv.Atoi(string(m.Data)); err == nil {
		p.mu.Lock()
		p.heard[n]++
		p.mu.Unlock()
	}
}

// playing reports whether everything is well at this moment.
func (p *player) playing(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.connected && now.Sub(p.last) < time.Second
}

// begin starts a measurement.
func (p *player) begin() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.acked, p.closed, p.heard, p.gap = nil, nil, map[int]int{}, 0
}

// A seen is what one player saw during a measurement.
type seen struct {
	player int
	closed []string
	gap    time.Duration
	acked  []message   // what it said and an edge acknowledged
	heard  map[int]int // numbers of the game server, how often
}

// end returns what the player saw since begin.
func (p *player) end() seen {
	p.mu.Lock()
	defer p.mu.Unlock()
	return seen{p.index, slices.Clone(p.closed), max(p.gap, time.Since(p.last)), slices.Clone(p.acked), maps.Clone(p.heard)}
}
