package natslease

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus/natsconn"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/lease"
	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/internal/jetstream"
	"github.com/dnprelay/dnprelay/internal/natstest"
	"github.com/dnprelay/dnprelay/internal/turn"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

func TestMain(m *testing.M) { natstest.VerifyNoLeaks(m) }

// patience is how long a test waits for what must happen.
const patience = 60 * time.Second

// A relay is Leases with the events that they reported.
type relay struct {
	*Leases
	t      testing.TB
	events chan cluster.LeaseEvent
	others []cluster.LeaseEvent // that came while want waited for one about another shard
	kill   func()
	ctx    context.Context // ends with kill
	ended  chan error      // of Maintain; nil before maintain
	log    lockedText

	takes atomic.Int32 // 0: its workers do not turn; 1: they do; 2: and it takes shards
}

// Want says until the next call that the workers turn, and whether the relay takes shards.
func (r *relay) Want(open bool) {
	r.takes.Store(1)
	if open {
		r.takes.Store(2)
	}
	r.alive()
}

// sees reports whether the relay knows that another one takes shards in all streams.
func (r *relay) sees(node string) bool {
	for _, l := range r.lanes {
		open := make(chan bool, 1)
		l.put(func(time.Time) { open <- l.lease.Open(node) })
		if !<-open {
			return false
		}
	}
	return true
}

func (r *relay) alive() {
	if takes := r.takes.Load(); takes > 0 {
		for shard := range r.cfg.Shards {
			r.Alive(shard, takes == 2)
		}
	}
}

// wants repeats what Want said.
func (r *relay) wants(ctx context.Context) {
	for range turn.After(ctx, lease.AliveInterval) {
		r.alive()
	}
}

func open(t testing.TB, nc *nats.Conn, cfg Config) *Leases {
	t.Helper()
	cfg.Conn = nc
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		l, err := Open(ctx, cfg)
		if err == nil {
			return l
		}
		if errors.Is(err, jetstream.ErrDeployment) || ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// A servers is a cluster of NATS servers.
type servers interface {
	Connect(t testing.TB, opts ...nats.Option) *nats.Conn
}

// start runs a relay until the test ends or kill is called, which is a sudden death.
func start(t testing.TB, c servers, node string, replicas int) *relay {
	t.Helper()
	r := prepare(t, c, node, replicas)
	r.run()
	return r
}

// prepare makes a relay that does not run yet.
func prepare(t testing.TB, c servers, node string, replicas int) *relay {
	t.Helper()
	r := &relay{t: t, events: make(chan cluster.LeaseEvent, 1000)}
	r.Leases = open(t, c.Connect(t, natsconn.Options()...), Config{Node: node, Shards: 4, Streams: 2, Replicas: replicas, Log: r.log.logger()})
	r.OnEvent(func(e cluster.LeaseEvent) { r.events <- e })
	return r
}

func (r *relay) run() {
	r.serve()
	r.maintain()
}

// serve runs a relay that does not look after its streams yet.
func (r *relay) serve() {
	ctx, cancel := context.WithCancel(context.Background())
	r.ctx = ctx
	var running sync.WaitGroup
	running.Go(func() { r.Run(ctx) })
	running.Go(func() { r.wants(ctx) })
	r.kill = func() {
		cancel()
		running.Wait()
		if r.ended != nil {
			<-r.ended
		}
	}
	r.t.Cleanup(r.kill)
}

// maintain has the relay look after its streams until it ends.
func (r *relay) maintain() {
	r.ended = make(chan error, 1)
	go func() { r.ended <- r.Maintain(r.ctx); close(r.ended) }()
}

// eventually waits until something is so.
func eventually(t testing.TB, what string, so func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !so(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// A lockedText is a log that a test reads while others write it.
type lockedText struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedText) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// want waits for the next event of a kind about a shard. Those about other shards wait for later calls.
func (r *relay) want(kind cluster.LeaseEventKind, shard int, why string) cluster.LeaseEvent {
	r.t.Helper()
	if i := slices.IndexFunc(r.others, func(e cluster.LeaseEvent) bool { return e.Kind == kind && e.Shard == shard }); i >= 0 {
		e := r.others[i]
		r.others = slices.Delete(r.others, i, i+1)
		return e
	}
	timeout := time.After(patience)
	for {
		select {
		case e := <-r.events:
			if e.Kind == kind && e.Shard == shard {
				return e
			}
			if e.Shard != shard {
				r.others = append(r.others, e)
			}
		case <-timeout:
			r.t.Fatalf("%s has no event %d of shard %d: %s", r.cfg.Node, kind, shard, why)
		}
	}
}

func (r *relay) store(shard int, epoch uint64, batch []cluster.Keyframe) error {
	r.t.Helper()
	done := make(chan error, 1)
	r.Store(shard, epoch, batch, func(err error) { done <- err })
	return r.wait(done)
}

func (r *relay) load(shard int, epoch uint64) map[string]string {
	r.t.Helper()
	all := map[string]string{}
	done := make(chan error, 1)
	r.Load(shard, epoch, func(part []cluster.Keyframe) {
		for _, k := range part {
			all[fmt.Sprintf("%s/%d", k.Space, k.Number)] = string(k.Data)
		}
	}, func(err error) { done <- err })
	if err := r.wait(done); err != nil {
		r.t.Fatal(err)
	}
	return all
}

func (r *relay) wait(done chan error) error {
	r.t.Helper()
	select {
	case err := <-done:
		return err
	case <-time.After(patience):
		r.t.Fatal("done is never called")
		return nil
	}
}

func keyframes(n int, text string) (all []cluster.Keyframe) {
	for i := range n {
		all = append(all, cluster.Keyframe{Space: "demo", Number: uint64(i + 1), Data: []byte(text)})
	}
	return all
}

func forReplicas(t *testing.T, f func(t *testing.T, c *natstest.Cluster, replicas int)) {
	for _, n := range []int{1, 3} {
		t.Run(fmt.Sprintf("R%d", n), func(t *testing.T) { f(t, natstest.Start(t, n), n) })
	}
}

func TestHoldStoreHandOverLoad(t *testing.T) {
	forReplicas(t, func(t *testing.T, c *natstest.Cluster, replicas int) {
		a, b := start(t, c, "a", replicas), start(t, c, "b", replicas)
		a.Want(true)
		first := a.want(cluster.ShardAcquired, 1, "the shard never had a holder")
		if got := a.load(1, first.Epoch); len(got) != 0 {
			t.Errorf("an empty store holds %v", got)
		}
		b.want(cluster.ShardSeen, 1, "a holds it")

		big := append(keyframes(2500, "old"), cluster.Keyframe{Space: "big", Number: 9, Data: make([]byte, 700<<10)})
		for _, batch := range [][]cluster.Keyframe{
			big,
			keyframes(2, "new"),
			{{Space: "demo", Number: 3}, {Space: "demo", Number: 4}},
			{},
		} {
			before := a.Stats().Answers[fence.OK]
			if err := a.store(1, first.Epoch, batch); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the store was asked", func() bool { return a.Stats().Answers[fence.OK] > before }) // the watch may bring the record before the answer
		}
		stats := a.Stats()
		if stats.Stored != 2505 || stats.Answers[fence.Stale] > 0 {
			t.Errorf("counters %+v, want 2505 stored keyframes and no stale write", stats)
		}
		if err := a.store(1, first.Epoch-1, keyframes(1, "x")); err != cluster.ErrNotHeld {
			t.Errorf("storing for another epoch: %v", err)
		}
		if err := a.store(1, first.Epoch, []cluster.Keyframe{{Space: "x", Data: make([]byte, 900<<10+1)}}); err != cluster.ErrKeyframeSize {
			t.Errorf("storing a huge keyframe: %v", err)
		}

		b.Want(true)
		a.Want(false)
		eventually(t, "a sees that b takes shards", func() bool { return a.sees("b") })
		last := make(chan error, 1)
		begin := time.Now()
		a.Store(1, first.Epoch, keyframes(1, "last"), func(err error) { last <- err })
		a.Release(1, first.Epoch, "b")
		second := b.want(cluster.ShardAcquired, 1, "a gave it to b")
		t.Logf("hand-over in %v", time.Since(begin))
		if err := a.wait(last); err != nil {
			t.Errorf("storing a batch that was given before the release: %v", err)
		}
		if e := a.want(cluster.ShardLost, 1, "it gave the shard up"); e.Reason != lease.ReasonReleased || e.Epoch != first.Epoch {
			t.Errorf("the shard is lost with %+v, want epoch %d and reason released", e, first.Epoch)
		}
		if second.Epoch <= first.Epoch {
			t.Errorf("epoch %d after %d", second.Epoch, first.Epoch)
		}
		got := b.load(1, second.Epoch)
		if len(got) != 2501 || got["demo/1"] != "last" || got["demo/2"] != "new" || got["demo/3"] != "" || got["demo/5"] != "old" ||
			len(got["big/9"]) != 700<<10 {
			t.Errorf("b loads %d states, 1 to 5 as %q %q %q %q %q", len(got), got["demo/1"], got["demo/2"], got["demo/3"], got["demo/4"], got["demo/5"])
		}
		if err := a.store(1, first.Epoch, keyframes(1, "zombie")); err != cluster.ErrNotHeld {
			t.Errorf("storing after the release: %v", err)
		}
	})
}

func TestTombstoneHasTTL(t *testing.T) {
	c := natstest.Start(t, 1)
	a := start(t, c, "a", 1)
	a.Want(true)
	e := a.want(cluster.ShardAcquired, 0, "the shard never had a holder")
	if err := a.store(0, e.Epoch, []cluster.Keyframe{{Space: "demo", Number: 7}}); err != nil {
		t.Fatal(err)
	}
	m, err := a.streams[0].GetLastMsgForSubject(t.Context(), a.cfg.Subjects.StoreKeyframe(0, "demo", 7))
	if err != nil || len(m.Data) != 0 || m.Header.Get("Nats-TTL") != "1h" {
		t.Errorf("the tombstone is %+v, %v", m, err)
	}
}

func TestDeploymentThatDiffers(t *testing.T) {
	c := natstest.Start(t, 1)
	nc := c.Connect(t)
	open(t, nc, Config{Node: "a", Shards: 8, Streams: 2})
	for _, x := range []struct {
		cfg  Config
		want []string
	}{
		{Config{Shards: 16, Streams: 2}, []string{"DNP_STORE_0", "8 shards", "16"}},
		{Config{Shards: 8, Streams: 4}, []string{"DNP_STORE_0", "2 store streams", "4"}},
	} {
		x.cfg.Conn, x.cfg.Node = nc, "b"
		_, err := Open(t.Context(), x.cfg)
		if !errors.Is(err, jetstream.ErrDeployment) {
			t.Errorf("opening with %+v: %v, want %v", x.cfg, err, jetstream.ErrDeployment)
			continue
		}
		for _, w := range x.want {
			if !strings.Contains(err.Error(), w) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %q, want one line with %q", err, w)
			}
		}
	}
	js, err := natsjs.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	info, err := js.Stream(t.Context(), StreamName(0))
	if err != nil {
		t.Fatal(err)
	}
	if first := info.CachedInfo().Config.FirstSeq; time.Since(time.UnixMilli(int64(first))).Abs() > time.Hour {
		t.Errorf("the first sequence is %d, want the time in milliseconds", first)
	}
}
