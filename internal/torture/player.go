//go:build linux

package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/dnp/dnptest"
)

// Load of each client, each way; and how many of its own messages may wait.
const (
	pace       = 500 * time.Millisecond
	queuedMost = 5
)

// A player is one place in the game. Whoever has it connects again when interrupted, as
// another party.
type player struct {
	run   *run
	index int
	rng   *rand.Rand

	mu     sync.Mutex // of what the client's goroutine and run use
	peer   *dnptest.Peer
	who    string
	said   uint64
	closed string // why
}

// behaviours are the deployed clients. That in Python is not among them: it skips
// numbers of its own messages (Behaviour.DropsTail).
var behaviours = []func() dnptest.Behaviour{dnptest.Cpp, dnptest.Java, dnptest.Engine}

// play keeps a client connected and talking until ctx ends.
func (p *player) play(ctx context.Context) {
	for life := 0; ctx.Err() == nil; life++ {
		if err := p.connect(ctx, life); err != nil {
			continue
		}
		p.talk(ctx)
		p.run.balancer.forget(p.peer.Addr(), ctx.Err() == nil)
		p.peer.Close()
	}
}

func (p *player) connect(ctx context.Context, life int) error {
	b := behaviours[p.index%len(behaviours)]()
	who := fmt.Sprintf("%s%d.%d", b.Name, p.index, life)
	p.mu.Lock()
	p.who, p.said, p.closed = who, 0, ""
	p.mu.Unlock()
	peer, err := dnptest.RunUDP(ctx, dnptest.Config{Behaviour: b, Server: p.run.balancer.addr(), App: dnptest.App{
		Closed:  func(reason string) { p.lost(reason) },
		Message: func(m dnptest.Message) { p.got(who, m) },
	}}, netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.peer = peer
	p.mu.Unlock()
	p.run.balancer.name(peer.Addr(), who)
	wait, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	err = peer.Until(wait, func(c *dnptest.Client) bool { return c.Phase() == dnptest.Connected })
	if err != nil {
		p.run.balancer.forget(peer.Addr(), ctx.Err() == nil)
		peer.Close()
	}
	return err
}

func (p *player) lost(reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = reason
}

// got takes a message of the game server: its number, in digits.
func (p *player) got(who string, m dnptest.Message) {
	if n, err := strconv.ParseUint(string(m.Data), 10, 64); err == nil && m.Reliable {
		p.run.note.add(Record{Kind: kindGot, Who: who, N: n})
	}
}

// talk says messages at its pace until the client is closed or the run is over.
func (p *player) talk(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pace/2 + time.Duration(p.rng.Int64N(int64(pace)))):
		}
		p.mu.Lock()
		who, reason := p.who, p.closed
		p.mu.Unlock()
		if reason != "" {
			p.run.note.add(Record{Kind: kindClosed, Who: who, Note: reason})
			p.run.interrupted.Add(1)
			return
		}
		_ = p.peer.Do(func(now time.Time, c *dnptest.Client) { // fails only when it is closed
			if c.Phase() == dnptest.Connected && c.Queued() < queuedMost && !p.run.quiet.Load() {
				p.said++
				p.run.note.add(Record{Kind: kindSaid, Who: who, N: p.said})
				_ = c.Send(now, fmt.Appendf(nil, "%s/%d", who, p.said)) // it is connected, and the message is short
			}
		})
	}
}

// settled reports whether everything that the client said is acknowledged.
func (p *player) settled() (ok bool) {
	p.mu.Lock()
	peer := p.peer
	p.mu.Unlock()
	return peer == nil || peer.Do(func(_ time.Time, c *dnptest.Client) { ok = c.Queued() == 0 }) != nil || ok
}

// parse takes a message of a client apart.
func parse(data []byte) (who string, n uint64, ok bool) {
	who, text, ok := strings.Cut(string(data), "/")
	n, err := strconv.ParseUint(text, 10, 64)
	return who, n, ok && err == nil
}
