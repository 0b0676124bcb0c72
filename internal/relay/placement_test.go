package relay

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/bus/membus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/subject"
)

// askedLeases are leases that note what they are asked.
type askedLeases struct {
	wants    int            // how often Want was called
	ranks    map[int]int    // by shard, of the last Want
	released map[int]string // successor, by shard
	loads    []askedLoad
	stored   []cluster.Keyframe
	silent   bool          // empty batches have no answer
	asked    []func(error) // the answers that they lack
	handle   func(cluster.LeaseEvent)
}

func (l *askedLeases) OnEvent(handle func(cluster.LeaseEvent)) { l.handle = handle }
func (l *askedLeases) Want(shard int, rank int)                { l.wants, l.ranks[shard] = l.wants+1, rank }
func (l *askedLeases) Release(shard int, _ uint64, to string)  { l.released[shard] = to }
func (l *askedLeases) Fence(int, uint64)                       {}

func (l *askedLeases) Store(_ int, _ uint64, batch []cluster.Keyframe, done func(error)) {
	if l.silent && len(batch) == 0 {
		l.asked = append(l.asked, done)
		return
	}
	l.stored = append(l.stored, batch...)
	done(nil)
}

// An askedLoad is a load that the test answers.
type askedLoad struct {
	shard int
	epoch uint64
	each  func([]cluster.Keyframe)
	done  func(error)
}

func (l *askedLeases) Load(shard int, epoch uint64, each func([]cluster.Keyframe), done func(error)) {
	l.loads = append(l.loads, askedLoad{shard, epoch, each, done})
}

// A placed is relay a in a roster of a, b and a ghost, with two workers that the test turns.
type placed struct {
	*testing.T
	relay     *Relay
	leases    *askedLeases
	other     *membus.Bus
	calls     []func()
	announced int // by a
	said      string
	now       time.Time
}

const placedShards = 8

func newPlaced(t *testing.T) *placed {
	p := &placed{T: t, leases: &askedLeases{ranks: map[int]int{}, released: map[int]string{}}, now: time.Unix(1, 0)}
	hub := membus.New(membus.Config{Shards: placedShards, Schedule: func(d time.Duration, f func()) {
		if d == 0 { // requests never time out
			p.calls = append(p.calls, f)
		}
	}})
	p.other = hub.Node("b")
	if _, err := p.other.Subscribe(subject.Names{}.RelayAll(), func(m bus.Msg) {
		if m.Subject == (subject.Names{}).Relay("a") {
			p.announced++
			p.said = string(m.Data)
		}
	}); err != nil {
		t.Fatal(err)
	}
	var err error
	p.relay, err = New(Config{Node: "a", Bus: hub.Node("a"), Shards: placedShards, Workers: 2, Leases: p.leases, Log: slog.New(slog.DiscardHandler)})
	if err == nil {
		err = p.relay.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var members []cluster.Member
	for _, name := range []string{"a", "b", "ghost"} {
		members = append(members, cluster.Member{Name: name, Role: cluster.RoleRelay, Phase: cluster.PhaseReady})
	}
	p.relay.SetRoster(cluster.NewRoster(members))
	return p
}

// turn turns these workers after a time, and returns how often the relay announced itself.
func (p *placed) turn(after time.Duration, workers ...int) (announced int) {
	before := p.announced
	p.now = p.now.Add(after)
	for _, i := range workers {
		p.relay.Workers()[i].Turn(p.now)
	}
	for len(p.calls) > 0 {
		f := p.calls[0]
		p.calls = p.calls[1:]
		f()
	}
	return p.announced - before
}

// announce lets another relay announce itself.
func (p *placed) announce(name string) {
	if err := p.other.Publish(bus.Msg{Subject: subject.Names{}.Relay(name), Data: []byte(`{"ready":true}`)}); err != nil {
		p.Fatal(err)
	}
	p.turn(0)
}

// ranks wants a to have one of these ranks for every shard, and each for some.
func (p *placed) ranks(why string, want ...int) {
	p.Helper()
	seen := map[int]bool{}
	for _, rank := range p.leases.ranks {
		seen[rank] = true
	}
	for _, rank := range want {
		if !seen[rank] {
			p.Errorf("%s: a has rank %d for no shard", why, rank)
		}
	}
	if len(seen) != len(want) || len(p.leases.ranks) != placedShards {
		p.Errorf("%s: a has the ranks %v for %d shards, want %v", why, seen, len(p.leases.ranks), want)
	}
}

// TestPlacement checks whom a relay gives shards: relays that announced themselves lately, and not
// those that only gossip knows.
func TestPlacement(t *testing.T) {
	p := newPlaced(t)
	p.turn(0, 0, 1)
	p.ranks("no other relay was heard", 0)
	for shard := range placedShards {
		p.leases.handle(cluster.LeaseEvent{Kind: cluster.ShardAcquired, Shard: shard, Epoch: uint64(shard + 1)})
	}
	p.turn(0, 0, 1)
	if len(p.leases.released) > 0 {
		t.Errorf("a releases %v although no other relay was heard", p.leases.released)
	}
	p.announce("b")
	p.turn(0, 0, 1)
	p.ranks("b announced itself", 0, 1)
	moved := len(p.leases.released)
	for shard, to := range p.leases.released {
		if to != "b" || p.leases.ranks[shard] != 1 {
			t.Errorf("shard %d, for which a has rank %d, is released to %q", shard, p.leases.ranks[shard], to)
		}
	}
	if moved == 0 || moved == placedShards {
		t.Errorf("%d of %d shards are released to b", moved, placedShards)
	}
	p.turn(3*time.Second, 0, 1)
	p.ranks("b is silent", 0)
	p.announce("b")
	if p.turn(cluster.AnnounceInterval, 0, 1); p.said != `{"ready":true}` {
		t.Errorf("a relay that is ready announces %s", p.said)
	}
	p.ranks("b announced itself again", 0, 1)
	for _, answer := range []string{`{"type":"io.nats.jetstream.api.v1.stream_info_response"}`, `{"stream":"DNP_LOG_0","seq":1}`} {
		if err := p.other.Publish(bus.Msg{Subject: subject.Names{}.Relay("b"), Data: []byte(answer)}); err != nil {
			t.Fatal(err)
		}
		p.turn(0)
	}
	p.turn(0, 0, 1)
	p.ranks("an answer of JetStream says nothing about b", 0, 1)
	if err := p.other.Publish(bus.Msg{Subject: subject.Names{}.Relay("b"), Data: []byte(`{"ready":false}`)}); err != nil {
		t.Fatal(err)
	}
	p.turn(0)
	p.turn(0, 0, 1)
	p.ranks("b leaves", 0)

	p.announce("b")
	p.relay.Drain()
	p.turn(0, 0, 1)
	p.ranks("a leaves", cluster.NoRank)
	if len(p.leases.released) != placedShards {
		t.Errorf("a relay that leaves releases %d of %d shards", len(p.leases.released), placedShards)
	}
	if p.said != `{"ready":false}` {
		t.Errorf("a relay that leaves announces %s", p.said)
	}
}

// TestSparePlacement has a relay acquire a shard because the one that ranks before it did not. It
// keeps the shard.
func TestSparePlacement(t *testing.T) {
	p := newPlaced(t)
	p.announce("b")
	p.turn(0, 0, 1)
	for shard, rank := range p.leases.ranks {
		p.leases.handle(cluster.LeaseEvent{Kind: cluster.ShardAcquired, Shard: shard, Epoch: 1, Spare: rank > 0})
	}
	p.turn(0, 0, 1)
	if len(p.leases.released) > 0 {
		t.Errorf("shards that b did not take are released to it: %v", p.leases.released)
	}
}

// TestAnnouncement checks that a relay announces itself twice a second, and only while all its
// workers turn.
func TestAnnouncement(t *testing.T) {
	p := newPlaced(t)
	if p.turn(0, 0) != 0 {
		t.Error("a relay announces itself before all its workers have turned")
	}
	p.turn(0, 1)
	for step, c := range []struct {
		after   time.Duration
		workers []int
		want    int
	}{
		{cluster.AnnounceInterval, []int{0, 1}, 1},
		{0, []int{0, 1}, 0},
		{cluster.AnnounceInterval, []int{0, 1}, 1},
		{cluster.AnnounceInterval, []int{0}, 1},
		{cluster.AnnounceInterval, []int{0}, 1},
		{cluster.AnnounceInterval, []int{0}, 0}, // the other worker did not turn for too long
		{cluster.AnnounceInterval, []int{1, 0}, 1},
		{time.Minute, []int{1}, 0}, // the first worker announces
	} {
		if got := p.turn(c.after, c.workers...); got != c.want {
			t.Errorf("step %d: the relay announces itself %d times, want %d", step, got, c.want)
		}
	}
}

// TestSlowTurn has a worker handle many commands in one turn, as when it loads many states. The
// leases must hear meanwhile that it does not hang.
func TestSlowTurn(t *testing.T) {
	p := newPlaced(t)
	p.turn(0, 0, 1)
	p.leases.wants = 0
	for range 10 * placeCommands {
		p.relay.Workers()[0].commands.Put(func(time.Time) {})
	}
	p.turn(0, 0)
	if want := 10 * placedShards / 2; p.leases.wants != want {
		t.Errorf("in a turn of %d commands the leases hear %d ranks, want %d", 10*placeCommands, p.leases.wants, want)
	}
}

// An orderedBus notes of which shards there are heads, and wants their subscriptions to be first:
// NATS handles what comes over a connection in order.
type orderedBus struct {
	bus.Bus
	*testing.T
	subscribed map[string]bool
	heads      map[int]bool
}

func (b *orderedBus) Subscribe(subject string, handle func(bus.Msg)) (func(), error) {
	b.subscribed[subject] = true
	return b.Bus.Subscribe(subject, handle)
}

func (b *orderedBus) Publish(m bus.Msg) error {
	names := subject.Names{}
	if shard, ok := names.ParseShard(m.Subject); ok && m.Subject == names.Head(shard) {
		b.heads[shard] = true
		if !b.subscribed[names.ShardPublishAll(shard)] {
			b.Errorf("the head of shard %d comes before the subscription to its publishes", shard)
		}
	}
	return b.Bus.Publish(m)
}

// TestReady: a relay is ready when all shards are served, by it or by others, and the bus brings their
// publishes to the holders.
func TestReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // time stands still
		const last = placedShards - 1 // another relay has it
		p := newPlaced(t)
		own := &orderedBus{p.relay.cfg.Bus, t, map[string]bool{}, map[int]bool{}}
		p.relay.cfg.Bus = own
		want := func(why string, ready bool) {
			t.Helper()
			p.turn(time.Millisecond, 0, 1)
			p.turn(time.Millisecond, 0, 1)
			if p.relay.Ready() != ready {
				t.Errorf("%s: ready is %v", why, !ready)
			}
		}
		want("it has no shard", false)
		for shard := range last {
			p.leases.handle(cluster.LeaseEvent{Kind: cluster.ShardAcquired, Shard: shard, Epoch: 1})
		}
		want("it has not loaded what was stored", false)
		for _, load := range p.leases.loads {
			load.done(nil)
		}
		want("the last shard has no holder", false)
		if len(own.heads) != last {
			t.Errorf("%d shards have heads, want %d", len(own.heads), last)
		}
		other := func() {
			if err := p.other.Publish(bus.Msg{Subject: subject.Names{}.Head(last), Data: replication.AppendHead(nil, 1, nil)}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(headFresh + 1)
		other()
		want("the heads of the other shards are old", false)
		p.turn(headInterval, 0, 1)
		want("all shards have holders", true)
	})
}
