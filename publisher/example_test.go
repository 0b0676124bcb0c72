package publisher_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"time"

	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/publisher"
	"github.com/dnprelay/dnprelay/sessionlog"
	"github.com/dnprelay/dnprelay/sessionlog/natsfrom"
	"github.com/nats-io/nats.go"
)

// Clients are offered a link to a tower and receive what changes.
func ExampleSpace_Publish() {
	w := newWorld() // NATS, a relay and an edge in this process, like relay dev
	defer w.close()
	w.hold(1)

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	p, err := publisher.Connect(ctx, publisher.Config{URL: w.nats.URL()})
	must(err)
	defer p.Close()
	space, err := p.Space("demo")
	must(err)

	position, err := space.Publish(ctx, publisher.Put{Key: "tower", Values: []publisher.Value{
		{Name: "hp", Type: "float32", Value: 93.5, Precision: 0.1},
		{Name: "pos", Type: "vector3f32", Value: [3]float32{1, 2, 3}},
	}})
	fmt.Println(position, err)
	_, err = space.Publish(ctx, publisher.Set{Key: "tower", Values: publisher.Values{"hp": "low"}})
	fmt.Println(err)
	_, err = space.Publish(ctx,
		publisher.Set{Key: "tower", Values: publisher.Values{"hp": 12}},
		publisher.Put{Key: "fire", Values: []publisher.Value{{Name: "heat", Type: "uint8", Value: 255}}})
	fmt.Println(err)
	// Output:
	// {1 1} <nil>
	// set tower: type_mismatch: value "hp": want float32, got string
	// <nil>
}

// A struct is a state: Set and Update send what differs.
func ExampleBind() {
	w := newWorld()
	defer w.close()
	w.hold(1)

	type Tower struct {
		HP    float32    `dnp:"hp,precision=0.1"`
		Pos   [3]float32 `dnp:"pos"`
		Owner *string    `dnp:"owner"`
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	p, err := publisher.Connect(ctx, publisher.Config{URL: w.nats.URL()})
	must(err)
	defer p.Close()
	space, err := p.Space("demo")
	must(err)

	tower, err := publisher.Bind(space, publisher.Put{Key: "tower", Farewell: "the tower fell"}, Tower{HP: 93.5, Pos: [3]float32{1, 2, 3}})
	must(err)
	must(tower.Update(func(t *Tower) { t.HP /= 2 }))
	fmt.Println(tower.Set(Tower{HP: float32(math.Inf(1))}))
	must(space.Flush(ctx))

	state, _ := space.State("tower")
	for _, v := range state.Values {
		fmt.Println(v.Name, v.Type, v.Value)
	}
	// Output:
	// set tower: out_of_range: value "hp": +Inf is not a number that JSON can express
	// hp float32 46.75
	// pos vector3f32 [1 2 3]
	// owner string <nil>
}

// Post does not wait, as a game loop needs; Flush waits for all changes.
func ExampleSpace_Post() {
	w := newWorld()
	defer w.close()
	w.hold(1)

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	p, err := publisher.Connect(ctx, publisher.Config{URL: w.nats.URL()})
	must(err)
	defer p.Close()
	space, err := p.Space("demo")
	must(err)

	must(space.Post(publisher.Put{Key: "ball", Values: []publisher.Value{{Name: "x", Type: "float64", Value: 0}}}))
	for x := range 100 {
		must(space.Post(publisher.Set{Key: "ball", Values: publisher.Values{"x": x}}))
	}
	fmt.Println(space.Flush(ctx))

	client, err := dnptest.RunUDP(ctx, dnptest.Config{Behaviour: dnptest.Cpp(), Server: w.edge.Addrs()[0]}, netip.MustParseAddrPort("127.0.0.1:0"))
	must(err)
	defer client.Close()
	must(client.Until(ctx, func(c *dnptest.Client) bool { return len(c.Value("ball", 0)) == 8 }))
	must(client.Do(func(_ time.Time, c *dnptest.Client) { fmt.Printf("% x\n", c.Value("ball", 0)) }))
	// Output:
	// <nil>
	// 00 00 00 00 00 c0 58 40
}

// Clients join and leave, and write the values that they may write.
func ExampleSpace_Events() {
	w := newWorld()
	defer w.close()
	w.hold(1)

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	p, err := publisher.Connect(ctx, publisher.Config{URL: w.nats.URL()})
	must(err)
	defer p.Close()
	space, err := p.Space("demo")
	must(err)
	_, err = space.Publish(ctx, publisher.Put{Key: "lamp", Access: publisher.Access{All: true}, Values: []publisher.Value{{Name: "on", Type: "uint8", Value: 0}}})
	must(err)

	client, err := dnptest.RunUDP(ctx, dnptest.Config{Behaviour: dnptest.Cpp(), Server: w.edge.Addrs()[0]}, netip.MustParseAddrPort("127.0.0.1:0"))
	must(err)
	defer client.Close()
	must(client.Until(ctx, func(c *dnptest.Client) bool {
		l := c.LinkNamed("lamp")
		return l != nil && l.Phase == dnptest.LinkIsUp
	}))
	for ev, err := range space.Events(ctx, publisher.Filter{}) {
		must(err)
		switch ev.Kind {
		case publisher.KindJoined:
			fmt.Println("somebody is there")
			must(client.Do(func(_ time.Time, c *dnptest.Client) { c.Set(c.LinkNamed("lamp"), 0, []byte{1}) }))
		case publisher.KindChanged:
			fmt.Printf("%s: on=%v\n", ev.Key, ev.Values["on"])
			must(client.Do(func(now time.Time, c *dnptest.Client) { c.Close(now) }))
		case publisher.KindLeft:
			fmt.Println("it left:", ev.Reason)
			return
		}
	}
	// Output:
	// somebody is there
	// lamp: on=1
	// it left: peer
}

// A game server stores the cursor with the state that messages change. It stops after the
// second message, restarts, and continues with the third.
func ExampleSpace_Messages() {
	w := newWorld()
	defer w.close()
	say(w.nats.URL(), "hello", "is anybody there?", "I say") // like an edge with --session-durability log

	ctx := context.Background()
	var stored []byte
	for range 2 {
		p, err := publisher.Connect(ctx, publisher.Config{URL: w.nats.URL()})
		must(err)
		space, err := p.Space("demo")
		must(err)
		var game struct {
			Cursor publisher.Cursor
			Heard  []string
		}
		if stored != nil {
			must(json.Unmarshal(stored, &game))
		}
		for m, err := range space.Messages(ctx, &game.Cursor) {
			must(err)
			game.Heard = append(game.Heard, string(m.Data))
			stored, err = json.Marshal(game)
			must(err)
			if n := len(game.Heard); n == 2 || n == 3 {
				break
			}
		}
		p.Close()
		fmt.Printf("%q\n", game.Heard)
	}
	// Output:
	// ["hello" "is anybody there?"]
	// ["hello" "is anybody there?" "I say"]
}

// say stores messages of a client in the stream.
func say(url string, texts ...string) {
	nc, err := nats.Connect(url)
	must(err)
	defer nc.Close()
	from, err := natsfrom.Open(context.Background(), natsfrom.Config{Conn: nc})
	must(err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { from.Run(ctx); close(ended) }()
	stored := make(chan uint64)
	feed := from.Begin("demo", "alice", "s1", func(n uint64) { stored <- n })
	for i, text := range texts {
		feed.Deliver(sessionlog.Message{Number: uint64(i), Previous: uint64(i), Data: []byte(text)})
		<-stored
	}
	stop()
	<-ended
}
