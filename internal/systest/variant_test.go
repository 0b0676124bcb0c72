package systest

import (
	"context"
	"log/slog"
	"net"
	"strings"
	"testing"

	ws "github.com/coder/websocket"
	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp/admit"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/wire"
	godot "github.com/dnprelay/dnprelay/godot/variant"
	"github.com/dnprelay/dnprelay/internal/edge"
	"github.com/dnprelay/dnprelay/internal/edge/carrier"
	"github.com/dnprelay/dnprelay/internal/edge/variant"
	"github.com/dnprelay/dnprelay/internal/edge/websocket"
	"github.com/dnprelay/dnprelay/internal/relay"
)

// newVariants is newStack with listeners for Variants. It returns the URL of the WebSockets and the address by UDP.
func newVariants(t *testing.T) (s *stack, a *variant.Adapter, url, udp string) {
	t.Helper()
	s = newStackWith(t, func(_ *relay.Config, e *edge.Config) {
		e.Carriers = &edge.Carriers{Secret: []byte("secret of the test"), ConnsMax: 100}
	}, local(wire.Denetwork))
	a = variant.New(variant.Config{Hub: s.edge.Hub()})
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	web := websocket.New(websocket.Config{
		Hub: s.edge.Hub(), Socket: socket, Log: slog.New(slog.DiscardHandler), Adapters: []websocket.Adapter{a},
		Info: func() carrier.Info { return carrier.Info{} },
	})
	datagrams, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	server, err := a.ListenUDP(datagrams, admit.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s.run("websocket", web.Run)
	s.run("variants", server.Run)
	t.Cleanup(func() { s.edge.Hub().Close() })
	return s, a, "ws://" + socket.Addr().String() + "/dnp", datagrams.LocalAddr().String()
}

// TestVariantExamples runs the clients in examples/godot with a real engine: they see a state change, write it, send a message
// and get one.
func TestVariantExamples(t *testing.T) {
	t.Parallel()
	s, a, url, udp := newVariants(t)
	started := 0 // none without an engine
	for script, address := range map[string]string{"variant_websocket.gd": url, "variant_udp.gd": udp} {
		t.Run(script, func(t *testing.T) {
			from := make(chan bus.Msg, 10)
			end, err := s.game.Subscribe(s.subjects.From("s", "*"), func(m bus.Msg) { from <- m })
			if err != nil {
				t.Fatal(err)
			}
			defer end()
			s.publish(`{"op":"put","key":"lamp","describe":true,"access":"read-write","values":[{"name":"on","type":"uint8","value":0},{"name":"colour","type":"vector3f32","value":[1,0.5,0]}]}`)
			other := s.client(0, dnptest.Cpp())
			p := engine(t, "../../examples/godot/"+script, "DNP="+address)
			started++
			s.until(other, "another client sees what the script wrote", func(c *dnptest.Client) bool {
				return string(c.Value(`{"v":1,"key":"lamp","names":["on","colour"]}`, 0)) == "\x01"
			})
			s.publish(`{"op":"set","key":"lamp","values":{"colour":[0,0,1]}}`)
			m := receive(t, from, "the script sees the change and says so")
			if string(m.Data) != "the lamp changed" {
				t.Errorf("the game server got %q", m.Data)
			}
			if err := s.game.Publish(bus.Msg{Subject: strings.Replace(m.Subject, ".from.", ".to.", 1), Data: []byte("bye")}); err != nil {
				t.Fatal(err)
			}
			p.ends(0, "[welcome, {version:1}]", "lamp, [on, colour], [0, (1, 0.5, 0)], True]", "[set, 3", "{colour:(0, 0, 1)}]", "[msg, ")
			p.clean()
			s.publish(`{"op":"remove","key":"lamp"}`)
		})
	}
	if c := a.Stats(); int(c.Joined) != started {
		t.Errorf("%d peers joined, want %d", c.Joined, started)
	}
}

// A talker is a client that speaks Variants of Godot 4 by WebSocket.
type talker struct {
	*testing.T
	ctx    context.Context
	socket *ws.Conn
}

func talk(s *stack, url string, token string) *talker {
	s.Helper()
	socket, _, err := ws.Dial(s.ctx, url, &ws.DialOptions{Subprotocols: []string{variant.Protocol4}})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { _ = socket.CloseNow() })
	p := &talker{T: s.T, ctx: s.ctx, socket: socket}
	p.say(func(w *godot.Writer) {
		m := w.Begin(godot.Array)
		w.String("hello")
		dictionary(w, "version", func() { w.Int(1) }, "token", token)
		w.End(m, 2)
	})
	return p
}

func (p *talker) say(write func(w *godot.Writer)) {
	p.Helper()
	w := godot.NewWriter(godot.Godot4, nil)
	write(&w)
	if err := p.socket.Write(p.ctx, ws.MessageBinary, w.Bytes()); err != nil {
		p.Fatal(err)
	}
}

// hears waits for a message and returns its elements behind the name.
func (p *talker) hears(name string) (list []godot.Value) {
	p.Helper()
	for {
		_, message, err := p.socket.Read(p.ctx)
		if err != nil {
			p.Fatalf("%s: %v", name, err)
		}
		v, err := godot.Decode(godot.Godot4, message)
		if err != nil {
			p.Fatal(err)
		}
		c := v.Elements()
		if c.Next(); c.Value().Text() != name {
			continue
		}
		for c.Next() {
			list = append(list, c.Value())
		}
		return list
	}
}

// TestVariantEnds has clients that are kicked, whose edge leaves, and that come to an edge that leaves: each hears why, and whether
// it may come again.
func TestVariantEnds(t *testing.T) {
	t.Parallel()
	s, a, url, _ := newVariants(t)
	from := make(chan bus.Msg, 1)
	if _, err := s.game.Subscribe(s.subjects.From("s", "*"), func(m bus.Msg) { from <- m }); err != nil {
		t.Fatal(err)
	}
	s.publish(lampPut) // the relay holds the shard, and NATS knows of the subscription
	expect := func(p *talker, reason string, again bool) {
		t.Helper()
		if bye := p.hears("bye"); bye[0].Text() != reason || bye[1].Bool() != again {
			t.Errorf("bye says %q and %v, want %q and %v", bye[0].Text(), bye[1].Bool(), reason, again)
		}
	}
	p := talk(s, url, "")
	p.hears("welcome")
	p.say(func(w *godot.Writer) {
		m := w.Begin(godot.Array)
		w.String("msg")
		w.String("who am I")
		w.End(m, 2)
	})
	me := receive(t, from, "the game hears the client").Subject
	me = me[strings.LastIndex(me, ".")+1:]
	s.publish(`{"op":"kick","client":"` + me + `"}`)
	expect(p, "over", false)

	p = talk(s, url, "")
	p.hears("welcome")
	s.edge.Hub().Close()
	expect(p, "leaving", true)
	expect(talk(s, url, ""), "not ready", true)
	if c := a.Stats(); c.Joined != 2 {
		t.Errorf("%d peers joined, want 2", c.Joined)
	}
}

// TestVariantOffer has a client make a state, which a game server sees.
func TestVariantOffer(t *testing.T) {
	t.Parallel()
	s, _, url, _ := newVariants(t)
	s.publish(lampPut)
	p := talk(s, url, "")
	p.hears("welcome")
	p.say(func(w *godot.Writer) {
		m := w.Begin(godot.Array)
		w.String("offer")
		w.Int(-1)
		w.String("me")
		fields := w.Begin(godot.Array)
		field := w.Begin(godot.Array)
		w.String("pos")
		w.String("vector2f32")
		w.Floats(godot.Vector2, 1, 2)
		w.End(field, 3)
		w.End(fields, 1)
		w.End(m, 4)
	})
	link := p.hears("link")
	for link[0].Integer(0) != -1 {
		link = p.hears("link")
	}
	if v := link[3].Elements(); !v.Next() || v.Value().Real(1) != 2 {
		t.Errorf("the state of the client is %v", link[3])
	}
	for answer := ""; !strings.Contains(answer, `"client.`) || !strings.Contains(answer, "[1,2]"); { // the edge took the state, and tells the relay
		if s.ctx.Err() != nil {
			t.Fatalf("the space has %s", answer)
		}
		answer = string(s.ask(s.subjects.Get("s", ""), nil, nil))
	}
}
