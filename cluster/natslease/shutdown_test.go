package natslease

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/natstest"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// shutdownTime is how long Run may take to return once its context has ended: nothing in it
// waits for NATS any longer, so this is for the machine.
const shutdownTime = 5 * time.Second

// TestRunEndsWhateverNATSDoes ends relays whose watches and loads wait for something that never
// comes.
func TestRunEndsWhateverNATSDoes(t *testing.T) {
	for _, x := range []struct {
		name    string
		servers int
		spoil   func(t *testing.T, c *natstest.Cluster, p *natstest.Proxy)
	}{
		{"streams deleted", 1, func(t *testing.T, c *natstest.Cluster, _ *natstest.Proxy) { deleteStreams(t, c) }},
		{"no quorum", 3, func(_ *testing.T, c *natstest.Cluster, _ *natstest.Proxy) { c.Stop(0); c.Stop(1) }},
		{"no server", 1, func(_ *testing.T, c *natstest.Cluster, _ *natstest.Proxy) { c.Stop(0) }},
		{"a server that says nothing", 1, func(_ *testing.T, _ *natstest.Cluster, p *natstest.Proxy) { p.SetDeaf(true) }},
		{"a server that reads nothing", 1, func(_ *testing.T, _ *natstest.Cluster, p *natstest.Proxy) { p.SetStuck(true) }},
	} {
		t.Run(x.name, func(t *testing.T) {
			c := natstest.Start(t, x.servers)
			p := natstest.NewProxy(t, c)
			r := &relay{t: t, events: make(chan cluster.LeaseEvent, 1000)}
			r.Leases = open(t, p.Connect(t, c), Config{Node: "a", Shards: 4, Streams: 2, Replicas: x.servers, Log: r.log.logger()})
			r.OnEvent(func(e cluster.LeaseEvent) { r.events <- e })
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { r.Run(ctx); close(ended) }()
			go r.wants(ctx)
			r.Want(true)
			held := r.want(cluster.ShardAcquired, 0, "the shard never had a holder")
			x.spoil(t, c, p)
			if x.name != "streams deleted" { // the relay would make them again
				r.want(cluster.ShardDurable, 0, "the store does not answer")
			}
			stored := make(chan error, 1)
			r.Store(0, held.Epoch, keyframes(3, "x"), func(err error) { stored <- err })
			loaded := make(chan error, 1)
			r.Load(0, held.Epoch, func([]cluster.Keyframe) {}, func(err error) { loaded <- err })
			cancel()
			select {
			case <-ended:
			case <-time.After(shutdownTime):
				t.Fatalf("Run has not returned %v after its context ended", shutdownTime)
			}
			for what, done := range map[string]chan error{"stored": stored, "loaded": loaded} {
				if err := r.wait(done); err != cluster.ErrNotHeld {
					t.Errorf("%s after the end: %v, want %v", what, err, cluster.ErrNotHeld)
				}
			}
		})
	}
}

// A hung is a stream whose consumers hang in the library, whatever their context says; but the first watch does not.
type hung struct {
	natsjs.Stream
	begun, end chan struct{}
	watched    *atomic.Bool
}

func (h hung) CreatePushConsumer(ctx context.Context, cfg natsjs.ConsumerConfig) (natsjs.PushConsumer, error) {
	if h.watched.CompareAndSwap(false, true) {
		return h.Stream.CreatePushConsumer(ctx, cfg)
	}
	h.begun <- struct{}{}
	<-h.end
	return nil, context.Canceled
}

func (h hung) OrderedConsumer(context.Context, natsjs.OrderedConsumerConfig) (natsjs.Consumer, error) {
	h.begun <- struct{}{}
	<-h.end
	return nil, context.Canceled
}

// TestRunEndsBesideTheLibrary ends a relay whose watches and loads hang in the library: the caller
// closes the connection, which would end them, only after Run.
func TestRunEndsBesideTheLibrary(t *testing.T) {
	c := natstest.Start(t, 1)
	r := &relay{t: t, events: make(chan cluster.LeaseEvent, 1000)}
	r.Leases = open(t, c.Connect(t), Config{Node: "a", Shards: 16, Streams: 2, Log: r.log.logger()})
	r.OnEvent(func(e cluster.LeaseEvent) { r.events <- e })
	begun, end := make(chan struct{}, 100), make(chan struct{})
	t.Cleanup(func() { close(end) })
	for g := range r.streams {
		r.streams[g] = hung{r.streams[g], begun, end, &atomic.Bool{}}
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() { r.Run(ctx); close(ended) }()
	go r.wants(ctx)
	r.Want(true)
	held := r.want(cluster.ShardAcquired, 0, "the shard never had a holder")
	loaded := make(chan error, loaders+16) // 16 wait behind the others
	load := func() { r.Load(0, held.Epoch, func([]cluster.Keyframe) {}, func(err error) { loaded <- err }) }
	for range loaders {
		load()
	}
	for _, s := range r.lanes {
		s.rewatch.Wake()
	}
	for range len(r.streams) + loaders { // the loaders have the first loads, so there is room for the others
		<-begun
	}
	for range 16 {
		load()
	}
	cancel()
	select {
	case <-ended:
	case <-time.After(shutdownTime):
		t.Fatalf("Run has not returned %v after its context ended", shutdownTime)
	}
	for range loaders + 16 {
		if err := r.wait(loaded); err != cluster.ErrNotHeld {
			t.Errorf("loaded after the end: %v, want %v", err, cluster.ErrNotHeld)
		}
	}
}

func deleteStreams(t testing.TB, c *natstest.Cluster) {
	t.Helper()
	js, err := natsjs.New(c.Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	for g := range 2 {
		natstest.DeleteStream(t, js, StreamName(g))
	}
}
