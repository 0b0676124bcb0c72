package natslease

import (
	"encoding/binary"
	"runtime"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/natstest"
	"github.com/nats-io/nats.go"
)

// TestHint checks that a relay whose watches bring nothing hears by hints who holds a shard,
// and takes a shard that is handed over to it.
func TestHint(t *testing.T) {
	c := natstest.Start(t, 1)
	a := start(t, c, "a", 1)
	b := prepare(t, c, "b", 1)
	b.unwatched = true
	had := b.cfg.Conn.NumSubscriptions() // the library's own, for answers
	b.run()
	for end := time.Now().Add(patience); b.cfg.Conn.NumSubscriptions() == had; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatal("b does not subscribe to hints")
		}
	}
	if err := b.cfg.Conn.Flush(); err != nil {
		t.Fatal(err)
	}
	a.Want(0, 0)
	first := a.want(cluster.ShardAcquired, 0, "the shard never had a holder")
	seen := b.want(cluster.ShardSeen, 0, "a holds it")
	if seen.Epoch != first.Epoch || seen.Node != "a" {
		t.Errorf("b heard of %+v, want epoch %d of a", seen, first.Epoch)
	}
	b.Want(0, 0)
	a.Release(0, first.Epoch, "b")
	b.want(cluster.ShardAcquired, 0, "a gave it to b")
}

// TestBadHints checks that messages which are no valid hint change nothing.
func TestBadHints(t *testing.T) {
	c := natstest.Start(t, 1)
	a := start(t, c, "a", 1)
	old := binary.LittleEndian.AppendUint64(nil, 1)
	for _, m := range []*nats.Msg{
		{Subject: a.cfg.Subjects.Own(0)},
		{Subject: a.cfg.Subjects.Own(0), Data: old[:7]},
		{Subject: a.cfg.Subjects.Own(99), Data: old},
		{Subject: "shard.x.own", Data: old},
	} {
		a.hinted(m)
	}
	a.Want(0, 0)
	first := a.want(cluster.ShardAcquired, 0, "the shard never had a holder")
	a.hinted(&nats.Msg{Subject: a.cfg.Subjects.Own(0), Data: append(old, `{"node":"b","id":"other"}`...)})
	for _, answer := range []string{`{"type":"io.nats.jetstream.api.v1.stream_info_response"}`, `{"stream":"DNP_LOG_0","seq":1}`, `{"error":{}}`, "-ERR 'x'"} {
		a.hinted(&nats.Msg{Subject: a.cfg.Subjects.Own(0), Data: []byte(answer)})
	}
	if err := a.store(0, first.Epoch, keyframes(1, "x")); err != nil {
		t.Errorf("storing after an old hint, and answers of JetStream: %v", err)
	}
}
