//go:build linux

package clustertest

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/internal/proctest"
	"github.com/dnprelay/dnprelay/replication/payload"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/dnprelay/dnprelay/testbed/play"
	"github.com/dnprelay/dnprelay/testbed/rig"
	"github.com/nats-io/nats.go"
)

// pace is the time between two publishes of the game server.
const pace = 20 * time.Millisecond

// Keys of the states. The game server counts in the busy ones at its pace and changes the
// quiet ones now and then. A client writes the lamp.
var (
	busyKeys  = []string{"busy0", "busy1", "busy2", "busy3", "busy4"}
	quietKeys = []string{"quiet0", "quiet1", "quiet2", "quiet3", "quiet4", "quiet5", "quiet6", "quiet7"}
)

const lampKey = "lamp"

// A game is the game server. It speaks the JSON interface itself, because each single
// answer of the relays counts. It publishes the wanted value of a quiet state until that is
// accepted, and publishes everything again after the event reassert.
type game struct {
	nc       *nats.Conn
	subjects subject.Names
	inbox    string

	mu       sync.Mutex // answers, events and faults change what follows
	n        uint32     // of the last publish
	accepted play.Track // moments at which a publish was accepted
	newest   []publish  // the last accepted ones
	want     map[string]uint32
	dirty    map[string]bool // not accepted since it was changed
	sent     map[uint32]publish
	remake   bool            // the next publish has everything
	epochs   map[uint64]bool // in which a publish was accepted
	slowest  time.Duration   // longest time that a publish took to fail
	failed   int             // publishes that failed at once
}

// A publish is one message.
type publish struct {
	n    uint32
	at   time.Time
	all  bool              // has everything
	says map[string]uint32 // values of quiet states
}

func newGame(c *testCluster) (*game, error) {
	nc, err := nats.Connect(strings.Join(c.NATSURLs, ","), nats.Name("game"), nats.SetCustomDialer(c.Here), nats.MaxReconnects(-1),
		nats.ReconnectWait(50*time.Millisecond), nats.ReconnectJitter(50*time.Millisecond, 0), nats.ReconnectBufSize(-1))
	if err != nil {
		return nil, fmt.Errorf("game server: %w", err)
	}
	g := &game{
		nc: nc, inbox: nats.NewInbox(), remake: true, want: map[string]uint32{}, dirty: map[string]bool{},
		sent: map[uint32]publish{}, epochs: map[uint64]bool{},
	}
	for _, key := range quietKeys {
		g.want[key] = 1
	}
	_, err = nc.Subscribe(g.inbox+".*", g.answer)
	if err == nil {
		_, err = nc.Subscribe(g.subjects.Event(space), g.event)
	}
	return g, err
}

func (g *game) publish() {
	g.mu.Lock()
	g.n++
	p := publish{n: g.n, at: time.Now(), all: g.remake, says: map[string]uint32{}}
	for _, key := range quietKeys {
		if g.remake || g.dirty[key] {
			p.says[key] = g.want[key]
		}
	}
	g.sent[p.n] = p
	delete(g.sent, p.n-uint32(time.Minute/pace))
	g.mu.Unlock()
	err := g.nc.PublishRequest(g.subjects.Publish(space, ""), g.inbox+"."+strconv.Itoa(int(p.n)), p.body())
	took := time.Since(p.at)
	if err != nil {
		g.mu.Lock()
		g.failed++
		g.slowest = max(g.slowest, took)
		g.mu.Unlock()
	}
}

func (p publish) body() []byte {
	b := []byte(`{"ops":[`)
	for _, key := range busyKeys {
		b = append(appendOp(b, key, p.n, p.all), ',')
	}
	for _, key := range quietKeys {
		if v, ok := p.says[key]; ok {
			b = append(appendOp(b, key, v, p.all), ',')
		}
	}
	return append(b[:len(b)-1], "]}"...)
}

func appendOp(b []byte, key string, v uint32, put bool) []byte {
	if put {
		return append(b, putOp(key, v, "read-only")...)
	}
	return fmt.Appendf(b, `{"op":"set","key":%q,"values":{"n":%d}}`, key, v)
}

func putOp(key string, v uint32, access string) string {
	return fmt.Sprintf(`{"op":"put","key":%q,"message":%q,"access":%q,"values":[{"name":"n","type":"uint32","value":%d}]}`, key, key, access, v)
}

func (g *game) answer(m *nats.Msg) {
	now := time.Now()
	n, _ := strconv.Atoi(m.Subject[len(g.inbox)+1:])
	g.mu.Lock()
	defer g.mu.Unlock()
	p, ok := g.sent[uint32(n)]
	var a payload.Answer
	if !ok || m.Header.Get("Status") != "" || json.Unmarshal(m.Data, &a) != nil { // Status: no relay listens
		return
	}
	if a.Error != nil {
		g.remake = g.remake || a.Error.Code == "unknown_state"
		return
	}
	g.accept(now, p, a)
}

func (g *game) accept(now time.Time, p publish, a payload.Answer) {
	g.accepted.Add(now)
	g.newest = append(g.newest, p)
	if len(g.newest) > 1000 {
		g.newest = slices.Delete(g.newest, 0, 500)
	}
	g.epochs[a.Epoch] = true
	if p.all {
		g.remake = false
	}
	for key, v := range p.says {
		if g.want[key] == v {
			delete(g.dirty, key)
		}
	}
}

func (g *game) event(m *nats.Msg) {
	var e struct{ Type string }
	if json.Unmarshal(m.Data, &e) != nil || e.Type != "reassert" {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.remake = true
}

// change gives a quiet state a larger value, so that a step back shows.
func (g *game) change(key string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.want[key]++
	g.dirty[key] = true
}

// wanted returns the wanted values of the quiet states, and the number of the newest
// publish that was sent before a moment and accepted.
func (g *game) wanted(before time.Time) (quiet map[string]uint32, busy uint32) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.newest {
		if p.at.Before(before) {
			busy = max(busy, p.n)
		}
	}
	return maps.Clone(g.want), busy
}

func (g *game) epochCount() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.epochs)
}

// once publishes one op until it is accepted.
func (g *game) once(ctx context.Context, op string) error {
	var last string
	err := proctest.Await(ctx, 20*time.Second, "publish "+op, func() bool {
		m, err := g.nc.Request(g.subjects.Publish(space, ""), []byte(op), 300*time.Millisecond)
		if err != nil {
			last = err.Error()
			return false
		}
		var a payload.Answer
		last = string(m.Data)
		return json.Unmarshal(m.Data, &a) == nil && a.Error == nil && a.Epoch != 0
	})
	if err != nil {
		return fmt.Errorf("%w; the last answer was %s", err, last)
	}
	return nil
}

func (g *game) firstAccepted(from time.Time) (time.Time, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.accepted.First(from)
}

// gap is Track.Gap of the accepted publishes.
func (g *game) gap(from, to time.Time) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.accepted.Gap(from, to)
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

// lampPace is the time between two writes of a client.
const lampPace = 200 * time.Millisecond

// A lamp is a state into which a player counts.
type lamp struct {
	player *play.Player

	mu     sync.Mutex // the writer adds, measurements read
	writes []time.Time
}

func (l *lamp) write() {
	_ = l.player.Do(func(now time.Time, c *dnptest.Client) { // fails while the player has no connection
		link := c.LinkNamed(lampKey)
		if link == nil || link.Phase != dnptest.LinkIsUp || c.Phase() != dnptest.Connected {
			return
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.writes = append(l.writes, now)
		c.Set(link, 0, binary.LittleEndian.AppendUint32(nil, uint32(len(l.writes))))
	})
}

// before returns the number of the newest write before a moment.
func (l *lamp) before(t time.Time) uint32 {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := len(l.writes)
	for n > 0 && !l.writes[n-1].Before(t) {
		n--
	}
	return uint32(n)
}

// ledgerPrefix begins the keys of states that are put once and never published again. They
// must survive every fault; removed ones must stay away.
const ledgerPrefix = "ledger"

// A ledger is one such state at a time.
type ledger struct {
	game *game

	mu   sync.Mutex // the run writes, measurements read
	n    uint32     // of the newest state, and its value; 0 = none yet
	live bool       // accepted, and not to be removed
}

func (l *ledger) put(ctx context.Context) error {
	l.mu.Lock()
	n := l.n + 1
	l.mu.Unlock()
	if err := l.game.once(ctx, putOp(l.key(n), n, "read-only")); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n, l.live = n, true
	return nil
}

func (l *ledger) remove(ctx context.Context) error {
	l.mu.Lock()
	l.live = false
	n := l.n
	l.mu.Unlock()
	return l.game.once(ctx, fmt.Sprintf(`{"op":"remove","key":%q}`, l.key(n)))
}

func (l *ledger) key(n uint32) string { return fmt.Sprintf("%s%d", ledgerPrefix, n) }

// differences lists the states that a player misses, and those that it should not see.
func (l *ledger) differences(p *play.Player) (list []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if got := p.Value(l.key(l.n)); l.live && got != l.n {
		list = append(list, fmt.Sprintf("%s has %s=%d, not %d", p.Name, l.key(l.n), got, l.n))
	}
	for n := uint32(1); n < l.n; n++ {
		if p.Value(l.key(n)) != 0 {
			list = append(list, fmt.Sprintf("%s has %s, which was removed", p.Name, l.key(n)))
		}
	}
	return list
}

// The age of an accepted publish and of a client's write from which on every client must
// have them. Both are far above what delivery takes on an idle machine, and far below the
// bars.
const (
	busySlack = 150 * time.Millisecond
	lampSlack = 500 * time.Millisecond
)

// How long clients must have everything until that counts, how often that is checked, and
// after what time the check gives up.
const (
	equalHold = 500 * time.Millisecond
	equalLook = 10 * time.Millisecond
	equalMost = 20 * time.Second
)

// differences says where players differ from the game server: the players of the clean
// path, or all.
func (r *run) differences(now time.Time, all bool) string {
	quiet, busy := r.game.wanted(now.Add(-busySlack))
	lamp := r.lamp.before(now.Add(-lampSlack))
	var b strings.Builder
	for _, p := range r.players {
		if !p.clean && !all {
			continue
		}
		for key, v := range quiet {
			if got := p.Value(key); got != v {
				fmt.Fprintf(&b, "%s has %s=%d, not %d; ", p.Name, key, got, v)
			}
		}
		for _, key := range busyKeys {
			if got := p.Value(key); got < busy {
				fmt.Fprintf(&b, "%s has %s=%d, not %d; ", p.Name, key, got, busy)
			}
		}
		if got := p.Value(lampKey); p.Player != r.lamp.player && got < lamp {
			fmt.Fprintf(&b, "%s has %s=%d, not %d; ", p.Name, lampKey, got, lamp)
		}
		for _, d := range r.ledger.differences(p.Player) {
			b.WriteString(d + "; ")
		}
	}
	return strings.TrimSuffix(b.String(), "; ")
}

// equalSince waits until players have had everything for equalHold, and returns when that
// began. The error lists the differences.
func (r *run) equalSince(ctx context.Context, all bool) (since time.Time, err error) {
	end := time.Now().Add(equalMost)
	for ; ctx.Err() == nil; rig.Sleep(ctx, equalLook) {
		now := time.Now()
		different := r.differences(now, all)
		switch {
		case different != "" && now.After(end):
			return now, fmt.Errorf("not equal after %v: %s", equalMost, different)
		case different != "":
			since = time.Time{}
		case since.IsZero():
			since = now
		case now.Sub(since) >= equalHold:
			return since, nil
		}
	}
	return time.Now(), ctx.Err()
}
