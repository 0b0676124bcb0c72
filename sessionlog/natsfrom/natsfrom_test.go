package natsfrom

import (
	"context"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/natstest"
	"github.com/dnprelay/dnprelay/sessionlog"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func TestMain(m *testing.M) { natstest.VerifyNoLeaks(m) }

// patience is how long a test waits for what must happen.
const patience = 60 * time.Second

func open(t testing.TB, cfg Config) *Publisher {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	p, err := Open(ctx, cfg)
	for err != nil && ctx.Err() == nil { // a cluster needs a while for its first stream
		p, err = Open(ctx, cfg)
	}
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { p.Run(ctx); close(done) }()
	t.Cleanup(func() { stop(); <-done })
	return p
}

// A feed under test records the numbers that are reported to it.
type feed struct {
	*Feed
	t         testing.TB
	delivered chan uint64
}

func begin(t testing.TB, p *Publisher, client, id string) *feed {
	f := &feed{t: t, delivered: make(chan uint64, 10_000)}
	f.Feed = p.Begin("demo", client, id, func(n uint64) { f.delivered <- n })
	return f
}

// number is the number of the client's k-th message. Numbers have gaps, because links and parts
// have numbers, too.
func number(k int) uint64 { return uint64(k)*3 + 1 }

func (f *feed) send(from, to int) {
	for k := from; k < to; k++ {
		f.Deliver(sessionlog.Message{Number: number(k), Data: fmt.Appendf(nil, "message %d", k)})
	}
}

// wait waits until messages from to to are reported, in order.
func (f *feed) wait(from, to int, why string) {
	f.t.Helper()
	timeout := time.After(patience)
	for k := from; k < to; k++ {
		select {
		case n := <-f.delivered:
			if n != number(k) {
				f.t.Fatalf("message %d is reported, want %d: %s", n, number(k), why)
			}
		case <-timeout:
			f.t.Fatalf("message %d is never reported: %s", k, why)
		}
	}
}

// stored reads the stream and returns the messages of each client by number.
func stored(t testing.TB, nc *nats.Conn) map[string][]uint64 {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]uint64{}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := js.Stream(ctx, StreamName)
	for err != nil && ctx.Err() == nil {
		s, err = js.Stream(ctx, StreamName)
	}
	if err != nil {
		t.Fatal(err)
	}
	for seq := s.CachedInfo().State.FirstSeq; seq <= s.CachedInfo().State.LastSeq; seq++ {
		m, err := s.GetMsg(ctx, seq)
		if err != nil {
			t.Fatal(err)
		}
		n, err := strconv.ParseUint(m.Header.Get("Dnp-Number"), 10, 64)
		if err != nil || m.Header.Get("Dnp-Reliable") != "true" || m.Header.Get("Dnp-Session") == "" ||
			m.Header.Get("Nats-Msg-Id") != m.Header.Get("Dnp-Session")+":"+m.Header.Get("Dnp-Number") {
			t.Errorf("a message has the headers %v", m.Header)
		}
		if want := fmt.Sprintf("message %d", (n-1)/3); string(m.Data) != want {
			t.Errorf("number %d has %q, want %q", n, m.Data, want)
		}
		all[m.Subject] = append(all[m.Subject], n)
	}
	return all
}

// TestStreamLimits: the stream has the limits of INTERFACES.md.
func TestStreamLimits(t *testing.T) {
	c := natstest.Start(t, 1)
	open(t, Config{Conn: c.Connect(t)})
	js, err := jetstream.New(c.Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := js.Stream(ctx, StreamName)
	if err != nil {
		t.Fatal(err)
	}
	if got := s.CachedInfo().Config; got.MaxAge != 10*time.Minute || got.Duplicates != 2*time.Minute {
		t.Errorf("messages stay for %v and their ids for %v, want 10 and 2 min", got.MaxAge, got.Duplicates)
	}
}

// want checks that the stream has n messages of a client, each once, in order.
func want(t testing.TB, all map[string][]uint64, client string, n int) {
	t.Helper()
	got := all["dnp.v1.from.demo."+client]
	if len(got) != n {
		t.Errorf("the stream has %d messages of %s, want %d: %v", len(got), client, n, got)
		return
	}
	for k, x := range got {
		if x != number(k) {
			t.Errorf("message %d of %s has the number %d, want %d: order", k, client, x, number(k))
			return
		}
	}
}

func TestOrder(t *testing.T) {
	c := natstest.Start(t, 1)
	p := open(t, Config{Conn: c.Connect(t), InFlight: 3})
	var feeds []*feed
	for i := range 10 {
		f := begin(t, p, fmt.Sprint("c", i), fmt.Sprint("s", i))
		f.send(0, 20)
		feeds = append(feeds, f)
	}
	for _, f := range feeds {
		f.wait(0, 20, "the stream takes everything")
	}
	all := stored(t, c.Connect(t))
	for i := range feeds {
		want(t, all, fmt.Sprint("c", i), 20)
	}
	if s := p.Stats(); s.Stored != 200 || s.Waiting != 0 || s.Duplicates != 0 {
		t.Errorf("%+v", s)
	}
}

// TestTakenOver lets the edge that stored messages hear no confirmation. Another edge takes the
// session over and publishes from the last reported message on, and the first edge, which is
// not told, goes on as well.
func TestTakenOver(t *testing.T) {
	c := natstest.Start(t, 1)
	nc := c.Connect(t)
	wire := natstest.NewProxy(t, c)
	a := open(t, Config{Conn: wire.Connect(t, c), Timeout: 100 * time.Millisecond, Pause: 10 * time.Millisecond})
	b := open(t, Config{Conn: c.Connect(t)})
	old := begin(t, a, "c", "s")
	old.send(0, 3)
	old.wait(0, 3, "all is well")

	seen, err := nc.SubscribeSync("dnp.v1.from.demo.c")
	if err != nil || nc.Flush() != nil {
		t.Fatal(err)
	}
	wire.SetDeaf(true)
	old.send(3, 8)
	if m, err := seen.NextMsg(patience); err != nil || m.Header.Get("Dnp-Number") != fmt.Sprint(number(3)) {
		t.Fatalf("%v %v", m, err)
	}
	young := begin(t, b, "c", "s")
	young.send(3, 12)
	young.wait(3, 12, "the new owner brings everything")
	wire.SetDeaf(false)
	wire.Cut()
	old.wait(3, 8, "the old owner finds everything there")
	want(t, stored(t, nc), "c", 12)
	if a.Stats().Duplicates < 5 || b.Stats().Duplicates != 1 {
		t.Errorf("old %+v, new %+v: messages that the stream had already must count as duplicates", a.Stats(), b.Stats())
	}
}

// TestFaults stops servers and breaks connections while messages flow.
func TestFaults(t *testing.T) {
	for _, replicas := range []int{1, 3} {
		t.Run(fmt.Sprintf("R%d", replicas), func(t *testing.T) {
			c := natstest.Start(t, replicas)
			wire := natstest.NewProxy(t, c)
			p := open(t, Config{Conn: wire.Connect(t, c), Replicas: replicas, Timeout: 200 * time.Millisecond, Pause: 20 * time.Millisecond})
			const clients, rounds, each = 8, 6, 10
			var feeds []*feed
			for i := range clients {
				feeds = append(feeds, begin(t, p, fmt.Sprint("c", i), fmt.Sprint("s", i)))
			}
			for r := range rounds {
				for _, f := range feeds {
					f.send(r*each, (r+1)*each)
				}
				switch r {
				case 1, 3:
					wire.SetDeaf(true)
					time.AfterFunc(300*time.Millisecond, func() { wire.SetDeaf(false) })
				case 2:
					wire.Cut()
				case 4:
					if leader := c.StreamLeader(StreamName); leader >= 0 {
						c.Stop(leader)
						c.Restart(t, leader)
					}
				}
				for _, f := range feeds {
					f.wait(r*each, (r+1)*each, "the feed repeats until the stream confirms")
				}
			}
			all := stored(t, c.Connect(t))
			for i := range clients {
				want(t, all, fmt.Sprint("c", i), rounds*each)
			}
			t.Logf("%+v", p.Stats())
		})
	}
}

// TestEnd checks that a feed reports nothing after its end, and that others go on.
func TestEnd(t *testing.T) {
	c := natstest.Start(t, 1)
	wire := natstest.NewProxy(t, c)
	p := open(t, Config{Conn: wire.Connect(t, c), Timeout: 50 * time.Millisecond, Pause: 10 * time.Millisecond})
	gone, stays := begin(t, p, "gone", "s1"), begin(t, p, "stays", "s2")
	wire.SetDeaf(true)
	gone.send(0, 5)
	stays.send(0, 5)
	gone.End()
	gone.send(5, 6)
	wire.SetDeaf(false)
	wire.Cut()
	stays.wait(0, 5, "the end of another feed does not concern it")
	if n := len(gone.delivered); n > 0 {
		t.Errorf("%d messages are reported after the end of the feed", n)
	}
	if s := p.Stats(); s.Waiting != 0 {
		t.Errorf("%+v", s)
	}
}

// TestUnstored checks that an unreliable message of the same client reaches subscribers and not
// the stream.
func TestUnstored(t *testing.T) {
	for _, replicas := range []int{1, 3} {
		c := natstest.Start(t, replicas)
		nc := c.Connect(t)
		p := open(t, Config{Conn: nc, Replicas: replicas})
		sub, err := c.Connect(t).SubscribeSync("dnp.v1.from.*.*")
		if err != nil || sub.SetPendingLimits(-1, -1) != nil {
			t.Fatal(err)
		}
		f := begin(t, p, "c", "s")
		f.send(0, 1)
		f.wait(0, 1, "all is well")
		for {
			h := nats.Header{"Nats-Expected-Stream": {"none"}, "Dnp-Reliable": {"false"}}
			if err := nc.PublishMsg(&nats.Msg{Subject: "dnp.v1.from.demo.c", Header: h, Data: []byte("unreliable")}); err != nil {
				t.Fatal(err)
			}
			if m, err := sub.NextMsg(100 * time.Millisecond); err == nil && string(m.Data) == "unreliable" {
				break // the subscription may not have been known everywhere at first
			}
		}
		f.send(1, 2)
		f.wait(1, 2, "all is well")
		want(t, stored(t, nc), "c", 2)
	}
}

// TestStreamIsMadeAgain deletes the stream while messages are on their way. Those that were not
// confirmed are in the stream that is made again.
func TestStreamIsMadeAgain(t *testing.T) {
	c := natstest.Start(t, 1)
	nc := c.Connect(t)
	p := open(t, Config{Conn: nc})
	f := begin(t, p, "c1", "session")
	f.send(0, 10)
	f.wait(0, 10, "the stream takes them")
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	natstest.DeleteStream(t, js, StreamName)
	f.send(10, 20)
	f.wait(10, 20, "the stream is made again")
	if got := stored(t, nc)["dnp.v1.from.demo.c1"]; len(got) != 10 || got[0] != number(10) {
		t.Errorf("the stream has the numbers %v", got)
	}
	if n := p.Stats().Replaced; n != 1 {
		t.Errorf("the stream counts as made again %d times", n)
	}
}

// TestFailedIsTold follows messages that fail. The log has a line when they do for longer than an election takes,
// although there is a connection.
func TestFailedIsTold(t *testing.T) {
	var c counters
	for _, step := range []struct {
		second          int
		connected, told bool
		why             string
	}{
		{-5, true, false, "a message fails just before the connection is lost"},
		{0, false, false, "the loss of the connection is told already"},
		{60, false, false, "for a minute"},
		{61, true, false, "the connection is back, and the stream has no leader"},
		{70, true, false, "it elects one"},
		{71, true, true, "for ten seconds"},
		{72, true, false, "which is told once"},
	} {
		if got := c.failed(time.Unix(1e9+int64(step.second), 0), step.connected); got != step.told {
			t.Errorf("second %d: told is %v: %s", step.second, got, step.why)
		}
	}
}
