package systest

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/bus/natsbus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/gossip"
	"github.com/dnprelay/dnprelay/cluster/natslease"
	"github.com/dnprelay/dnprelay/internal/compose"
	"github.com/dnprelay/dnprelay/internal/natsembed"
	"github.com/dnprelay/dnprelay/internal/relay"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/subject"
)

// clubShards is the number of shards of a club.
const clubShards = 16

// clubPatience is how long relays may take to share the shards. One that was too slow once, on a
// machine with much to do, gets none for a minute.
const clubPatience = 2*time.Minute + patience

// A club is relays with real loops, on a real NATS server and with real gossip.
type club struct {
	*testing.T
	url      string // of NATS
	replicas int    // of what is stored
	keys     string
	all      []*clubRelay

	mu    sync.Mutex
	heads []heard // by shard; the bus writes and the test reads
}

// A heard is what the heads of a shard said.
type heard struct {
	epoch uint64
	at    time.Time
}

// A clubRelay is a relay of a club.
type clubRelay struct {
	name   string
	relay  *relay.Relay
	bus    *hangingBus
	gossip *gossip.Gossip
	end    func()   // drains it
	after  []func() // each ends something that the relay needs until it has drained
}

// A hangingBus blocks who publishes, as a fault in a worker would.
type hangingBus struct {
	*natsbus.Bus
	mu   sync.Mutex
	hung chan struct{} // nil if it does not hang
}

func (b *hangingBus) Publish(m bus.Msg) error {
	b.mu.Lock()
	hung := b.hung
	b.mu.Unlock()
	if hung != nil {
		<-hung
	}
	return b.Bus.Publish(m)
}

// hang stops the workers that publish; resume lets them go on.
func (b *hangingBus) hang() (resume func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	hung := make(chan struct{})
	b.hung = hung
	return sync.OnceFunc(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.hung = nil
		close(hung)
	})
}

// newClub starts a NATS server and n relays, and waits until they serve all shards.
func newClub(t *testing.T, n int) *club {
	t.Helper()
	s := startNATS(t, natsembed.Config{Mappings: subject.Names{}.Mappings(clubShards)})
	return newClubAt(t, []string{s.URL()}, clubShards, n)
}

// newClubAt is newClub with servers that run, each of which has a copy of everything that is stored.
func newClubAt(t *testing.T, urls []string, shards, n int) *club {
	t.Helper()
	c := &club{T: t, url: strings.Join(urls, ","), replicas: len(urls), heads: make([]heard, shards), keys: keyFile(t, 7)}
	listener := c.bus("listener")
	if _, err := listener.Subscribe(subject.Names{}.HeadAll(), c.head); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		c.add(fmt.Sprint("r", i+1))
	}
	c.served("at the start", time.Time{})
	return c
}

func (c *club) bus(name string) *natsbus.Bus {
	c.Helper()
	b, err := natsbus.Connect(natsbus.Config{URL: c.url, Name: name})
	for end := time.Now().Add(patience); err != nil && time.Now().Before(end); {
		b, err = natsbus.Connect(natsbus.Config{URL: c.url, Name: name}) // the machine has much to do
	}
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(b.Close)
	return b
}

// join opens the gossip of a relay, with the key of all.
func (c *club) join(name string) (g *gossip.Gossip, end func()) {
	c.Helper()
	var join []string
	for _, m := range c.all {
		join = append(join, m.gossip.Addr().String())
	}
	g, err := gossip.Open(gossip.Config{
		Self: cluster.Member{Name: name, Role: cluster.RoleRelay, Phase: cluster.PhaseReady, Shards: uint16(len(c.heads)), Incarnation: uint64(time.Now().UnixMilli())},
		Bind: "127.0.0.1:0", Join: join, KeyFile: c.keys, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		c.Fatal(err)
	}
	return g, c.run("gossip of "+name, g.Run)
}

// run runs f until the test ends or end is called.
func (c *club) run(name string, f func(context.Context) error) (end func()) {
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if err := f(ctx); err != nil {
			c.Errorf("%s: %v", name, err)
		}
	}()
	end = func() { stop(); <-ended }
	c.Cleanup(end)
	return end
}

// add starts a relay.
func (c *club) add(name string) {
	c.Helper()
	log := slog.New(slog.DiscardHandler)
	m := &clubRelay{name: name, bus: &hangingBus{Bus: c.bus(name)}}
	var endGossip func()
	m.gossip, endGossip = c.join(name)
	var leases *natslease.Leases
	var err error
	store := c.bus(name + " store")
	for end := time.Now().Add(patience); ; { // as relays do: NATS may be busy
		if leases, err = natslease.Open(c.Context(), natslease.Config{Conn: store.Conn(), Node: name, Shards: len(c.heads), Replicas: c.replicas}); err == nil || time.Now().After(end) {
			break
		}
	}
	if err != nil {
		c.Fatal(err)
	}
	if m.relay, err = relay.New(relay.Config{Node: name, Bus: m.bus, Shards: len(c.heads), Workers: 2, Leases: leases, DrainTimeout: patience, Log: log}); err != nil {
		c.Fatal(err)
	}
	if err := m.relay.Start(); err != nil {
		c.Fatal(err)
	}
	endLeases := c.run("leases of "+name, func(ctx context.Context) error { leases.Run(ctx); return nil })
	m.end = c.run(name, m.relay.Run)
	endRoster := c.run("roster of "+name, func(ctx context.Context) error {
		compose.FollowRoster(ctx, m.gossip, m.relay.SetRoster)
		return nil
	})
	m.after = []func(){endRoster, endLeases, endGossip, store.Close, m.bus.Close}
	c.all = append(c.all, m)
}

// leave ends a relay as its program does: when the others have heard that it drains, it hands its shards over, and then
// its leases, its gossip and its connections end.
func (c *club) leave(m *clubRelay) {
	c.Helper()
	m.gossip.SetPhase(cluster.PhaseDraining)
	for _, o := range c.all {
		eventually(c.T, o.name+" hears that "+m.name+" leaves", func() bool {
			l, _ := o.gossip.Roster().Member(m.name)
			return l.Phase == cluster.PhaseDraining
		})
	}
	m.end()
	for _, end := range m.after {
		end()
	}
	c.all = slices.DeleteFunc(c.all, func(o *clubRelay) bool { return o == m })
}

// head takes a head, which only the worker that serves a shard publishes.
func (c *club) head(m bus.Msg) {
	shard, ok := subject.Names{}.ParseShard(m.Subject)
	epoch, parsed := replication.HeadEpoch(m.Data)
	if !ok || !parsed || int(shard) >= len(c.heads) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := &c.heads[shard]; epoch >= h.epoch {
		*h = heard{epoch, time.Now()}
	}
}

// served waits until the newest holder of every shard has served it after a time.
func (c *club) served(why string, after time.Time) {
	c.Helper()
	begin := time.Now()
	eventually(c.T, "every shard is served "+why, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for _, h := range c.heads {
			if !h.at.After(after) {
				return false
			}
		}
		return true
	})
	c.Logf("every shard is served %s, after %v", why, time.Since(begin).Round(time.Millisecond))
}

// serves returns how many shards a relay serves.
func (c *club) serves(m *clubRelay) uint64 {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), patience)
	defer cancel()
	s, err := m.relay.Stats(ctx)
	if err != nil {
		c.Fatal(err)
	}
	return s.Shards
}

// shared waits until every relay of a list serves a shard, and they serve all together.
func (c *club) shared(why string, all ...*clubRelay) {
	c.Helper()
	begin := time.Now()
	for end := begin.Add(clubPatience); !c.share(all); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			c.Fatalf("not within %v: %s", clubPatience, why)
		}
	}
	c.Logf("%s, after %v", why, time.Since(begin).Round(time.Millisecond))
}

func (c *club) share(all []*clubRelay) bool {
	c.Helper()
	sum := uint64(0)
	for _, m := range all {
		n := c.serves(m)
		if n == 0 {
			return false
		}
		sum += n
	}
	return sum == uint64(len(c.heads))
}

// TestGhostRelays lets members with the key of gossip pretend to be relays, as whoever takes over an
// edge can. No shard may go to them, neither at once nor from a relay that leaves. The test only
// logs how long that takes: that every shard has a holder within 5 s, with 20 ghosts, is checked
// in virtual time by TestSimulation and TestGap of package cluster.
func TestGhostRelays(t *testing.T) {
	const ghosts = 5 // more would only keep the processor busy
	t.Parallel()
	c := newClub(t, 3)
	c.shared("every relay has a share", c.all...)
	for i := range ghosts {
		c.join(fmt.Sprint("ghost", i+1))
	}
	for _, m := range c.all {
		eventually(t, m.name+" sees all ghosts", func() bool { return m.gossip.Roster().Len() == 3+ghosts })
	}
	c.served("with ghosts", time.Now().Add(time.Second))
	c.shared("every relay has its share although there are ghosts", c.all...)
	leaver := c.all[0]
	c.leave(leaver)
	c.served("after a relay has left", time.Now().Add(time.Second))
	c.shared("the other relays share all shards", c.all...)
}

// TestHungRelay stops the workers of a relay whose leases and gossip go on. Other relays must
// serve its shards. When its workers go on, it serves a share again. As in TestGhostRelays, the bound of
// 5 s is checked in virtual time.
func TestHungRelay(t *testing.T) {
	t.Parallel()
	c := newClub(t, 3)
	c.shared("every relay has a share", c.all...)
	resume := c.all[0].bus.hang()
	defer resume()
	c.served("while a relay hangs", time.Now().Add(time.Second))
	c.shared("the other relays share all shards", c.all[1:]...)
	resume()
	c.shared("the relay that hung has its share again", c.all...)
}
