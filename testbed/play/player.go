//go:build linux

package play

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/testbed/history"
	"github.com/dnprelay/dnprelay/testbed/rig"
)

const (
	queuedMost     = 5                // messages of a client that may wait for an acknowledgement
	connectTimeout = 10 * time.Second // for one attempt
	connectPause   = 100 * time.Millisecond
	Spread         = 250 * time.Millisecond // by which a time between messages differs from the pace, at the most
	quietPace      = 100 * time.Millisecond // at which players look for the next pace while they send nothing
	checkPrefix    = "check."               // of the states that `dnpctl check` makes for a moment
)

// A Pace is the mean time between messages. It may change at any time; 0 means that none are
// sent.
type Pace struct{ atomic.Int64 }

// Set changes the pace.
func (p *Pace) Set(d time.Duration) { p.Store(int64(d)) }

// wait returns how long to wait until the next look at the pace.
func (p *Pace) wait() time.Duration { return cmp.Or(time.Duration(p.Load()), quietPace) }

// random returns a time between messages. Players that connect together do not speak together.
func (p *Pace) random(r *rand.Rand) time.Duration {
	pace := p.wait()
	spread := min(pace/2, Spread)
	return Random(r, pace-spread, pace+spread)
}

// Behaviours returns the deployed clients. The Python library is not among them: it skips
// numbers of its own messages (dnptest.Behaviour.DropsTail).
func Behaviours() []dnptest.Behaviour {
	return []dnptest.Behaviour{dnptest.Cpp(), dnptest.Java(), dnptest.Engine()}
}

// A Player is one place in the game. If its connection ends, it connects again 0.1 s
// later as another party: NAME.0, NAME.1 and so on. Set the exported fields before Run.
type Player struct {
	Name      string // without dots; see history.ListenerPrefix
	Behaviour dnptest.Behaviour
	Server    netip.AddrPort
	Local     netip.AddrPort // port 0 means any
	Host      *rig.Host      // on which it opens its socket; nil means this process

	Pace *Pace      // of its messages; nil = it sends none
	Rand *rand.Rand // of the times between messages; nil if Pace is
	Note func(history.Record)

	// Flow is called with the address of each socket and the party that uses it, Ended with
	// the same address at its end. Both may be nil.
	Flow     func(addr netip.AddrPort, party string)
	Ended    func(addr netip.AddrPort, interrupted bool)
	LinkDown func(key string) // may be nil

	mu        sync.Mutex // the client's goroutine writes, measurements read
	peer      *dnptest.Peer
	party     string
	connected bool
	leaving   bool
	said      uint64   // messages of this party
	unacked   []uint64 // of them, in order
	view      map[string]uint32
	updates   Track
	back      []StepBack
	ended     chan struct{} // closed with the connection
	wake      chan struct{} // one slot: ends the wait between messages
}

// A StepBack is a value that became smaller.
type StepBack struct {
	Key      string
	From, To uint32
	At       time.Time
}

// Run plays until ctx ends or the player leaves.
func (p *Player) Run(ctx context.Context) {
	for life := 0; ctx.Err() == nil; life++ {
		if peer := p.connect(ctx, life); peer != nil {
			p.talk(ctx, peer)
			p.end(ctx, peer)
		}
		if p.left() {
			return
		}
		rig.Sleep(ctx, connectPause)
	}
}

// connect returns a connected client, or nil.
func (p *Player) connect(ctx context.Context, life int) *dnptest.Peer {
	party, connected, ended := fmt.Sprintf("%s.%d", p.Name, life), make(chan struct{}), make(chan struct{})
	p.mu.Lock()
	p.party, p.said, p.unacked, p.view, p.ended = party, 0, nil, map[string]uint32{}, ended
	if p.wake == nil {
		p.wake = make(chan struct{}, 1)
	}
	p.mu.Unlock()
	isConnected, hasEnded := sync.OnceFunc(func() { close(connected) }), sync.OnceFunc(func() { close(ended) })
	app := dnptest.App{
		Connected: func() { p.setConnected(); isConnected() },
		Closed:    func(reason string) { p.lost(ctx, party, reason); hasEnded() },
		Updated:   p.updated,
		LinkDown:  p.down,
		Message: func(m dnptest.Message) { // a number, in digits
			if n, err := strconv.ParseUint(string(m.Data), 10, 64); err == nil && m.Reliable {
				p.Note(history.Record{Kind: history.Got, Who: party, N: n})
			}
		},
	}
	var peer *dnptest.Peer
	err := p.Host.In(func() (err error) {
		peer, err = dnptest.RunUDP(ctx, dnptest.Config{Behaviour: p.Behaviour, Server: p.Server, App: app}, p.Local)
		return err
	})
	if err != nil {
		return nil
	}
	p.mu.Lock()
	p.peer = peer
	p.mu.Unlock()
	if p.Flow != nil {
		p.Flow(peer.Addr(), party)
	}
	select {
	case <-connected:
		return peer
	case <-ended:
	case <-ctx.Done():
	case <-time.After(connectTimeout):
	}
	p.end(ctx, peer)
	return nil
}

func (p *Player) end(ctx context.Context, peer *dnptest.Peer) {
	if p.Ended != nil {
		p.Ended(peer.Addr(), ctx.Err() == nil && !p.left())
	}
	peer.Close()
}

// talk sends messages at the pace of the player until its connection ends.
func (p *Player) talk(ctx context.Context, peer *dnptest.Peer) {
	for {
		var pause <-chan time.Time // never, for a player that sends nothing
		if p.Pace != nil {
			pause = time.After(p.Pace.random(p.Rand))
		}
		select {
		case <-ctx.Done():
			return
		case <-p.ended:
			return
		case <-p.wake: // the player leaves
			_ = peer.Do(func(now time.Time, c *dnptest.Client) { c.Close(now) }) // a client that has ended has left
			return
		case <-pause:
		}
		if peer.Do(p.say) != nil {
			return
		}
	}
}

// say records which messages were acknowledged, and sends the next one unless several
// wait.
func (p *Player) say(now time.Time, c *dnptest.Client) {
	if c.Phase() != dnptest.Connected {
		return
	}
	for done := len(p.unacked) - c.Queued(); done > 0; done-- {
		p.Note(history.Record{Kind: history.Acked, Who: p.party, N: p.unacked[0]})
		p.unacked = p.unacked[1:]
	}
	if c.Queued() >= queuedMost || p.Pace.Load() == 0 {
		return
	}
	p.said++
	p.unacked = append(p.unacked, p.said)
	p.Note(history.Record{Kind: history.Said, Who: p.party, N: p.said})
	_ = c.Send(now, fmt.Appendf(nil, "%s/%d", p.party, p.said)) // the client is connected and the message is short
}

func parse(data []byte) (party string, n uint64, ok bool) {
	party, text, ok := strings.Cut(string(data), "/")
	n, err := strconv.ParseUint(text, 10, 64)
	return party, n, ok && err == nil
}

func (p *Player) setConnected() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.connected = true
}

// lost records the end of a connection. The end of an attempt is not one: the
// interruption began with the end of the last connection.
func (p *Player) lost(ctx context.Context, party, reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.connected && !p.leaving && ctx.Err() == nil {
		p.Note(history.Record{Kind: history.Closed, Who: party, Note: reason})
	}
	p.connected = false
}

// Leave ends the player, which tells its edge so.
func (p *Player) Leave() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.leaving = true
	p.Note(history.Record{Kind: history.Left, Who: p.party})
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *Player) left() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.leaving
}

// updated sees the value of a state, which is a number.
func (p *Player) updated(l *dnptest.Link, _ int) {
	value := l.State.Value(0)
	if strings.HasPrefix(string(l.Message), checkPrefix) {
		return
	}
	if len(value) != 4 {
		p.Note(history.Record{Kind: history.Problem, Who: p.Name, Note: fmt.Sprintf("%s: a value of %d bytes in %s", p.Name, len(value), l.Message)})
		return
	}
	v, key, now := binary.LittleEndian.Uint32(value), string(l.Message), time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.view[key]
	if v < old {
		p.back = append(p.back, StepBack{key, old, v, now})
	}
	p.view[key] = v
	if v > old && strings.HasPrefix(key, BusyPrefix) {
		p.updates.Add(now)
	}
}

func (p *Player) down(l *dnptest.Link) {
	key := string(l.Message)
	if p.LinkDown != nil {
		p.LinkDown(key)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.view, key)
}

// Value returns the value of a state that the player sees; 0 for none.
func (p *Player) Value(key string) uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.view[key]
}

// Gap returns the longest time without an update of the states that change at the pace of
// the game server.
func (p *Player) Gap(from, to time.Time) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.updates.Gap(from, to)
}

// Playing reports whether the player is connected and saw an update in the last second.
func (p *Player) Playing(now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.updates.First(now.Add(-time.Second))
	return p.connected && ok
}

// StepsBack returns the values that became smaller since the last call.
func (p *Player) StepsBack() []StepBack {
	p.mu.Lock()
	defer p.mu.Unlock()
	back := p.back
	p.back = nil
	return back
}

// Do calls f with the client of the player.
func (p *Player) Do(f func(now time.Time, c *dnptest.Client)) error {
	p.mu.Lock()
	peer := p.peer
	p.mu.Unlock()
	if peer == nil {
		return errors.New("the player has no connection")
	}
	return peer.Do(f)
}

// Settled reports whether all messages of the player are acknowledged.
func (p *Player) Settled() (ok bool) {
	return p.Do(func(_ time.Time, c *dnptest.Client) { ok = c.Queued() == 0 }) != nil || ok
}

// trackMax bounds the moments of a track; the older half is dropped when it is full. At
// 50 Hz it covers some minutes.
const trackMax = 1 << 14

// A Track is the moments of an event, in order. Its owner guards it.
type Track struct{ at []time.Time }

// Add appends a moment.
func (t *Track) Add(now time.Time) {
	if len(t.at) == trackMax {
		t.at = append(t.at[:0], t.at[trackMax/2:]...)
	}
	t.at = append(t.at, now)
}

// Gap returns the longest time between from and to without an event, as if one happened
// at from.
func (t *Track) Gap(from, to time.Time) (longest time.Duration) {
	last := from
	for _, at := range t.at {
		if at.Before(from) {
			continue
		}
		if at.After(to) {
			break
		}
		longest = max(longest, at.Sub(last))
		last = at
	}
	return max(longest, to.Sub(last))
}

// First returns the first moment that is not before from.
func (t *Track) First(from time.Time) (time.Time, bool) {
	for _, at := range t.at {
		if !at.Before(from) {
			return at, true
		}
	}
	return time.Time{}, false
}
