package console

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/bus/natsbus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/natsembed"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
)

// A holder has a space, and tells on NATS what a relay tells.
type holder struct {
	*testing.T
	*Server

	mu    sync.Mutex // requests come from a goroutine of the bus
	store *replication.Store
}

// publish changes the space. The changes are lost on the way to the page if lost is set.
func (h *holder) publish(body string, lost bool) {
	h.Helper()
	p, err := payload.JSON.Parse([]byte(body), "")
	if err != nil {
		h.Fatal(err)
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.store.Publish(time.Now(), p)
	for _, out := range h.store.Advance(time.Now().Add(time.Second)) {
		if out.Kind == replication.OutputBatch && !lost {
			h.send(bus.Msg{Subject: h.cfg.Subjects.Live("s"), Data: out.Data})
		}
	}
}

func (h *holder) send(m bus.Msg) {
	h.Helper()
	if err := h.cfg.Bus.Publish(m); err != nil {
		h.Error(err)
	}
}

// head tells how far the space is.
func (h *holder) head() {
	h.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	epoch, seq := h.store.Position()
	h.send(bus.Msg{Subject: h.cfg.Subjects.Head(cluster.Shard("s", 64)), Data: replication.AppendHead(nil, epoch, []replication.SpaceHead{{Space: "s", Seq: seq}})})
}

// answers has the holder answer a copy that asks for what it lacks.
func (h *holder) answers() {
	h.Helper()
	end, err := h.cfg.Bus.Subscribe(h.cfg.Subjects.Repair(cluster.Shard("s", 64)), func(m bus.Msg) {
		h.mu.Lock()
		defer h.mu.Unlock()
		for _, part := range h.store.Repair(time.Now(), m.Data) {
			h.send(bus.Msg{Subject: m.Reply, Data: part})
		}
	})
	if err != nil {
		h.Fatal(err)
	}
	h.Cleanup(end)
}

// TestFollow: a page is told that no relay listens, gets what was there before it, what changes, and what was lost on the way.
func TestFollow(t *testing.T) {
	srv, err := natsembed.Start(natsembed.Config{Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(srv.Shutdown)
	b, err := natsbus.Connect(natsbus.Config{URL: srv.URL()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	h := &holder{T: t, Server: New(Config{Bus: b, Shards: 64}), store: replication.NewStore(replication.StoreConfig{Space: "s", Epoch: 7})}
	h.publish(`{"op":"put","key":"lamp","values":[{"name":"on","type":"uint8","value":0}]}`, true)
	ctx, stop := context.WithCancel(t.Context())
	frames, followed := make(chan string), make(chan error, 1)
	go func() {
		followed <- h.follow(ctx, "s", func(frame []byte) error {
			select {
			case frames <- string(frame):
			case <-ctx.Done():
			}
			return nil
		})
	}()
	shows := func(why, want string) {
		t.Helper()
		last, patience := "", time.After(30*time.Second)
		for {
			h.head()
			select {
			case f := <-frames:
				last = f
				if strings.Contains(f, want) {
					return
				}
			case <-patience:
				t.Fatalf("%s: no frame has %s, the last is %s", why, want, last)
			}
		}
	}
	shows("nothing answers", `"complete":false,"waiting":"no relay listens`)
	h.answers()
	shows("a relay listens", `"key":"lamp"`)
	shows("the copy has everything", `"complete":true`)
	h.publish(`{"op":"set","key":"lamp","values":{"on":7}}`, false)
	shows("a change", `"changed":[[1,0,7]]`)
	h.publish(`{"op":"set","key":"lamp","values":{"on":8}}`, true)
	shows("a change that was lost", `"changed":[[1,0,8]]`)
	h.send(bus.Msg{Subject: h.cfg.Subjects.Event("s"), Data: []byte(`{"type":"joined"}`)})
	shows("an event", `"events":[{"type":"joined"}]`)
	stop()
	if err := <-followed; err != nil {
		t.Errorf("the end is %v", err)
	}
}
