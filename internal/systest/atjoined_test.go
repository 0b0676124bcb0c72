package systest

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/edge"
	"github.com/dnprelay/dnprelay/publisher"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats.go"
)

var (
	atJoined        = flag.Int("at-joined", 0, "clients of each part of TestAtJoined; 0 for the test's own number")
	atJoinedServers = flag.Int("at-joined-servers", 1, "NATS servers of TestAtJoined: 1 or 3")
)

// TestAtJoined has a game server act as soon as it hears that a client joined: every second client is kicked, and the others
// get a group, an eye, an audience and a message. Nothing may be refused or lost, also while the shard changes its holder.
func TestAtJoined(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		relays  int
		moves   bool
		clients int
		act     func(*newcomers)
	}{
		{"plain, one relay", 1, false, 20, (*newcomers).plain},
		{"plain, two relays", 2, false, 20, (*newcomers).plain},
		{"plain, the holder changes", 2, true, 24, (*newcomers).plain},
		{"package publisher, one relay", 1, false, 20, (*newcomers).packaged},
		{"package publisher, the holder changes", 2, true, 24, (*newcomers).packaged},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := &newcomers{}
			if *atJoinedServers == 3 {
				_, urls := startNATSServers(t)
				n.club = newClubAt(t, urls, 64, c.relays) // the shards of their configuration
			} else {
				n.club = newClub(t, c.relays)
			}
			n.edge = n.startEdge()
			c.act(n)
			moves := int64(0)
			if c.moves {
				moves = 2
			}
			n.play(max(c.clients, *atJoined), moves)
		})
	}
}

// Newcomers are clients that connect to the edge of a club, and a game server that acts when they join.
type newcomers struct {
	*club
	edge    *edge.Edge
	heard   atomic.Int64 // joined
	refused atomic.Int64
	lost    atomic.Int64
	ended   atomic.Int64 // clients that the edge ended
	cut     atomic.Int64 // clients whose connection ended otherwise
	moved   atomic.Int64
	mu      sync.Mutex
	said    []string // what was refused and lost first
}

func (n *newcomers) startEdge() *edge.Edge {
	n.Helper()
	e, err := edge.New(edge.Config{
		Node: "e", Listeners: []edge.Listener{local(wire.Denetwork)}, Workers: 2, Shards: len(n.heads), OpenSpace: "s", Bus: n.bus("edge"),
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		n.Fatal(err)
	}
	n.run("edge", e.Run)
	return e
}

func (n *newcomers) note(counter *atomic.Int64, format string, v ...any) {
	counter.Add(1)
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(n.said) < 5 {
		n.said = append(n.said, fmt.Sprintf(format, v...))
	}
}

// move makes the shards change their holders until the test stops it: one relay leaves, and another one comes.
func (n *newcomers) move() (stop func()) {
	quit, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for i := 0; ; i++ {
			select {
			case <-quit:
				return
			case <-time.After(300 * time.Millisecond):
			}
			begin := time.Now()
			n.add(fmt.Sprint("r", i+3))
			n.leave(n.all[0])
			n.served("after a relay left", begin)
			n.moved.Add(1)
		}
	}()
	return func() { close(quit); <-ended }
}

// play connects clients, a few at once, and waits until each felt what the game server did. It goes on until the
// shards have moved so many times.
func (n *newcomers) play(clients int, moves int64) {
	n.Helper()
	stop := func() {}
	if moves > 0 {
		stop = n.move()
	}
	var all sync.WaitGroup
	next := make(chan int)
	for range 4 {
		all.Go(func() {
			for range next {
				n.one()
			}
		})
	}
	played := 0
	for ; played < clients || n.moved.Load() < moves; played++ {
		next <- played
	}
	close(next)
	all.Wait()
	stop()
	heard := n.heard.Load()
	cut := n.cut.Load() + n.ended.Load() - heard/2 // the machine had no time for them, and the game server perhaps heard nothing of them
	n.Logf("%d clients, %d joined, %d cut off, %d moves: %d refused, %d lost", played, heard, cut, n.moved.Load(), n.refused.Load(), n.lost.Load())
	if n.refused.Load()+n.lost.Load() > 0 || heard+cut < int64(played) {
		if s, err := n.edge.Stats(n.Context()); err == nil {
			n.Logf("the edge: %+v %+v", s.Counts, s.Protocol)
		}
		n.Errorf("of what a game server did when %d of %d clients had joined, %d ops were refused and %d lost, the first of them: %q",
			n.heard.Load(), played, n.refused.Load(), n.lost.Load(), n.said)
	}
}

// one plays one client: it is kicked, or gets a message and sees what only the group sees, and what is near its eye.
func (n *newcomers) one() {
	ctx, cancel := context.WithTimeout(n.Context(), patience)
	defer cancel()
	told, once := make(chan struct{}), sync.Once{}
	c, err := n.dial(ctx, client.Config{Message: func(*client.Client, client.Message) { once.Do(func() { close(told) }) }})
	if err != nil {
		n.note(&n.lost, "dial: %v", err)
		return
	}
	defer c.Close()
	select {
	case <-c.Done():
		end := new(client.EndError)
		switch {
		case !errors.As(c.Err(), &end):
			n.note(&n.lost, "the client ended with %v", c.Err())
		case end.Reason == client.Peer:
			n.ended.Add(1)
		default:
			n.cut.Add(1)
		}
		return
	case <-told:
	case <-ctx.Done():
		n.note(&n.lost, "neither kicked nor told")
		return
	}
	for _, key := range []string{"secret", "near"} {
		if _, err := c.Await(ctx, key); err != nil {
			n.note(&n.lost, "state %s: %v", key, err)
		}
	}
}

// dial connects a client, again while the edge, which has no time, rejects it.
func (n *newcomers) dial(ctx context.Context, cfg client.Config) (c *client.Client, err error) {
	for rejected := true; rejected && ctx.Err() == nil; {
		var end *client.EndError
		c, err = client.Dial(ctx, "udp://"+n.edge.Addrs()[0].String(), cfg)
		rejected = errors.As(err, &end) && end.Reason == client.Rejected
	}
	return c, err
}

// prepare are the states of the space: one for a group, and one that is seen by eyes near it.
const prepare = `{"ops":[
	{"op":"put","key":"secret","values":[{"name":"x","type":"uint8","value":1}],"audience":{"groups":["red"]}},
	{"op":"put","key":"near","values":[{"name":"pos","type":"vector2f32","value":[1,0]}],"interest":{"at":"pos","bands":[{"within":10}]}}],"atomic":true}`

// plain is what a game server without a library does when it hears that a client joined.
func (n *newcomers) plain() {
	nc, err := nats.Connect(n.url)
	if err != nil {
		n.Fatal(err)
	}
	n.Cleanup(nc.Close)
	var subjects subject.Names
	n.ask(nc, subjects.Publish("s", ""), prepare)
	joined := make(chan string, 10_000)
	if _, err := nc.Subscribe(subjects.Event("s"), func(m *nats.Msg) {
		var ev struct{ Type, Client string }
		if json.Unmarshal(m.Data, &ev) == nil && ev.Type == "joined" {
			joined <- ev.Client
		}
	}); err != nil {
		n.Fatal(err)
	}
	if err := nc.FlushTimeout(patience); err != nil { // otherwise clients may have joined before the server knows the subscription
		n.Fatal(err)
	}
	act := func(name string) {
		if n.heard.Add(1)%2 == 0 {
			n.ask(nc, subjects.Publish("s", ""), fmt.Sprintf(`{"op":"kick","client":%q}`, name))
			return
		}
		n.ask(nc, subjects.Publish("s", ""), fmt.Sprintf(`{"op":"group","client":%q,"join":["red"]}`, name))
		n.ask(nc, subjects.Publish("s", ""), fmt.Sprintf(`{"op":"eye","client":%q,"at":[0,0]}`, name))
		n.ask(nc, subjects.Publish("s", "near"), `{"op":"audience","audience":{"all":true}}`)
		n.ask(nc, subjects.To("s", name), "hello")
	}
	n.follow(joined, act)
}

// follow calls act for each client that joins, for some of them at once.
func (n *newcomers) follow(joined chan string, act func(string)) {
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for name := range joined {
				act(name)
			}
		})
	}
	n.Cleanup(func() { close(joined); all.Wait() })
}

// ask makes a request until it is answered, and counts a refusal. A shard that changes its holder answers nothing for a while.
func (n *newcomers) ask(nc *nats.Conn, subject, body string) {
	for end := time.Now().Add(patience); time.Now().Before(end) && !nc.IsClosed(); {
		m, err := nc.Request(subject, []byte(body), 2*time.Second)
		if err != nil {
			time.Sleep(10 * time.Millisecond) // no holder
			continue
		}
		var a struct {
			Error *struct{ Code, Message string }
		}
		if err := json.Unmarshal(m.Data, &a); err != nil || a.Error != nil {
			n.note(&n.refused, "%s %s: %s", subject, body, m.Data)
		}
		return
	}
	n.note(&n.lost, "%s %s: no answer", subject, body)
}

// packaged is what a game server of package publisher does.
func (n *newcomers) packaged() {
	p, err := publisher.Connect(n.Context(), publisher.Config{URL: n.url, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		n.Fatal(err)
	}
	n.Cleanup(p.Close)
	s, err := p.Space("s")
	if err != nil {
		n.Fatal(err)
	}
	n.must("prepare", func() error {
		_, err := s.Publish(n.Context(),
			publisher.Put{Key: "secret", Values: []publisher.Value{{Name: "x", Type: publisher.Uint8, Value: 1}}, Audience: publisher.Who{Groups: []string{"red"}}},
			publisher.Put{Key: "near", Values: []publisher.Value{{Name: "pos", Type: publisher.Vector2f32, Value: [2]float32{1, 0}}},
				Interest: &publisher.Distance{At: "pos", Bands: []publisher.Band{{Within: 10}}}})
		return err
	})
	act := func(name string) {
		if n.heard.Add(1)%2 == 0 {
			n.must("kick", func() error { return s.Kick(n.Context(), name) })
			return
		}
		n.must("group and eye", func() error {
			_, err := s.Publish(n.Context(), publisher.Group{Client: name, Join: []string{"red"}}, publisher.Eye{Client: name, Points: [][]float64{{0, 0}}})
			return err
		})
		n.must("send", func() error {
			_, err := s.Send(n.Context(), publisher.Outgoing{To: name, Data: []byte("hello")})
			return err
		})
	}
	joined := make(chan string, 10_000)
	n.follow(joined, act)
	ready := make(chan struct{})
	n.run("events", func(ctx context.Context) error {
		close(ready)
		for ev, err := range s.Events(ctx, publisher.Filter{Kinds: []publisher.Kind{publisher.KindJoined}}) {
			if err == nil {
				joined <- ev.Client
			}
		}
		return nil
	})
	<-ready
}

// must does something again until it is done or refused.
func (n *newcomers) must(what string, do func() error) {
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		err := do()
		if refused := new(publisher.Error); errors.As(err, &refused) {
			n.note(&n.refused, "%s: %v", what, err)
			return
		}
		if err == nil || n.Context().Err() != nil {
			return
		}
	}
	n.note(&n.lost, "%s: no answer", what)
}
