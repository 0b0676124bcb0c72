//go:build linux

package clustertest

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/internal/proc"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/dnprelay/dnprelay/testbed/play"
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
	nc, err := nats.Connect(strings.Join(c.NATSURLs, ","), nats.Name("game"), nats.SetCustomDialer(c.game), nats.MaxReconnects(-1),
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

// An answer is that of a relay to a publish.
type answer struct {
	Epoch   uint64
	Error   *struct{ Code, Message string }
	Durable *bool
}

func (g *game) answer(m *nats.Msg) {
	now := time.Now()
	n, _ := strconv.Atoi(m.Subject[len(g.inbox)+1:])
	g.mu.Lock()
	defer g.mu.Unlock()
	p, ok := g.sent[uint32(n)]
	var a answer
	if !ok || m.Header.Get("Status") != "" || json.Unmarshal(m.Data, &a) != nil { // Status: no relay listens
		return
	}
	if a.Error != nil {
		g.remake = g.remake || a.Error.Code == "unknown_state"
		return
	}
	g.accept(now, p, a)
}

func (g *game) accept(now time.Time, p publish, a answer) {
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
	quiet = make(map[string]uint32, len(g.want))
	for key, v := range g.want {
		quiet[key] = v
	}
	for _, p := range g.newest {
		if p.at.Before(before) {
			busy = max(busy, p.n)
		}
	}
	return quiet, busy
}

func (g *game) epochCount() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.epochs)
}

// once publishes one op until it is accepted.
func (g *game) once(ctx context.Context, op string) error {
	var last string
	err := proc.Await(ctx, 20*time.Second, "publish "+op, func() bool {
		m, err := g.nc.Request(g.subjects.Publish(space, ""), []byte(op), 300*time.Millisecond)
		if err != nil {
			last = err.Error()
			return false
		}
		var a answer
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
