package natslease

import (
	"sync"
	"testing"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/internal/jetstream"
	"github.com/dnprelay/dnprelay/internal/natstest"
	"github.com/nats-io/nats.go"
)

// TestErrorCodes gets the error codes that the verdicts depend on from the server itself.
func TestErrorCodes(t *testing.T) {
	forReplicas(t, func(t *testing.T, c *natstest.Cluster, replicas int) {
		l := open(t, c.Connect(t), Config{Node: "a", Shards: 1, Streams: 1, Replicas: replicas})
		s := l.shards[0]
		check := func(what string, got, want fence.Verdict) {
			t.Helper()
			if got != want {
				t.Errorf("%s: verdict %d, want %d", what, got, want)
			}
		}
		own := cluster.Holder{Node: "a", ID: "1"}
		acquire := func(expect, beat uint64) cluster.Answer {
			return s.askOnce(t.Context(), op{Action: cluster.Action{Kind: cluster.ActionAcquire, ExpectHolder: expect, ExpectHeartbeat: beat, Holder: own}})
		}
		read := func() cluster.Answer {
			return s.askOnce(t.Context(), op{Action: cluster.Action{Kind: cluster.ActionRead}})
		}

		seen := read()
		check("reading what is not there", seen.Verdict, fence.OK)
		check("acquiring over what is not there", acquire(5, 0).Verdict, fence.Stale)
		first := acquire(seen.Holder.Seq, seen.Heartbeat.Seq)
		check("acquiring", first.Verdict, fence.OK)
		seen = read()
		if seen.Holder.Seq != first.Seq || seen.Heartbeat.Seq != first.Heartbeat.Seq || seen.Holder.Node != "a" {
			t.Errorf("read %+v after %+v", seen, first)
		}
		check("acquiring again as if there were no holder", acquire(0, 0).Verdict, fence.Stale)
		check("acquiring although the holder has renewed", acquire(first.Seq, first.Heartbeat.Seq-1).Verdict, fence.Stale)

		store := func(expect, beat uint64) cluster.Answer {
			return s.askOnce(t.Context(), op{
				Action:    cluster.Action{Kind: cluster.ActionStore, ExpectHolder: expect, ExpectHeartbeat: beat, Heartbeat: cluster.Heartbeat{Epoch: expect, Write: 1}},
				keyframes: keyframes(3, "x"),
			})
		}
		check("storing with a stale fence", store(first.Seq-1, first.Heartbeat.Seq).Verdict, fence.Stale)
		check("storing behind another write", store(first.Seq, first.Heartbeat.Seq-1).Verdict, fence.Stale)
		stored := store(first.Seq, first.Heartbeat.Seq)
		check("storing", stored.Verdict, fence.OK)
		if seen = read(); seen.Heartbeat.Seq != stored.Seq || seen.Heartbeat.Write != 1 || seen.Heartbeat.Epoch != first.Seq {
			t.Errorf("read %+v after %+v", seen, stored)
		}
		check("a part of a batch", judgeOdd(t, l, jetstream.HeaderBatchID, "x", jetstream.HeaderBatchSeq, "2", jetstream.HeaderBatchCommit, "1"), fence.Unreachable)
		if replicas > 1 {
			checkBusy(t, s, first.Seq)
		}
	})
}

// judgeOdd publishes a message with odd headers and returns the verdict on its answer.
func judgeOdd(t *testing.T, l *Leases, headers ...string) fence.Verdict {
	t.Helper()
	m := l.shards[0].message(l.cfg.Subjects.StoreHeartbeat(0), nil)
	for i := 0; i < len(headers); i += 2 {
		m.Header.Set(headers[i], headers[i+1])
	}
	r, err := l.cfg.Conn.RequestMsg(m, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%v is answered %s", headers, r.Data)
	v, _ := jetstream.Judge(r, nil, fence.Unknown)
	return v
}

// checkBusy writes many heartbeats at once. To those that meet another one under way the store
// must answer that they are to be repeated, and not that the fence is stale.
func checkBusy(t *testing.T, s *shard, epoch uint64) {
	t.Helper()
	var mu sync.Mutex
	seen := map[fence.Verdict]int{}
	var running sync.WaitGroup
	for range 50 {
		running.Go(func() {
			a := s.askOnce(t.Context(), op{Action: cluster.Action{Kind: cluster.ActionRenew, ExpectHolder: epoch, Heartbeat: cluster.Heartbeat{Epoch: epoch}}})
			mu.Lock()
			defer mu.Unlock()
			seen[a.Verdict]++
		})
	}
	running.Wait()
	t.Logf("50 heartbeats at once: %d ok, %d busy", seen[fence.OK], seen[fence.Busy])
	if seen[fence.OK] == 0 || seen[fence.Busy] == 0 || seen[fence.OK]+seen[fence.Busy] != 50 {
		t.Errorf("50 heartbeats at once: %v, want some OK, the others Busy", seen)
	}
}

func TestWithoutServer(t *testing.T) {
	c := natstest.Start(t, 1)
	l := open(t, c.Connect(t), Config{Node: "a", Shards: 1, Streams: 1})
	c.Stop(0)
	for l.cfg.Conn.Status() == nats.CONNECTED {
	}
	a := l.shards[0].askOnce(t.Context(), op{Action: cluster.Action{Kind: cluster.ActionRenew}})
	if a.Verdict != fence.Unreachable {
		t.Errorf("without a connection: verdict %d, want Unreachable", a.Verdict)
	}
}
