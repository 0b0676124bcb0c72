package natslease

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/lease"
	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/internal/jetstream"
	"github.com/dnprelay/dnprelay/internal/natstest"
	"github.com/nats-io/nats.go"
)

var writes = flag.Int("writes", 500, "how many writes TestFence wants acknowledged")

// A ledger has the newest value of each shard that a holder was told is stored.
type ledger struct {
	mu     sync.Mutex
	values [4]int
	epochs [4]uint64 // of the values
	acked  int
}

// A writer is a relay that writes one value after the other to each shard that it holds.
type writer struct {
	*relay
	book *ledger
	t    *testing.T
}

func (w *writer) run() {
	for {
		select {
		case <-w.ctx.Done():
			return
		case e := <-w.events:
			if e.Kind == cluster.ShardAcquired {
				go w.hold(e.Shard, e.Epoch)
			}
		}
	}
}

// hold loads what is stored, which is not older than what the ledger has, and goes on from there.
func (w *writer) hold(shard int, epoch uint64) {
	value := 0
	w.book.mu.Lock()
	least := w.book.values[shard]
	w.book.mu.Unlock()
	loaded := make(chan error, 1)
	w.Load(shard, epoch, func(part []cluster.Keyframe) {
		for _, k := range part {
			value, _ = strconv.Atoi(string(k.Data))
		}
	}, func(err error) { loaded <- err })
	if <-loaded != nil {
		return
	}
	if value < least {
		w.t.Errorf("shard %d: %s loads value %d in epoch %d, and %d was stored", shard, w.cfg.Node, value, epoch, least)
	}
	stored := make(chan error, 1)
	for late := 0; ; {
		value++
		w.Store(shard, epoch, []cluster.Keyframe{{Space: "s", Number: 1, Data: []byte(strconv.Itoa(value))}}, func(err error) { stored <- err })
		if <-stored != nil {
			return
		}
		w.book.mu.Lock()
		w.book.acked++
		if newest := w.book.epochs[shard]; epoch < newest { // a relay that stood still hears late of what it stored before another one took the shard
			if late++; late > 1 {
				w.t.Errorf("shard %d: %s is told that value %d is stored in epoch %d, and goes on beside the holder in epoch %d", shard, w.cfg.Node, value, epoch, newest)
			}
			w.book.mu.Unlock()
			continue
		}
		if value <= w.book.values[shard] {
			w.t.Errorf("shard %d: %s is told that value %d is stored in epoch %d, but %d was", shard, w.cfg.Node, value, epoch, w.book.values[shard])
		}
		w.book.values[shard], w.book.epochs[shard] = value, epoch
		w.book.mu.Unlock()
	}
}

// pause has the relay stand still between what it checked and what it sends next, as a process that is stopped does.
func (w *writer) pause(d time.Duration) {
	for _, l := range w.lanes {
		l.put(func(time.Time) { time.Sleep(d) })
	}
}

// TestFence has three relays write what they hold, and stops, kills and restarts relays and the servers that lead the streams. No
// value that was reported as stored is ever missing where the next holder begins.
func TestFence(t *testing.T) {
	forReplicas(t, func(t *testing.T, c *natstest.Cluster, replicas int) {
		book := &ledger{}
		var writers [3]*writer
		begin := func(i int) {
			w := &writer{relay: start(t, c, fmt.Sprint("relay-", i), replicas), book: book, t: t}
			w.Want(true)
			writers[i] = w
			go w.run()
		}
		for i := range writers {
			begin(i)
		}
		acked := func() int {
			book.mu.Lock()
			defer book.mu.Unlock()
			return book.acked
		}
		rng := rand.New(rand.NewPCG(uint64(time.Now().UnixNano()), 1))
		kills, pauses, stops := 0, 0, 0
		for end := time.Now().Add(10*patience + time.Duration(*writes)*10*time.Millisecond); (acked() < *writes || kills+pauses+stops < 8) && !t.Failed(); {
			if time.Now().After(end) {
				t.Fatalf("%d writes were acknowledged, want %d", acked(), *writes)
			}
			time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond) // the faults come at any time
			switch i := rng.IntN(len(writers)); rng.IntN(4) {
			case 0:
				kills++
				writers[i].kill()
				begin(i)
			case 1, 2:
				pauses++
				writers[i].pause(time.Duration(rng.IntN(4000)) * time.Millisecond)
			case 3:
				leader := 0
				if replicas > 1 {
					if leader = c.StreamLeader(StreamName(rng.IntN(2))); leader < 0 {
						continue
					}
				}
				stops++
				c.Stop(leader)
				time.Sleep(time.Duration(rng.IntN(1000)) * time.Millisecond)
				c.Restart(t, leader)
				eventually(t, "each stream has a leader", func() bool { return c.StreamLeader(StreamName(0)) >= 0 && c.StreamLeader(StreamName(1)) >= 0 })
			}
		}
		t.Logf("%d writes acknowledged, %d kills and %d pauses of relays, %d stops of servers", acked(), kills, pauses, stops)
	})
}

// TestRevoked revokes the lease of a relay between its decision to write and the write: nothing is stored, and the relay loses its shards.
func TestRevoked(t *testing.T) {
	forReplicas(t, func(t *testing.T, c *natstest.Cluster, replicas int) {
		a := start(t, c, "a", replicas)
		a.Want(true)
		held := a.want(cluster.ShardAcquired, 0, "the shard never had a holder")
		l := raw{a.lanes[0], t}
		stored, decided, revoked := make(chan error, 1), make(chan struct{}), make(chan struct{})
		l.put(func(now time.Time) {
			l.store(now, held.Epoch, &batch{keyframes: keyframes(1, "x"), sizes: []int{1}, done: func(err error) { stored <- err }})
			close(decided)
			<-revoked
		})
		<-decided
		eventually(t, "the lease is revoked", func() bool {
			v, seq := l.last()
			if v == fence.OK {
				m := l.message(l.l.cfg.Subjects.StoreLease(0, "a"), lease.Record{Incarnation: "x", Revoked: "b"}.Append(nil))
				v, _ = l.ask("", jetstream.Expect(m, "", seq))
			}
			return v == fence.OK
		})
		close(revoked)
		if err := a.wait(stored); err != cluster.ErrNotHeld {
			t.Errorf("storing with a lease that was revoked: %v", err)
		}
		if e := a.want(cluster.ShardLost, 0, "its lease was revoked"); e.Reason != lease.ReasonRevoked {
			t.Errorf("the shard is lost with %+v", e)
		}
		again := a.want(cluster.ShardAcquired, 0, "no other relay is there")
		if got := a.load(0, again.Epoch); len(got) != 0 || again.Former != held.Epoch {
			t.Errorf("after the lease was revoked the relay stored %v; it holds the shard again with %+v", got, again)
		}
	})
}

// A raw is a lane whose requests a test makes itself.
type raw struct {
	*lane
	t *testing.T
}

func newRaw(t *testing.T, c *natstest.Cluster, replicas int) raw {
	t.Helper()
	return raw{open(t, c.Connect(t), Config{Node: "a", Shards: 1, Streams: 1, Replicas: replicas}).lanes[0], t}
}

// record returns the record of a lease with a condition.
func (r raw) record(expect uint64) *nats.Msg {
	return jetstream.Expect(r.message(r.l.cfg.Subjects.StoreLease(0, "a"), []byte("{}")), "", expect)
}

// ask publishes messages as one batch and returns the verdict on the answer, and its sequence.
func (r raw) ask(id string, all ...*nats.Msg) (fence.Verdict, uint64) {
	jetstream.Batch(id, all...)
	for _, m := range all[:len(all)-1] {
		if err := r.l.cfg.Conn.PublishMsg(m); err != nil {
			r.t.Fatal(err)
		}
	}
	reply, err := r.l.cfg.Conn.RequestMsg(all[len(all)-1], patience)
	v, ack := jetstream.Judge(reply, err, fence.Unknown)
	return v, ack.Seq
}

// last reads the last record of the lease as the leader has it.
func (r raw) last() (fence.Verdict, uint64) {
	reply, err := r.l.cfg.Conn.Request("$JS.API.STREAM.MSG.GET."+StreamName(0), fmt.Appendf(nil, `{"last_by_subj":%q}`, r.l.cfg.Subjects.StoreLease(0, "a")), patience)
	v, seq, _ := jetstream.LastMessage(reply, err)
	return v, seq
}

// TestErrorCodes gets the error codes that the verdicts depend on from the server itself.
func TestErrorCodes(t *testing.T) {
	forReplicas(t, func(t *testing.T, c *natstest.Cluster, replicas int) {
		r := newRaw(t, c, replicas)
		check := func(what string, got, want fence.Verdict) {
			t.Helper()
			if got != want {
				t.Errorf("%s: verdict %v, want %v", what, got, want)
			}
		}
		v, seq := r.last()
		check("reading what is not there", v, fence.OK)
		if seq != 0 {
			t.Errorf("a lease that is not there has the sequence %d", seq)
		}
		v, _ = r.ask("", r.record(5))
		check("writing over what is not there", v, fence.Stale)
		v, first := r.ask("", r.record(0))
		check("writing", v, fence.OK)
		v, _ = r.ask("", r.record(0))
		check("writing again as if there were nothing", v, fence.Stale)
		if v, seq = r.last(); v != fence.OK || seq != first {
			t.Errorf("read %d (%v) after %d", seq, v, first)
		}
		keyframe := func(n uint64) *nats.Msg {
			return r.message(r.l.cfg.Subjects.StoreKeyframe(0, "s", n), []byte("x"))
		}
		v, _ = r.ask("a", keyframe(1), keyframe(2), r.record(first-1))
		check("a batch behind another write", v, fence.Stale)
		v, second := r.ask("b", keyframe(1), keyframe(2), r.record(first))
		check("a batch", v, fence.OK)
		if second != first+3 {
			t.Errorf("a batch of three messages behind %d ends at %d", first, second)
		}
		lease := r.l.cfg.Subjects.StoreLease(0, "a")
		v, _ = r.ask("", jetstream.Expect(keyframe(3), lease, first))
		check("a keyframe on the condition of an older lease", v, fence.Stale)
		v, _ = r.ask("", jetstream.Expect(keyframe(3), lease, second))
		check("a keyframe on the condition of the lease", v, fence.OK)
		part := r.message(lease, nil)
		for header, value := range map[string]string{jetstream.HeaderBatchID: "x", jetstream.HeaderBatchSeq: "2", jetstream.HeaderBatchCommit: "1"} {
			part.Header.Set(header, value)
		}
		v, _ = r.ask("", part)
		check("a part of a batch", v, fence.Unreachable)
		if replicas > 1 {
			r.busy(second)
		}
	})
}

// busy writes many records at once. To those that meet another one under way the store must not answer that they are stored.
func (r raw) busy(last uint64) {
	r.t.Helper()
	var mu sync.Mutex
	seen := map[fence.Verdict]int{}
	var running sync.WaitGroup
	for range 50 {
		running.Go(func() {
			v, _ := r.ask("", r.record(last))
			mu.Lock()
			defer mu.Unlock()
			seen[v]++
		})
	}
	running.Wait()
	if seen[fence.OK] != 1 || seen[fence.OK]+seen[fence.Busy]+seen[fence.Stale] != 50 {
		r.t.Errorf("50 records at once on one condition: %v, want one OK, the others Busy or Stale", seen)
	}
}

// TestWithoutServer has a relay without a server: it knows that nothing is written, and goes on with the server.
func TestWithoutServer(t *testing.T) {
	c := natstest.Start(t, 1)
	a := start(t, c, "a", 1)
	a.Want(true)
	held := a.want(cluster.ShardAcquired, 0, "the shard never had a holder")
	c.Stop(0)
	eventually(t, "writes cannot be sent", func() bool { return a.Stats().Answers[fence.Unreachable] > 0 })
	c.Restart(t, 0)
	if err := a.store(0, held.Epoch, keyframes(1, "x")); err != nil {
		t.Errorf("storing when the server is back, in the epoch from before: %v", err)
	}
}
