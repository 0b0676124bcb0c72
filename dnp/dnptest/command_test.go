package dnptest

import (
	"fmt"
	"testing"

	"github.com/dnprelay/dnprelay/dnp/netstate"
)

// ramp is n bytes, byte i = i&255, as in the vectors.
func ramp(n int) []byte {
	p := make([]byte, n)
	for i := range p {
		p[i] = byte(i)
	}
	return p
}

// TestCommandVectors sends every command as the three libraries send it.
func TestCommandVectors(t *testing.T) {
	vectors := loadVectors(t)
	for _, b := range []Behaviour{Cpp(), Java(), Python()} {
		t.Run(b.Name, func(t *testing.T) {
			first := 1 // the Java and Python vectors have one message before
			if b.Name == "cpp" {
				first = 2
			}
			g := newGolden(t, b, vectors, App{})
			for n := range first {
				g.send([]byte("x"))
				if n == 1 {
					g.want("reliable_message_1")
				}
				g.in(ack(n))
				g.out = nil
			}
			g.send(ramp(1357))
			g.want("reliable_1357")
			g.send(ramp(1358))
			g.want("reliable_long_1358")
			g.commandsOf(b.Name)
		})
	}
}

func (g *golden) send(data []byte) {
	g.Helper()
	if err := g.c.Send(g.now, data); err != nil {
		g.Fatal(err)
	}
}

// commandsOf sends the commands whose vectors come from one library only.
func (g *golden) commandsOf(lib string) {
	g.Helper()
	if lib != "java" {
		if err := g.c.SendUnreliable(g.now, []byte("hello")); err != nil {
			g.Fatal(err)
		}
		g.want("message")
	}
	if lib != "cpp" {
		g.out = nil
		g.in("") // an empty datagram changes nothing
		if len(g.out) > 0 {
			g.Errorf("sent %s", g.out)
		}
		for n := range 4 {
			g.in(ack(n)) // otherwise Close would repeat them
		}
		g.c.Close(g.now)
		g.want("connection_close")
	}
	if lib != "python" {
		g.c.Restart(g.now)
		g.want("connection_request")
	}
}

func TestCommandLinks(t *testing.T) {
	g := newGolden(t, Cpp(), loadVectors(t), App{Offered: func(o Offer) Answer {
		if string(o.Message) == "A" {
			return Accept
		}
		return Reject
	}})
	g.in(message(0, "x"))
	g.want("reliable_ack")
	g.in("05 0100 3400 01 0100 41 0100 03 e803")
	g.want("link_up")
	g.in("05 0200 3500 01 0100 42 0100 03 e803")
	g.want("link_down")

	g.connect(Cpp(), App{}, 0)
	a, b := state(t, 3, 9, 11), state(t, 0)
	a.Set(0, []byte{1, 2})
	la := g.offer(a, "AA", false)
	lb := g.offer(b, "BB", true)
	g.want("link_state_two")
	g.in("07 0000", "07 0100")
	g.c.Set(la, 0, []byte{7, 0})
	g.c.Set(la, 2, []byte{2, 0, 'z', 'z'})
	g.c.Set(lb, 0, []byte{0xff})
	g.tick()
	g.want("link_update_two")
}

func (g *golden) offer(s *netstate.State, message string, readOnly bool) *Link {
	g.Helper()
	l, err := g.c.Offer(g.now, s, []byte(message), readOnly)
	if err != nil {
		g.Fatal(err)
	}
	return l
}

// TestCommandListen runs the model as a library's server.
func TestCommandListen(t *testing.T) {
	g := newGolden(t, Cpp(), loadVectors(t), App{})
	g.c = NewClient(Config{Behaviour: Cpp(), Listen: true, Server: server,
		Send: func(p []byte) { g.out = append(g.out, fmt.Sprintf("%x", p)) }})
	g.in("00 0000")
	g.want("connection_ack_no_common_empty")
	g.in("00 0100 0000", "00 0100 0000")
	if fmt.Sprint(g.out) != "[01000000]" {
		t.Errorf("sent %s; a repeated request is not answered", g.out)
	}
	g.in(message(0, "x"))
	if len(g.c.Messages) != 1 || g.c.Phase() != Connected {
		t.Errorf("%d messages, %v", len(g.c.Messages), g.c.Phase())
	}
}
