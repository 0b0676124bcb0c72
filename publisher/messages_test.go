package publisher_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/natsembed"
	"github.com/dnprelay/dnprelay/publisher"
	"github.com/dnprelay/dnprelay/sessionlog"
	"github.com/dnprelay/dnprelay/sessionlog/natsfrom"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// An inbox is a stream of clients' messages, and two edges that fill it.
type inbox struct {
	*testing.T
	folder string
	srv    *natsembed.Server
	nc     *nats.Conn
	edges  [2]*natsfrom.Publisher
}

// serve starts the server.
func (x *inbox) serve(listen string) {
	x.Helper()
	var err error
	if x.srv, err = natsembed.Start(natsembed.Config{Listen: listen, Folder: x.folder}); err != nil {
		x.Fatal(err)
	}
}

func newInbox(t *testing.T) *inbox {
	t.Helper()
	x := &inbox{T: t, folder: t.TempDir()}
	x.serve("127.0.0.1:0")
	t.Cleanup(func() { x.srv.Shutdown() })
	var err error
	x.nc, err = nats.Connect(x.srv.URL(), nats.ReconnectWait(10*time.Millisecond))
	must(err)
	t.Cleanup(x.nc.Close)
	for i := range x.edges {
		p, err := natsfrom.Open(t.Context(), natsfrom.Config{Conn: x.nc})
		must(err)
		ctx, stop := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() { p.Run(ctx); close(done) }()
		t.Cleanup(func() { stop(); <-done })
		x.edges[i] = p
	}
	return x
}

// number returns the number of message k of a session; numbers have gaps.
func number(k int) uint64 { return uint64(k) * 3 }

// send stores the messages from, …, to-1 of a session.
func (x *inbox) send(edge int, session_ string, from, to int) {
	x.Helper()
	stored := make(chan uint64, to-from)
	f := x.edges[edge].Begin("demo", "c-"+session_, session_, func(n uint64) { stored <- n })
	for k := from; k < to; k++ {
		m := sessionlog.Message{Number: number(k), Data: fmt.Append(nil, k)}
		if k > 0 {
			m.Previous = number(k-1) + 1
		}
		f.Deliver(m)
	}
	for range to - from {
		<-stored
	}
	f.End()
}

// A gameServer is the state of a game, stored with the cursor.
type gameServer struct {
	Cursor publisher.Cursor
	Seen   map[string][]int
}

// consume starts a game server with what it stored, lets it take n messages, and returns
// what it stored when it stops.
func (x *inbox) consume(stored []byte, n int) []byte {
	x.Helper()
	g := gameServer{Seen: map[string][]int{}}
	if stored != nil {
		must(json.Unmarshal(stored, &g))
	}
	p, err := publisher.Connect(context.Background(), publisher.Config{URL: x.srv.URL(), Log: slog.New(slog.DiscardHandler)})
	must(err)
	x.Cleanup(p.Close)
	space, err := p.Space("demo")
	must(err)
	ctx, cancel := context.WithTimeout(x.Context(), patience)
	defer cancel()
	for m, err := range space.Messages(ctx, &g.Cursor) {
		if err != nil {
			x.Fatalf("after %v: %v", g.Seen, err)
		}
		var k int
		must(json.Unmarshal(m.Data, &k))
		if m.Client != "c-"+m.Session || m.Number != number(k) || g.Cursor.Next(m.Session) != m.Number+1 || !m.Reliable || m.Time.IsZero() {
			x.Fatalf("%+v, and the cursor is at %d", m, g.Cursor.Next(m.Session))
		}
		g.Seen[m.Session] = append(g.Seen[m.Session], k)
		if stored, err = json.Marshal(g); err != nil {
			x.Fatal(err)
		}
		if n--; n == 0 {
			break
		}
	}
	return stored
}

// has requires that the game server had messages 0 to n-1 of a session, each once.
func (x *inbox) has(stored []byte, session string, n int) {
	x.Helper()
	var g gameServer
	must(json.Unmarshal(stored, &g))
	got := g.Seen[session]
	for k := range max(n, len(got)) {
		if k >= len(got) || k >= n || got[k] != k {
			x.Fatalf("session %s: got %v, want 0 to %d, each once and in order", session, got, n-1)
		}
	}
}

// TestMessages requires that nothing is lost or repeated when a game server stops after
// any message, edges publish what their predecessors published, and the stream is made again.
func TestMessages(t *testing.T) {
	s := *seed
	if s == 0 {
		s = rand.Uint64()
	}
	t.Logf("-seed=%d", s)
	rng := rand.New(rand.NewPCG(s, 3))
	x := newInbox(t)
	var stored []byte
	sent := map[string]int{}
	for range 30 {
		total := 0
		for range 1 + rng.IntN(4) {
			name, n := fmt.Sprint("s", rng.IntN(3)), 1+rng.IntN(5)
			again := min(rng.IntN(3), sent[name]) // messages that the stream has
			x.send(rng.IntN(2), name, sent[name]-again, sent[name]+n)
			sent[name] += n
			total += n
		}
		for total > 0 {
			n := 1 + rng.IntN(total)
			stored = x.consume(stored, n)
			total -= n
		}
	}
	for name, n := range sent {
		x.has(stored, name, n)
	}
	x.remake()
	from := max(0, sent["s0"]-2) // the new stream does not know the ids of what is repeated
	x.send(0, "s0", from, sent["s0"]+4)
	x.has(x.consume(stored, 4), "s0", sent["s0"]+4)
}

// TestMessagesLeavesNothing starts a game server again and again: none of them may leave its consumer of the stream behind,
// because a server allows a stream 1,000, for all game servers together.
func TestMessagesLeavesNothing(t *testing.T) {
	x := newInbox(t)
	var stored []byte
	for k := range 10 {
		x.send(0, "s0", k, k+1)
		stored = x.consume(stored, 1)
	}
	x.endEarly(20)
	js, err := jetstream.New(x.nc)
	must(err)
	stream, err := js.Stream(t.Context(), natsfrom.StreamName)
	must(err)
	consumers := -1
	for end := time.Now().Add(patience); consumers != 0 && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		info, err := stream.Info(t.Context())
		must(err)
		consumers = info.State.Consumers
	}
	if consumers != 0 {
		t.Errorf("game servers that ended left %d consumers", consumers)
	}
}

// endEarly ends game servers while they ask for a consumer, many of them before the answer.
func (x *inbox) endEarly(n int) {
	x.Helper()
	asked := make(chan *nats.Msg, 1)
	spy, err := x.nc.ChanSubscribe("$JS.API.CONSUMER.CREATE.>", asked)
	must(err)
	must(x.nc.Flush())
	p, err := publisher.Connect(x.Context(), publisher.Config{URL: x.srv.URL(), Log: slog.New(slog.DiscardHandler)})
	must(err)
	x.Cleanup(p.Close) // and not here: what a slow server makes late is deleted later
	space, err := p.Space("demo")
	must(err)
	for range n {
		ctx, cancel := context.WithCancel(x.Context())
		var ended sync.WaitGroup
		ended.Go(func() {
			for range space.Messages(ctx, new(publisher.Cursor)) {
			}
		})
		<-asked
		cancel()
		ended.Wait()
	}
	must(spy.Unsubscribe())
}

// remake deletes the stream and makes it again, so that it counts from 1.
func (x *inbox) remake() {
	x.Helper()
	ctx, cancel := context.WithTimeout(x.Context(), patience)
	defer cancel()
	js, err := jetstream.New(x.nc)
	must(err)
	stream, err := js.Stream(ctx, natsfrom.StreamName)
	must(err)
	must(js.DeleteStream(ctx, natsfrom.StreamName))
	_, err = js.CreateStream(ctx, stream.CachedInfo().Config)
	for err != nil && ctx.Err() == nil { // NATS is still removing the files of the old one
		_, err = js.CreateStream(ctx, stream.CachedInfo().Config)
	}
	must(err)
}

// join returns the space of a new game server, and a context that bounds the test.
func (x *inbox) join(t *testing.T) (*publisher.Space, context.Context) {
	p, err := publisher.Connect(context.Background(), publisher.Config{URL: x.srv.URL(), Log: slog.New(slog.DiscardHandler)})
	must(err)
	t.Cleanup(p.Close)
	space, err := p.Space("demo")
	must(err)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	t.Cleanup(cancel)
	return space, ctx
}

// TestStreamMadeAgain requires that a game server that reads a stream while it is made
// again loses nothing and needs no restart, however little the new stream has.
func TestStreamMadeAgain(t *testing.T) {
	x := newInbox(t)
	space, ctx := x.join(t)
	x.send(0, "s", 0, 20)
	var cursor publisher.Cursor
	n := 0
	for m, err := range space.Messages(ctx, &cursor) {
		if err != nil || m.Session != "s" || m.Number != number(n) {
			t.Fatalf("after message %d of 28: %+v, %v; the stream was made again before 20 and 24", n-1, m, err)
		}
		switch n++; n {
		case 20, 24:
			x.remake()
			x.send(0, "s", n, n+4)
		case 28:
			return
		}
	}
}

// TestServerRestarts requires that a reader goes on when a server restarts, although the
// server forgets its consumer.
func TestServerRestarts(t *testing.T) {
	x := newInbox(t)
	space, ctx := x.join(t)
	x.send(0, "s", 0, 3)
	var cursor publisher.Cursor
	n := 0
	for m, err := range space.Messages(ctx, &cursor) {
		if err != nil || m.Number != number(n) {
			t.Fatalf("after message %d of 5: %+v, %v; the server restarted before 3", n-1, m, err)
		}
		switch n++; n {
		case 3:
			x.srv.Shutdown()
			x.serve(strings.TrimPrefix(x.srv.URL(), "nats://"))
			x.send(0, "s", 3, 5)
		case 5:
			return
		}
	}
}

// TestStreamShortened requires that a stream that lost its newest messages is read from
// its start.
func TestStreamShortened(t *testing.T) {
	x := newInbox(t)
	x.send(0, "s", 0, 3)
	stored := x.consume(nil, 3)
	far := bytes.Replace(stored, []byte(`"stream":3`), []byte(`"stream":1000`), 1)
	if bytes.Equal(far, stored) {
		t.Fatalf("no sequence 3 in %s", stored)
	}
	x.send(0, "s", 3, 5)
	x.has(x.consume(far, 2), "s", 5)
}

// TestGap requires that messages that the stream deleted are reported beside the next one.
func TestGap(t *testing.T) {
	x := newInbox(t)
	x.send(0, "s", 0, 3)
	stored := x.consume(nil, 2)
	x.send(0, "s", 3, 6)
	js, err := jetstream.New(x.nc)
	must(err)
	stream, err := js.Stream(t.Context(), natsfrom.StreamName)
	must(err)
	must(stream.Purge(t.Context(), jetstream.WithPurgeSequence(6)))
	var g gameServer
	must(json.Unmarshal(stored, &g))
	p, err := publisher.Connect(context.Background(), publisher.Config{Conn: x.nc})
	must(err)
	defer p.Close()
	space, err := p.Space("demo")
	must(err)
	for m, err := range space.Messages(t.Context(), &g.Cursor) {
		var gap *publisher.GapError
		if m == nil || m.Number != number(5) || !errors.As(err, &gap) || gap.From != number(1)+1 || gap.To != number(4)+1 || gap.Client != "c-s" {
			t.Fatalf("%+v, %v", m, err)
		}
		break
	}
}
