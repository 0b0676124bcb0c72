package natslease

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/subject"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// TestLoadSilence checks that the first attempt costs a takeover little, and that later ones
// wait long enough for a slow store.
func TestLoadSilence(t *testing.T) {
	for n, want := range []time.Duration{50, 100, 200, 400, 800, 1600, 3200, 6400, 12000, 12000} {
		if got := loadSilence(n); got != want*time.Millisecond {
			t.Errorf("attempt %d waits %v, want %d ms", n, got, want)
		}
	}
	if got := loadSilence(1000); got != loadSilenceMax {
		t.Errorf("attempt 1000 waits %v, want %v", got, loadSilenceMax)
	}
	if two := loadSilence(0) + loadSilence(1); two > 150*time.Millisecond {
		t.Errorf("two lost requests cost a hand-over %v, which may take 200 ms", two)
	}
}

// TestOpenTimeout checks that requests for a consumer are repeated soon for as long as an election takes, and that later ones
// wait for a slow store.
func TestOpenTimeout(t *testing.T) {
	const election, slow = 9 * time.Second, 4 * time.Second
	for n, passed := 0, time.Duration(0); passed < election; n++ {
		if got := openTimeout(n); got > time.Second {
			t.Errorf("request %d, after %v, waits %v, want 1 s at most", n, passed, got)
		}
		passed += openTimeout(n) + watchPause
	}
	if got := openTimeout(1000); got <= slow {
		t.Errorf("request 1000 waits %v, want more than the %v that a slow store takes", got, slow)
	}
}

// A slowStore is a stream that takes its time for each consumer, and refuses some.
type slowStore struct {
	natsjs.Stream
	takes    time.Duration
	refuses  int // requests
	requests int
}

func (s *slowStore) OrderedConsumer(ctx context.Context, _ natsjs.OrderedConsumerConfig) (natsjs.Consumer, error) {
	s.requests++
	select {
	case <-time.After(s.takes):
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	if s.refuses > 0 {
		s.refuses--
		return nil, natsjs.ErrMaximumConsumersLimit
	}
	return onlyRecord{}, nil
}

// An onlyRecord is a consumer of a stream that has only the record of the holder in epoch 1.
type onlyRecord struct{ natsjs.Consumer }

func (onlyRecord) CachedInfo() *natsjs.ConsumerInfo { return &natsjs.ConsumerInfo{} }
func (onlyRecord) Messages(...natsjs.PullMessagesOpt) (natsjs.MessagesContext, error) {
	return ownRecord{}, nil
}

// An ownRecord is that record, and brings itself.
type ownRecord struct {
	natsjs.MessagesContext
	natsjs.Msg
}

func (r ownRecord) Next(...natsjs.NextOpt) (natsjs.Msg, error) { return r, nil }
func (r ownRecord) Stop()                                      {}
func (r ownRecord) Subject() string                            { return (subject.Names{}).StoreOwn(0) }
func (r ownRecord) Metadata() (*natsjs.MsgMetadata, error) {
	return &natsjs.MsgMetadata{Sequence: natsjs.SequencePair{Stream: 1}}, nil
}

// loadFrom loads the only shard of a store, and returns how long that takes.
func loadFrom(t *testing.T, s *slowStore) (took time.Duration, err error) {
	synctest.Test(t, func(t *testing.T) {
		l := &Leases{cfg: Config{Streams: 1}, streams: []natsjs.Stream{s}, held: make([]atomic.Uint64, 1)}
		d := load{l: l, epoch: 1, each: func([]cluster.Keyframe) {}, consumers: opener{l: l}}
		l.held[0].Store(1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		begin := time.Now()
		err = d.run(ctx)
		took = time.Since(begin)
	})
	return took, err
}

// TestLoadFromSlowStore loads a shard from stores that take longer for a consumer than a relay waits at first.
func TestLoadFromSlowStore(t *testing.T) {
	for takes := time.Duration(0); takes < 5*time.Second; takes += 250 * time.Millisecond {
		s := &slowStore{takes: takes}
		if took, err := loadFrom(t, s); err != nil || took > 20*time.Second {
			t.Errorf("a store that takes %v for a consumer: the load ends after %v and %d requests with %v, want success within 20 s", takes, took, s.requests, err)
		}
	}
}

// TestLoadIsRefused wants a load to outlast a few refusals, and to end with their reason if there are more: the relay asks
// again, and logs the reason.
func TestLoadIsRefused(t *testing.T) {
	if took, err := loadFrom(t, &slowStore{refuses: refusalsMax - 1}); err != nil || took > 5*time.Second {
		t.Errorf("after %d refusals the load ends after %v with %v, want success within 5 s", refusalsMax-1, took, err)
	}
	if took, err := loadFrom(t, &slowStore{refuses: 1000}); !errors.Is(err, natsjs.ErrMaximumConsumersLimit) || took > 5*time.Second {
		t.Errorf("a load that is refused ends after %v with %v, want the reason within 5 s", took, err)
	}
}
