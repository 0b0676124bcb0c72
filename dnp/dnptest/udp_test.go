package dnptest

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var loopback = netip.MustParseAddrPort("127.0.0.1:0")

// run starts a peer that ends with the test.
func run(t *testing.T, ctx context.Context, cfg Config) *Peer {
	t.Helper()
	p, err := RunUDP(ctx, cfg, loopback)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func do(t *testing.T, p *Peer, f func(now time.Time, c *Client) error) {
	t.Helper()
	var failed error
	if err := p.Do(func(now time.Time, c *Client) { failed = f(now, c) }); err != nil || failed != nil {
		t.Fatal(err, failed)
	}
}

// TestPeers connects every library to the C++ one over real sockets.
func TestPeers(t *testing.T) {
	for _, b := range Presets() {
		if b.Name == "spec" {
			continue // it does not understand the others' LinkUpdates
		}
		t.Run(b.Name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
			defer cancel()
			server := run(t, ctx, Config{Behaviour: Cpp(), Listen: true})
			client := run(t, ctx, Config{Behaviour: b, Server: server.Addr()})
			until(t, ctx, client, "connected", func(c *Client) bool { return c.Phase() == Connected })

			s := state(t, 3)
			var link *Link
			do(t, server, func(now time.Time, c *Client) (err error) {
				link, err = c.Offer(now, s, []byte("hp"), false)
				return err
			})
			until(t, ctx, server, "link up", func(*Client) bool { return link.Phase == LinkIsUp })
			do(t, server, func(_ time.Time, c *Client) error { c.Set(link, 0, []byte{42, 0}); return nil })
			until(t, ctx, client, "value", func(c *Client) bool { v := c.Value("hp", 0); return v != nil && v[0] == 42 })
			do(t, client, func(_ time.Time, c *Client) error { c.Set(c.LinkNamed("hp"), 0, []byte{43, 0}); return nil })
			until(t, ctx, server, "write", func(*Client) bool { return s.Value(0)[0] == 43 })

			do(t, client, func(now time.Time, c *Client) error { return c.Send(now, ramp(3000)) })
			until(t, ctx, server, "long message", func(c *Client) bool { return len(c.Messages) == 1 && len(c.Messages[0].Data) == 3000 })
			do(t, client, func(now time.Time, c *Client) error { c.Close(now); return nil })
			until(t, ctx, server, "goodbye", func(c *Client) bool { return c.Phase() == Closed })
		})
	}
}

// TestPeerWritesAgain has the server's older value arrive while a write waits for its tick: the library forgets the write, and Write
// sets the value again.
func TestPeerWritesAgain(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	server := run(t, ctx, Config{Behaviour: Cpp(), Listen: true})
	client := run(t, ctx, Config{Behaviour: Cpp(), Server: server.Addr()})
	until(t, ctx, client, "connected", func(c *Client) bool { return c.Phase() == Connected })
	s := state(t, 3)
	do(t, server, func(now time.Time, c *Client) error {
		_, err := c.Offer(now, s, []byte("hp"), false)
		return err
	})
	until(t, ctx, client, "link up", func(c *Client) bool { l := c.LinkNamed("hp"); return l != nil && l.Phase == LinkIsUp })
	value := []byte{43, 0}
	done := written("hp", 0, value)
	do(t, client, func(_ time.Time, c *Client) error {
		if l := c.LinkNamed("hp"); done(c) || !l.pending {
			t.Error("the write does not wait for its tick")
		} else if c.apply(l, 0, []byte{3, 0}); l.pending {
			t.Error("the library remembers the write")
		}
		return nil
	})
	until(t, ctx, client, "written", done)
	until(t, ctx, server, "write", func(*Client) bool { return bytes.Equal(s.Value(0), value) })
}

// TestPeerIgnoresStrangers sends to a client from a socket that is not its server's, as an edge of another test does to a client whose
// port this one has now: the client neither takes the command for its server's nor ends.
func TestPeerIgnoresStrangers(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	server := run(t, ctx, Config{Behaviour: Java(), Listen: true})
	client := run(t, ctx, Config{Behaviour: Java(), Server: server.Addr()})
	until(t, ctx, client, "connected", func(c *Client) bool { return c.Phase() == Connected })
	stranger, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(client.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer stranger.Close()
	for _, p := range [][]byte{wire.ReliableMessage{Data: []byte("stranger")}.Append(nil), wire.AppendConnectionClose(nil)} {
		if _, err := stranger.Write(p); err != nil {
			t.Fatal(err)
		}
	}
	do(t, server, func(now time.Time, c *Client) error { return c.Send(now, []byte("server")) }) // it arrives behind the stranger's
	until(t, ctx, client, "a message", func(c *Client) bool { return len(c.Messages) > 0 || c.Phase() != Connected })
	do(t, client, func(_ time.Time, c *Client) error {
		if c.Phase() != Connected || len(c.Messages) != 1 || string(c.Messages[0].Data) != "server" {
			t.Errorf("the client is %v %s and has %+v, want connected and the server's message", c.Phase(), c.Reason(), c.Messages)
		}
		return nil
	})
}

func until(t *testing.T, ctx context.Context, p *Peer, what string, done func(*Client) bool) {
	t.Helper()
	if err := p.Until(ctx, done); err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

func TestPeerEnds(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	p := run(t, ctx, Config{Behaviour: Cpp(), Listen: true})
	cancel()
	never := func(*Client) bool { return false }
	if err := p.Until(context.Background(), never); !errors.Is(err, ErrPeerClosed) {
		t.Errorf("Until = %v, want ErrPeerClosed", err)
	}
	p.Close()
	if _, err := RunUDP(ctx, Config{}, netip.MustParseAddrPort("192.0.2.1:1")); err == nil {
		t.Error("RunUDP opened a socket at a foreign address")
	}
}
