package natslease

import (
	"context"
	"flag"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/internal/natstest"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

var takeovers = flag.Int("takeovers", 20, "takeovers of TestFence")

// askOnce asks as serveStore does: it has an answer within a second or none.
func (s *shard) askOnce(ctx context.Context, o op) cluster.Answer {
	ctx, cancel := context.WithTimeout(ctx, cluster.LeaseTimeout)
	defer cancel()
	return s.ask(ctx, o)
}

// A zombie is a former holder that is never told. It goes on writing in its epoch as fast as it
// can, and reads the last heartbeat before each batch, so that only the fence keeps it out of
// the store.
type zombie struct {
	s      *shard
	epoch  uint64
	stored atomic.Uint64
	fenced atomic.Uint64
}

func (z *zombie) run(ctx context.Context) {
	for n := uint64(1); ctx.Err() == nil; n++ {
		beat := cluster.Heartbeat{Epoch: z.epoch, Write: n}
		o := op{Action: cluster.Action{Kind: cluster.ActionRenew, ExpectHolder: z.epoch, Heartbeat: beat}}
		if n%2 == 0 {
			seen := z.s.askOnce(ctx, op{Action: cluster.Action{Kind: cluster.ActionRead}})
			o.Kind, o.ExpectHeartbeat, o.keyframes = cluster.ActionStore, seen.Heartbeat.Seq, keyframes(3, string(beat.Append(nil)))
		}
		switch z.s.askOnce(ctx, o).Verdict {
		case fence.OK:
			z.stored.Add(1)
		case fence.Stale:
			z.fenced.Add(1)
		case fence.Unknown, fence.Unreachable:
			time.Sleep(10 * time.Millisecond)
		}
	}
}

// takeOver makes a new holder as soon as the store accepts it.
func takeOver(t *testing.T, s *shard) (epoch uint64) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); {
		seen := s.askOnce(t.Context(), op{Action: cluster.Action{Kind: cluster.ActionRead}})
		if seen.Verdict != fence.OK {
			time.Sleep(10 * time.Millisecond)
			continue
		}
		a := s.askOnce(t.Context(), op{Action: cluster.Action{
			Kind: cluster.ActionAcquire, ExpectHolder: seen.Holder.Seq, ExpectHeartbeat: seen.Heartbeat.Seq, Holder: cluster.Holder{Node: "x", ID: s.l.cfg.Lease.ID},
		}})
		if a.Verdict == fence.OK {
			return a.Seq
		}
	}
	t.Fatal("the store accepts no new holder")
	return 0
}

// TestFence lets former holders go on that are never told, and stops and restarts the leader of
// the stream meanwhile. Every message that the store accepts must be of the epoch that was in
// force when it was accepted.
func TestFence(t *testing.T) {
	c := natstest.Start(t, 3)
	control := open(t, c.Connect(t), Config{Node: "control", Shards: 1, Streams: 1, Replicas: 3})
	keepHistory(t, control)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var running sync.WaitGroup
	var all []*zombie
	stops := 0
	for i := range *takeovers {
		s := another(t, c, control)
		z := &zombie{s: s, epoch: takeOver(t, s)}
		all = append(all, z)
		running.Go(func() { z.run(ctx) })
		if i%7 == 3 {
			if leader := c.StreamLeader(StreamName(0)); leader >= 0 {
				stops++
				c.Stop(leader)
				time.Sleep(time.Duration(rand.IntN(1000)) * time.Millisecond)
				c.Restart(t, leader)
			}
		}
		time.Sleep(time.Duration(50+rand.IntN(150)) * time.Millisecond)
	}
	for _, z := range all[:len(all)-1] {
		for end := time.Now().Add(patience); z.fenced.Load() == 0 && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		}
	}
	stop()
	running.Wait()
	messages := audit(t, control, len(all))
	stored, fenced, unfenced := uint64(0), uint64(0), 0
	for i, z := range all {
		stored += z.stored.Load()
		fenced += z.fenced.Load()
		if z.fenced.Load() == 0 && i < len(all)-1 {
			unfenced++
		}
	}
	t.Logf("%d takeovers, %d stops of the leader: %d messages accepted in order, %d writes acknowledged, %d refused, %d zombies never refused",
		len(all), stops, messages, stored, fenced, unfenced)
	if unfenced > 0 {
		t.Errorf("%d zombies were never refused", unfenced)
	}
}

// another returns the shard as a further relay sees it. It does not use Open, which refuses a
// stream that keeps its history.
func another(t *testing.T, c *natstest.Cluster, control *Leases) *shard {
	t.Helper()
	l := &Leases{cfg: control.cfg, secrets: control.secrets}
	l.cfg.Conn, l.cfg.Lease.ID = c.Connect(t), nats.NewInbox()
	js, err := natsjs.New(l.cfg.Conn)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); len(l.streams) == 0; {
		if s, err := js.Stream(t.Context(), StreamName(0)); err == nil {
			l.streams = append(l.streams, s)
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	return newShard(l, 0)
}

// keepHistory makes the stream keep all messages for audit.
func keepHistory(t *testing.T, l *Leases) {
	t.Helper()
	js, err := natsjs.New(l.cfg.Conn)
	if err != nil {
		t.Fatal(err)
	}
	cfg := l.streams[0].CachedInfo().Config
	cfg.MaxMsgsPerSubject = -1
	if _, err := js.UpdateStream(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}

// audit reads the whole stream in order and judges each message.
func audit(t *testing.T, l *Leases, takeovers int) (n int) {
	t.Helper()
	var last uint64
	for end := time.Now().Add(patience); last == 0; time.Sleep(20 * time.Millisecond) {
		if info, err := l.streams[0].Info(t.Context()); err == nil {
			last = info.State.LastSeq
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	consumer, err := l.streams[0].OrderedConsumer(t.Context(), natsjs.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	it, err := consumer.Messages()
	if err != nil {
		t.Fatal(err)
	}
	defer it.Stop()
	epoch, holders := uint64(0), 0
	for {
		m, err := next(t.Context(), it, loadSilenceLater)
		if err != nil {
			t.Fatal(err)
		}
		meta, err := m.Metadata()
		if err != nil {
			t.Fatal(err)
		}
		n++
		seq := meta.Sequence.Stream
		switch beat := cluster.ParseHeartbeat(seq, m.Data()); {
		case m.Subject() == l.cfg.Subjects.StoreOwn(0):
			epoch, holders = seq, holders+1
		case beat.Epoch == 0: // the next holder wrote it; its own record is the next message
		case beat.Epoch != epoch:
			t.Errorf("message %d on %s is of epoch %d and was accepted in epoch %d", seq, m.Subject(), beat.Epoch, epoch)
		}
		if seq == last {
			break
		}
	}
	if holders < takeovers {
		t.Errorf("%d takeovers in the stream, want at least %d", holders, takeovers)
	}
	return n
}
