package natslease

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/natstest"
	"github.com/nats-io/nats-server/v2/server"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// TestManyLoads loads a shard more often than its stream may have consumers: a load that left its consumer
// behind would cost later loads theirs, and the shard would not be served for minutes.
func TestManyLoads(t *testing.T) {
	for _, servers := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d servers", servers), func(t *testing.T) {
			const consumers, loads = 8, 40
			c := natstest.Start(t, servers, func(o *server.Options) { o.JetStreamLimits.DefaultMaxConsumers = consumers })
			a := start(t, c, "a", servers)
			held := a.acquireStored(0, 3)
			for range loads {
				if got := a.load(0, held.Epoch); len(got) != 3 {
					t.Fatalf("a load brings %d states, want 3", len(got))
				}
			}
			eventually(t, "only the watch has a consumer of the stream", func() bool { return a.consumers(0) == 1 })
		})
	}
}

// acquireStored acquires a shard after a former holder stored so many states.
func (r *relay) acquireStored(shard, states int) cluster.LeaseEvent {
	r.t.Helper()
	r.Want(true)
	former := r.want(cluster.ShardAcquired, shard, "the shard never had a holder")
	if err := r.store(shard, former.Epoch, keyframes(states, "x")); err != nil {
		r.t.Fatal(err)
	}
	r.Release(shard, former.Epoch, r.cfg.Node)
	return r.want(cluster.ShardAcquired, shard, "it was released to this relay")
}

// consumers returns how many consumers the stream of a shard has.
func (r *relay) consumers(shard int) (n int) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	list := r.streams[shard%r.cfg.Streams].ConsumerNames(ctx)
	for range list.Name() {
		n++
	}
	if err := list.Err(); err != nil {
		r.t.Fatal(err)
	}
	return n
}

// A faulty stream makes consumers that fail as their answers or messages are lost.
type faulty struct {
	natsjs.Stream

	mu        sync.Mutex
	lost      int             // answers to the next creations of consumers
	after     int             // messages after which a consumer is silent; 0 for never
	filters   int             // the most that a consumer has
	names     map[string]bool // prefixes of the consumers
	idleMax   time.Duration   // the longest after which a server deletes a consumer that is idle
	delivered map[uint64]int  // how often, by sequence
}

func (f *faulty) OrderedConsumer(ctx context.Context, cfg natsjs.OrderedConsumerConfig) (natsjs.Consumer, error) {
	c, err := f.Stream.OrderedConsumer(ctx, cfg)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil {
		f.names[cfg.NamePrefix] = true
		f.filters = max(f.filters, len(cfg.FilterSubjects))
		f.idleMax = max(f.idleMax, c.CachedInfo().Config.InactiveThreshold)
	}
	if f.lost > 0 {
		f.lost--
		return nil, context.DeadlineExceeded
	}
	return faultyConsumer{c, f}, err
}

type faultyConsumer struct {
	natsjs.Consumer
	f *faulty
}

func (c faultyConsumer) Messages(opts ...natsjs.PullMessagesOpt) (natsjs.MessagesContext, error) {
	it, err := c.Consumer.Messages(opts...)
	return &faultyMessages{MessagesContext: it, f: c.f}, err
}

type faultyMessages struct {
	natsjs.MessagesContext
	f *faulty
	n int
}

func (m *faultyMessages) Next(opts ...natsjs.NextOpt) (natsjs.Msg, error) {
	if m.n++; m.f.after != 0 && m.n > m.f.after {
		return nil, context.DeadlineExceeded // as after the whole silence
	}
	msg, err := m.MessagesContext.Next(opts...)
	if err == nil {
		if meta, err := msg.Metadata(); err == nil {
			m.f.mu.Lock()
			m.f.delivered[meta.Sequence.Stream]++
			m.f.mu.Unlock()
		}
	}
	return msg, err
}

// spoil makes a stream of a relay that does not run faulty.
func (r *relay) spoil(g int) *faulty {
	f := &faulty{Stream: r.streams[g], names: map[string]bool{}, delivered: map[uint64]int{}}
	r.streams[g] = f
	return f
}

// TestLoadGoesOn loads a shard from a store that is silent after every few messages: each attempt goes on behind the
// messages of the one before. One that began anew would never come to the end.
func TestLoadGoesOn(t *testing.T) {
	const states, each = 100, 30
	c := natstest.Start(t, 1)
	a := prepare(t, c, "a", 1)
	f := a.spoil(1)
	a.unwatched = true
	a.run()
	held := a.acquireStored(1, states)
	f.after = each
	if got := a.load(1, held.Epoch); len(got) != states {
		t.Errorf("the load brings %d states, want %d", len(got), states)
	}
	const messages = states + 2 // with the lease and the record of the holder
	if len(f.delivered) != messages {
		t.Errorf("the store delivered %d messages, want %d", len(f.delivered), messages)
	}
	for seq, n := range f.delivered {
		if n != 1 {
			t.Errorf("the store delivered message %d %d times, want once", seq, n)
		}
	}
	if f.filters != 1 {
		t.Errorf("a consumer has %d filters: with more than one the server looks through all subjects for each message", f.filters)
	}
	if got := a.Stats().LoadRetries; got != messages/each {
		t.Errorf("%d retries, want %d", got, messages/each)
	}
}

// TestConsumerWithoutAnswer loses the answers to the creation of a consumer. The relay asks for the same one again: a
// server that is slow would make one more for each attempt.
func TestConsumerWithoutAnswer(t *testing.T) {
	for _, servers := range []int{1, 3} {
		t.Run(fmt.Sprintf("%d servers", servers), func(t *testing.T) {
			c := natstest.Start(t, servers)
			a := prepare(t, c, "a", servers)
			f := a.spoil(1)
			a.unwatched = true
			a.run()
			held := a.acquireStored(1, 3)
			f.lost = 5
			if got := a.load(1, held.Epoch); len(got) != 3 {
				t.Errorf("the load brings %d states, want 3", len(got))
			}
			if len(f.names) != 1 {
				t.Errorf("the relay asked for %d consumers, want one", len(f.names))
			}
			if f.idleMax > time.Minute {
				t.Errorf("a consumer that is forgotten stays for %v", f.idleMax)
			}
			eventually(t, "the stream has no consumer", func() bool { return a.consumers(1) == 0 })
		})
	}
}

// TestLoadsBesideSilence loads a shard while the stream of other shards makes no consumers: they must not keep it waiting.
func TestLoadsBesideSilence(t *testing.T) {
	c := natstest.Start(t, 1)
	a := prepare(t, c, "a", 1)
	begun, end := make(chan struct{}, 100), make(chan struct{})
	t.Cleanup(func() { close(end) })
	a.streams[0] = hung{a.streams[0], begun, end, &atomic.Bool{}}
	a.unwatched = true
	a.run()
	a.Want(true)
	silent := a.want(cluster.ShardAcquired, 0, "the shard never had a holder")
	a.Want(true)
	held := a.want(cluster.ShardAcquired, 1, "the shard never had a holder")
	waiting := make(chan error, 4)
	for range cap(waiting) {
		a.Load(0, silent.Epoch, func([]cluster.Keyframe) {}, func(err error) { waiting <- err })
	}
	<-begun
	if got := a.load(1, held.Epoch); len(got) != 0 {
		t.Errorf("the load brings %d states, want none", len(got))
	}
	a.kill()
	for range cap(waiting) {
		if err := a.wait(waiting); !errors.Is(err, cluster.ErrNotHeld) {
			t.Errorf("a load that never ended: %v, want %v", err, cluster.ErrNotHeld)
		}
	}
}
