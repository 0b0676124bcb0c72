package publisher_test

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus/natsbus"
	"github.com/dnprelay/dnprelay/internal/natstest"
	"github.com/dnprelay/dnprelay/publisher"
	"github.com/dnprelay/dnprelay/sessionlog"
	"github.com/dnprelay/dnprelay/sessionlog/natsfrom"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

var rounds = flag.Int("rounds", 1, "how many times TestOutage loses each kind of server")

// outagePatience bounds a round of TestOutage, which has several elections.
const outagePatience = 2 * time.Minute

// An outage is an edge that stores messages of clients in a cluster of three servers, and a game server
// that reads them.
type outage struct {
	*testing.T
	cluster *natstest.Processes
	admin   jetstream.JetStream
	feeds   []interface{ Deliver(sessionlog.Message) }
	sent    []uint64 // messages, by session

	mu           sync.Mutex    // the edge and the game server note what they see
	at           [][]time.Time // when messages were sent, by session and number
	read         []uint64      // messages, by session
	stored, late time.Duration // after which the latest message was stored, and read
}

func newOutage(t *testing.T, sessions int) *outage {
	x := &outage{T: t, cluster: natstest.StartProcesses(t, 3), sent: make([]uint64, sessions), read: make([]uint64, sessions), at: make([][]time.Time, sessions)}
	var err error
	x.admin, err = jetstream.New(x.cluster.Connect(t, nats.PingInterval(200*time.Millisecond), nats.Timeout(time.Second)))
	must(err)
	b, err := natsbus.Connect(natsbus.Config{URL: x.cluster.URL()})
	must(err)
	t.Cleanup(b.Close)
	discard := slog.New(slog.DiscardHandler)
	var from *natsfrom.Publisher
	for end := time.Now().Add(outagePatience); ; {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		from, err = natsfrom.Open(ctx, natsfrom.Config{Conn: b.Conn(), Replicas: 3, Log: discard})
		cancel()
		if err == nil || time.Now().After(end) {
			break
		}
	}
	must(err)
	p, err := publisher.Connect(t.Context(), publisher.Config{URL: x.cluster.URL(), Log: discard})
	must(err)
	space, err := p.Space("demo")
	must(err)
	ctx, stop := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { from.Run(ctx) })
	running.Go(func() { x.consume(ctx, space) })
	t.Cleanup(func() { stop(); running.Wait(); p.Close() })
	for i := range sessions {
		x.feeds = append(x.feeds, from.Begin("demo", fmt.Sprint("c", i), fmt.Sprint("s", i), func(number uint64) {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.stored = max(x.stored, time.Since(x.at[i][number]))
		}))
	}
	return x
}

// consume is the game server.
func (x *outage) consume(ctx context.Context, space *publisher.Space) {
	var cursor publisher.Cursor
	for m, err := range space.Messages(ctx, &cursor) {
		if m == nil {
			return
		}
		var session int
		_, scanned := fmt.Sscanf(m.Session, "s%d", &session)
		must(scanned)
		x.mu.Lock()
		if want := x.read[session]; err != nil || m.Number != want {
			x.Errorf("session %d: message %d, %v, want %d", session, m.Number, err, want)
		}
		x.read[session] = m.Number + 1
		x.late = max(x.late, time.Since(x.at[session][m.Number]))
		x.mu.Unlock()
	}
}

// send lets each session send a message.
func (x *outage) send() {
	for i, f := range x.feeds {
		x.mu.Lock()
		x.at[i] = append(x.at[i], time.Now())
		x.mu.Unlock()
		f.Deliver(sessionlog.Message{Number: x.sent[i], Previous: x.sent[i], Data: []byte("x")})
		x.sent[i]++
	}
}

// sendUntil sends 20 times a second until ok.
func (x *outage) sendUntil(why string, ok func() bool) {
	x.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(outagePatience); !ok(); <-tick.C {
		if time.Now().After(end) {
			x.Fatalf("%s: sent %v, read %v", why, x.sent, x.read)
		}
		x.send()
	}
}

// reader returns a function that reports whether the game server has read what was sent before this call.
func (x *outage) reader() func() bool {
	sent := slices.Clone(x.sent)
	return func() bool {
		x.mu.Lock()
		defer x.mu.Unlock()
		for i, n := range sent {
			if x.read[i] < n {
				return false
			}
		}
		return true
	}
}

// leader returns the server that leads the stream if all copies of it are complete; -1 otherwise.
func (x *outage) leader() int {
	ctx, cancel := context.WithTimeout(x.Context(), time.Second)
	defer cancel()
	s, err := x.admin.Stream(ctx, natsfrom.StreamName)
	if err != nil || s.CachedInfo().Cluster == nil {
		return -1
	}
	c := s.CachedInfo().Cluster
	for _, r := range c.Replicas {
		if !r.Current || r.Offline {
			return -1
		}
	}
	return slices.Index([]string{"n0", "n1", "n2"}, c.Leader)
}

// TestOutage kills and stops the server that leads the stream of clients' messages. The game server gets
// each message once and in order. Messages may be late for the time of an election.
func TestOutage(t *testing.T) {
	x := newOutage(t, 5)
	for round := range *rounds {
		for _, fault := range []struct {
			name      string
			lose, end func(i int)
		}{
			{"kill", x.cluster.Kill, func(i int) { x.cluster.Launch(t, i) }},
			{"stop", x.cluster.Pause, x.cluster.Continue},
		} {
			leader := -1
			x.sendUntil("all copies of the stream are complete", func() bool { leader = x.leader(); return leader >= 0 })
			read := x.reader()
			x.sendUntil("the game server reads", read)
			x.mu.Lock()
			x.stored, x.late = 0, 0
			x.mu.Unlock()
			fault.lose(leader)
			n := 0 // the first messages may pass a process before it is stopped
			x.sendUntil("clients send on", func() bool { n++; return n > 20 })
			x.sendUntil("messages arrive after the leader is gone", x.reader())
			x.mu.Lock()
			t.Logf("round %d, %s of server %d: the latest message was stored after %.1f s and read after %.1f s", round, fault.name, leader, x.stored.Seconds(), x.late.Seconds())
			x.mu.Unlock()
			fault.end(leader)
		}
	}
	x.sendUntil("all messages arrive", x.reader())
}
