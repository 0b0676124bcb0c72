package natslease

import (
	"sync"
	"testing"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/natstest"
	"github.com/nats-io/nats.go"
)

// The codes that this package tells apart, from the server itself.
func TestErrorCodes(t *testing.T) {
	forReplicas(t, func(t *testing.T, c *natstest.Cluster, replicas int) {
		l := open(t, c.Connect(t), Config{Node: "a", Shards: 1, Streams: 1, Replicas: replicas})
		s := l.shards[0]
		check := func(what string, got, want cluster.Verdict) {
			t.Helper()
			if got != want {
				t.Errorf("%s: verdict %d, want %d", what, got, want)
			}
		}
		own := cluster.Own{Node: "a", ID: "1"}
		acquire := func(expect, beat uint64) cluster.Answer {
			return s.try(t.Context(), op{Action: cluster.Action{Kind: cluster.ActionAcquire, Expect: expect, ExpectBeat: beat, Own: own}})
		}
		read := func() cluster.Answer { return s.try(t.Context(), op{Action: cluster.Action{Kind: cluster.ActionRead}}) }

		seen := read()
		check("reading what is not there", seen.Verdict, cluster.OK)
		check("acquiring over what is not there", acquire(5, 0).Verdict, cluster.Stale)
		first := acquire(seen.Own.Seq, seen.Beat.Seq)
		check("acquiring", first.Verdict, cluster.OK)
		seen = read()
		if seen.Own.Seq != first.Seq || seen.Beat.Seq != first.Beat.Seq || seen.Own.Node != "a" {
			t.Errorf("read %+v after %+v", seen, first)
		}
		check("acquiring again as if nobody had", acquire(0, 0).Verdict, cluster.Stale)
		check("acquiring although the holder has renewed", acquire(first.Seq, first.Beat.Seq-1).Verdict, cluster.Stale)

		store := func(expect, beat uint64) cluster.Answer {
			return s.try(t.Context(), op{
				Action:    cluster.Action{Kind: cluster.ActionStore, Expect: expect, ExpectBeat: beat, Beat: cluster.Beat{Epoch: expect, Write: 1}},
				keyframes: keyframes(3, "x"),
			})
		}
		check("storing with a stale fence", store(first.Seq-1, first.Beat.Seq).Verdict, cluster.Stale)
		check("storing behind another write", store(first.Seq, first.Beat.Seq-1).Verdict, cluster.Stale)
		stored := store(first.Seq, first.Beat.Seq)
		check("storing", stored.Verdict, cluster.OK)
		if seen = read(); seen.Beat.Seq != stored.Seq || seen.Beat.Write != 1 || seen.Beat.Epoch != first.Seq {
			t.Errorf("read %+v after %+v", seen, stored)
		}
		check("a part of a batch", parse(t, l, headerBatchID, "x", headerBatchSeq, "2", headerBatchCommit, "1"), cluster.Unreachable)
		if replicas > 1 {
			checkBusy(t, s, first.Seq)
		}
	})
}

// parse publishes an odd message and returns what its answer means.
func parse(t *testing.T, l *Leases, headers ...string) cluster.Verdict {
	t.Helper()
	m := message(l.cfg.Subjects.StoreHeartbeat(0), nil)
	for i := 0; i < len(headers); i += 2 {
		m.Header.Set(headers[i], headers[i+1])
	}
	r, err := l.cfg.Conn.RequestMsg(m, patience)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%v is answered %s", headers, r.Data)
	return parseAck(r.Data).Verdict
}

// checkBusy writes many beats at once: of those that meet another under way, the
// store says that they are to be tried again and not that the fence is stale.
func checkBusy(t *testing.T, s *shard, epoch uint64) {
	t.Helper()
	var mu sync.Mutex
	seen := map[cluster.Verdict]int{}
	var running sync.WaitGroup
	for range 50 {
		running.Go(func() {
			a := s.try(t.Context(), op{Action: cluster.Action{Kind: cluster.ActionBeat, Expect: epoch, Beat: cluster.Beat{Epoch: epoch}}})
			mu.Lock()
			defer mu.Unlock()
			seen[a.Verdict]++
		})
	}
	running.Wait()
	t.Logf("50 beats at once: %d ok, %d busy", seen[cluster.OK], seen[cluster.Busy])
	if seen[cluster.OK] == 0 || seen[cluster.Busy] == 0 || seen[cluster.OK]+seen[cluster.Busy] != 50 {
		t.Errorf("50 beats at once: %v, want some OK, the others Busy", seen)
	}
}

func TestNobodyThere(t *testing.T) {
	c := natstest.Start(t, 1)
	l := open(t, c.Connect(t), Config{Node: "a", Shards: 1, Streams: 1})
	c.Stop(0)
	for l.cfg.Conn.Status() == nats.CONNECTED {
	}
	a := l.shards[0].try(t.Context(), op{Action: cluster.Action{Kind: cluster.ActionBeat}})
	if a.Verdict != cluster.Unreachable {
		t.Errorf("without a connection: verdict %d, want Unreachable", a.Verdict)
	}
}
