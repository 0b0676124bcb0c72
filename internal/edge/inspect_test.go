package edge

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/replication"
)

// counted counts what an edge publishes.
type counted struct {
	bus.Bus
	answers atomic.Int64 // from several goroutines
}

func (b *counted) Publish(m bus.Msg) error {
	if m.Subject == "me" {
		b.answers.Add(1)
	}
	return b.Bus.Publish(m)
}

// Request answers for the holder that it has a session. Otherwise nothing is answered.
func (b *counted) Request(m bus.Msg, _ time.Duration, handle func(bus.Msg, error)) {
	if w, err := replication.ParseWrite(m.Data); err == nil && w.Kind == replication.WriteJoin {
		handle(bus.Msg{Data: replication.AppendWriteResult(nil, replication.WriteResult{Epoch: w.Epoch})}, nil)
	}
}

// look has four people ask for the clients of the space, and four why a client has what it has. These are as many requests as
// an edge works on at a time.
func (c *crowd) look() {
	client := c.worker.spaces.Presences("s")[0].Client
	for range 4 {
		c.edge.look.clients(bus.Msg{Subject: c.edge.cfg.Subjects.Clients("s"), Reply: "me", Data: []byte(`{"max":500}`)})
		c.edge.look.why(bus.Msg{Subject: c.edge.cfg.Subjects.Why("s"), Reply: "me", Data: fmt.Appendf(nil, `{"client":%q,"key":"k1"}`, client)})
	}
}

// TestOneStepATurn: however many people look, a turn has one step for them, and no worker writes a list.
func TestOneStepATurn(t *testing.T) {
	c := newCrowd(t, 20)
	c.deaf = true
	c.edge.look.writing = make(chan func(), writingMax)
	c.look()
	for turns := 0; len(c.edge.look.writing) < 8; turns++ {
		if turns == 100 {
			t.Fatalf("after %d turns, %d requests have ended", turns, len(c.edge.look.writing))
		}
		ended, answered := len(c.edge.look.writing), c.bus.answers.Load()
		c.turn()
		if n := len(c.edge.look.writing) - ended; n > 1 || c.bus.answers.Load()-answered > int64(n) {
			t.Fatalf("a turn ends %d requests and answers %d, want one at most", n, c.bus.answers.Load()-answered)
		}
	}
	if c.bus.answers.Load() != 4 {
		t.Errorf("workers answer %d times, want the four reasons only", c.bus.answers.Load())
	}
	for len(c.edge.look.writing) > 0 {
		(<-c.edge.look.writing)()
	}
	if c.bus.answers.Load() != 8 {
		t.Errorf("%d answers, want one for each request", c.bus.answers.Load())
	}
	c.edge.look.writing = nil
	c.look()
	for range 100 {
		c.turn()
	}
	if c.bus.answers.Load() != 16 {
		t.Errorf("without write there are %d answers, want workers to write them: 16", c.bus.answers.Load())
	}
}

// TestNodeMisses: an edge tells who asks what its durable sessions lack, and stays ready.
func TestNodeMisses(t *testing.T) {
	e := newCrowd(t, 1).edge
	e.cfg.Durable = &Durable{Missing: func() []string { return []string{"redis"} }}
	e.reached.Store(true)
	if c := e.nodeFacts(time.Now()).Condition(); c != "ready, without redis" {
		t.Errorf("the edge says that it is %s", c)
	}
}
