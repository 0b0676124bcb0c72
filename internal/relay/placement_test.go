package relay

import (
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/bus/membus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/lease"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/subject"
)

// askedLeases are leases that note what they are asked.
type askedLeases struct {
	alive    int            // how often Alive was called
	open     map[int]bool   // by shard, of the last Alive
	released map[int]string // successor, by shard
	loads    []askedLoad
	stored   []cluster.Keyframe
	silent   bool          // empty batches have no answer
	asked    []func(error) // the answers that they lack
	handle   func(cluster.LeaseEvent)
}

func (l *askedLeases) OnEvent(handle func(cluster.LeaseEvent)) { l.handle = handle }
func (l *askedLeases) Alive(shard int, open bool)              { l.alive, l.open[shard] = l.alive+1, open }
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

// A placed is relay a with two workers that the test turns.
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
	p := &placed{T: t, leases: &askedLeases{open: map[int]bool{}, released: map[int]string{}}, now: time.Unix(1, 0)}
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

// acquire gives a all shards, and ends their loads.
func (p *placed) acquireAll() {
	for shard := range placedShards {
		p.leases.handle(cluster.LeaseEvent{Kind: cluster.ShardAcquired, Shard: shard, Epoch: uint64(shard + 1)})
	}
	p.turn(0, 0, 1)
	for _, l := range p.leases.loads {
		l.done(nil)
	}
	p.turn(0, 0, 1)
}

// place has the leases say which relay should hold a shard.
func (p *placed) place(shard int, node string) {
	p.leases.handle(cluster.LeaseEvent{Kind: cluster.ShardPlaced, Shard: shard, Epoch: uint64(shard + 1), Node: node})
	p.turn(0, 0, 1)
}

// TestPlacement has the leases say which relay should hold shards: a hands them over, and keeps what no relay takes unless it leaves.
func TestPlacement(t *testing.T) {
	p := newPlaced(t)
	p.acquireAll()
	if len(p.leases.open) != placedShards || !p.leases.open[0] || !p.leases.open[placedShards-1] {
		t.Errorf("a takes shards: %v", p.leases.open)
	}
	p.place(0, "")
	p.place(1, "a")
	if len(p.leases.released) > 0 {
		t.Errorf("a releases %v although no other relay should hold a shard", p.leases.released)
	}
	p.place(2, "b")
	if to, ok := p.leases.released[2]; len(p.leases.released) != 1 || !ok || to != "b" {
		t.Errorf("a releases %v, want shard 2 to b", p.leases.released)
	}
	p.turn(lease.AliveInterval, 0, 1)
	if p.said != `{"ready":true}` {
		t.Errorf("a relay that works announces %s", p.said)
	}
	p.relay.Drain()
	p.turn(0, 0, 1)
	if p.leases.open[0] || p.said != `{"ready":false}` {
		t.Errorf("a relay that leaves takes shards, or announces %s", p.said)
	}
	for shard := range placedShards {
		p.place(shard, "")
	}
	if len(p.leases.released) != placedShards {
		t.Errorf("a relay that leaves releases %d of %d shards", len(p.leases.released), placedShards)
	}
}

// TestPause stops serving a shard while the durable store is silent for too long, and goes on with what the relay has.
func TestPause(t *testing.T) {
	a := keyframe(t, 2, 0, "a", 1)
	p := newPlaced(t)
	p.acquire(10, 0)
	p.event(cluster.LeaseEvent{Kind: cluster.ShardPaused, Epoch: 10})
	load := p.loads("acquired", 1)
	p.brings(load, a)
	p.ends(load, nil)
	p.serves("the store fell silent during the load")
	p.event(cluster.LeaseEvent{Kind: cluster.ShardResumed, Epoch: 10})
	p.serves("the store is back", "a=1")
	p.event(cluster.LeaseEvent{Kind: cluster.ShardPaused, Epoch: 10})
	p.serves("the store is silent")
	p.event(cluster.LeaseEvent{Kind: cluster.ShardPlaced, Epoch: 10, Node: "b"})
	p.event(cluster.LeaseEvent{Kind: cluster.ShardResumed, Epoch: 10})
	p.serves("another relay gets the shard")
	if p.leases.released[loadedShard] != "b" {
		t.Errorf("released to %v, want b", p.leases.released)
	}
	p.loads("nothing is loaded again", 1)
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
		{lease.AliveInterval, []int{0, 1}, 1},
		{0, []int{0, 1}, 0},
		{lease.AliveInterval, []int{0, 1}, 1},
		{lease.AliveInterval, []int{0}, 1},
		{lease.AliveInterval, []int{0}, 1},
		{lease.AliveInterval, []int{0}, 0}, // the other worker did not turn for too long
		{lease.AliveInterval, []int{1, 0}, 1},
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
	p.leases.alive = 0
	for range 10 * aliveCommands {
		p.relay.Workers()[0].commands.Put(func(time.Time) {})
	}
	p.turn(0, 0)
	if want := 10 * placedShards / 2; p.leases.alive != want {
		t.Errorf("in a turn of %d commands the leases hear %d times, want %d", 10*aliveCommands, p.leases.alive, want)
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
