package webtransport_test

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dnprelay/dnprelay/dnp/admit"
	"github.com/dnprelay/dnprelay/internal/edge/carrier"
	"github.com/dnprelay/dnprelay/internal/edge/carrier/carriertest"
	"github.com/dnprelay/dnprelay/internal/edge/certificate"
	"github.com/dnprelay/dnprelay/internal/edge/webtransport"
	"github.com/quic-go/quic-go"
	"github.com/quic-go/quic-go/testutils/simnet"
	client "github.com/quic-go/webtransport-go"
)

func TestDatagramsBothWays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := start(t, nil, nil)
		p := s.connect("")
		if p.Resumed || !s.Tokens.Valid(carrier.WebTransport, p.Token) {
			t.Errorf("the greeting is %+v", p)
		}
		p.send("a", bytes(1200))
		s.WantDatagram("a")
		c := s.WantDatagram(bytes(1200))
		if c.Addr() != s.addr(p) {
			t.Error("the datagrams come from another address than that of the token")
		}
		s.Send(c.Addr(), "b", bytes(1200), "c")
		p.want("b", bytes(1200), "c")
	})
}

// TestLaterStream has the request for a session come on the second stream: datagrams name it.
func TestLaterStream(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := start(t, nil, nil)
		s.asks = 1
		p := s.connect("")
		p.send("a")
		c := s.WantDatagram("a")
		s.Send(c.Addr(), "b")
		p.want("b")
	})
}

// TestLongDatagrams sends datagrams that do not fit into a packet: the stream carries them.
func TestLongDatagrams(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := start(t, nil, nil)
		p := s.connect("")
		largest := strings.Repeat("d", carrier.DatagramMax)
		p.sendFrame(largest)
		p.sendFrame("") // is ignored
		p.sendFrame("short")
		c := s.WantDatagram(largest)
		s.WantDatagram("short")
		s.Send(c.Addr(), bytes(2000), bytes(30000), "fits")
		p.wantFrame(bytes(2000))
		p.wantFrame(bytes(30000))
		p.want("fits")
		s.Send(c.Addr(), strings.Repeat("e", carrier.DatagramMax))
		p.wantFrame(strings.Repeat("e", carrier.DatagramMax))
	})
}

func TestResume(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := start(t, func(c *carrier.Config) { c.Admission = admit.Config{AddressRate: 0.25} }, nil) // one new client
		first := s.connect("")
		first.send("before")
		s.WantDatagram("before")
		if err := first.conn.CloseWithError(0, "the network broke"); err != nil {
			t.Fatal(err)
		}
		s.WantEnd(carrier.Lost, "the client's connection broke")
		s.from = "192.0.2.1:5001"
		second := s.connect(first.Token)
		if !second.Resumed || second.Token != first.Token {
			t.Errorf("the greeting is %+v, want that the session goes on", second)
		}
		second.send("after")
		if c := s.WantDatagram("after"); c.Addr() != s.addr(first) {
			t.Error("the client has another address after it came again")
		}
		s.from = "198.51.100.1:5000"
		if other := s.connect(strings.Repeat("7", 64)); other.Resumed {
			t.Error("the edge took a token that it did not make")
		}
	})
}

// TestReplaced has a client come again before the edge noticed that its connection broke.
func TestReplaced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := start(t, nil, nil)
		older := s.connect("")
		s.from = "192.0.2.1:5001"
		newer := s.connect(older.Token)
		older.wantClosed(4001, "replaced", "a newer connection has the token")
		newer.send("here")
		s.WantDatagram("here")
	})
}

// TestEarlyDatagrams has a client send datagrams before its first frame: they come after it.
func TestEarlyDatagrams(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := start(t, nil, nil)
		p, _, err := s.dial("")
		if err != nil {
			t.Fatal(err)
		}
		p.send("early", "earlier than the frame")
		pass(time.Second)
		synctest.Wait()
		if len(s.Arrivals) != 0 || len(s.Opened) != 0 {
			t.Error("the worker learned of a client that has not begun")
		}
		p.sendFrame("")
		s.WantDatagram("early")
		s.WantDatagram("earlier than the frame")
	})
}

func TestClientBreaksRules(t *testing.T) {
	for _, c := range []struct {
		name   string
		do     func(p *peer)
		code   client.SessionErrorCode
		reason string
		after  time.Duration // how long the client has, at least
	}{
		{"opens no stream", func(*peer) {}, 1008, "silent", carrier.FirstTimeout},
		{"begins its first frame", func(p *peer) { p.sendBytes([]byte{64, 0, 'a'}) }, 1008, "silent", carrier.FirstTimeout},
		{"sends no token", func(p *peer) { p.sendFrame("hello") }, 1003, "malformed", 0},
		{"begins a frame", func(p *peer) {
			p.sendFrame("")
			p.sendBytes([]byte{200, 0, 'a'})
		}, 1008, "silent", 10 * time.Second},
		{"begins the size of a frame", func(p *peer) {
			p.sendFrame("")
			p.sendBytes([]byte{200})
		}, 1008, "silent", 10 * time.Second},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := start(t, nil, nil)
				p, _, err := s.dial("")
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				c.do(p)
				p.wantClosed(c.code, c.reason, "the client "+c.name)
				if took := time.Since(began); took < c.after || took > c.after+time.Second+closePatience {
					t.Errorf("the client had %v, want %v", took, c.after)
				}
			})
		})
	}
}

// closePatience is how long the client of the tests takes to end a connection whose session ended.
const closePatience = 2 * time.Second

// TestSlowFrame has a frame arrive in parts, each late, but all in time: it counts.
func TestSlowFrame(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := start(t, nil, nil)
		p := s.connect("")
		for range 3 {
			for _, part := range []string{"\x04", "\x00", "ab", "cd"} {
				p.sendBytes([]byte(part))
				pass(3 * time.Second)
			}
			s.WantDatagram("abcd")
			pass(20 * time.Second) // between two frames there may be any time
		}
	})
}

// TestCloseCodes ends connections right after their last datagram, for each reason that a client learns.
func TestCloseCodes(t *testing.T) {
	for r, want := range map[carrier.Reason]struct {
		code   client.SessionErrorCode
		reason string
	}{
		carrier.Over: {1000, "over"}, carrier.Leaving: {1012, "leaving; retry-after=0"}, carrier.Unknown: {4000, "unknown"},
		carrier.Silent: {1008, "silent"}, carrier.NotReady: {1013, "not ready; retry-after=250"},
	} {
		t.Run(r.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := start(t, nil, nil)
				p := s.connect("")
				p.send("first")
				c := s.WantDatagram("first")
				pass(20 * time.Second)
				s.Send(c.Addr(), slices.Repeat([]string{bytes(1100)}, 40)...)
				s.Send(c.Addr(), "the last")
				c.End(r)
				p.want(slices.Repeat([]string{bytes(1100)}, 40)...)
				p.want("the last")
				p.wantFrame(fmt.Sprintf(`{"code":%d,"reason":%q}`, want.code, want.reason))
				p.wantClosed(want.code, want.reason, "the edge ended the connection, and the client did not")
			})
		})
	}
}

// TestClosingFrame has clients end their sessions as soon as the closing frame says that they are over: the edge waits no longer.
func TestClosingFrame(t *testing.T) {
	for _, c := range []struct{ name, first, frame string }{
		{"the edge ends", "", `{"code":1012,"reason":"leaving; retry-after=0"}`},
		{"no token", "hello", `{"code":1003,"reason":"malformed"}`},
		{"refused", "", `{"code":1013,"reason":"not ready; retry-after=250"}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := start(t, nil, nil)
				s.Ready.Store(c.name != "refused")
				p := s.join(c.first)
				if c.name == "the edge ends" {
					if _, err := p.readFrame(); err != nil {
						t.Fatalf("the client got no greeting: %v", err)
					}
					s.Close()
				}
				p.wantFrame(c.frame)
				told := time.Now()
				if err := p.session.CloseWithError(1000, ""); err != nil {
					t.Fatal(err)
				}
				carriertest.Next(t, p.conn.Context().Done(), "the connection ends")
				if took := time.Since(told); took > 100*time.Millisecond {
					t.Errorf("the edge ended the connection %v after the client ended the session", took)
				}
			})
		})
	}
}

// TestClientEnds has clients leave in both ways that the protocol has.
func TestClientEnds(t *testing.T) {
	for name, leave := range map[string]func(p *peer) error{
		"session":    func(p *peer) error { return p.session.CloseWithError(0, "") },
		"connection": func(p *peer) error { return p.conn.CloseWithError(0, "") },
		"stream":     func(p *peer) error { return p.stream.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := start(t, nil, nil)
				p := s.connect("")
				carriertest.Next(t, s.Opened, "the client is connected")
				if err := leave(p); err != nil {
					t.Fatal(err)
				}
				s.WantEnd(carrier.Lost, "the client left")
				carriertest.Next(t, p.conn.Context().Done(), "the edge ends the connection")
			})
		})
	}
}

// TestSlowClient has nothing reach a client for a while.
func TestSlowClient(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := start(t, nil, nil)
		p := s.connect("")
		p.send("first")
		c := s.WantDatagram("first")
		s.net.lose(to(s.from))
		s.block(c.Addr(), bytes(1000))
		pass(time.Second)
		synctest.Wait()
		if len(s.Writable) != 0 {
			t.Error("the worker may send although the client takes nothing")
		}
		s.net.lose(nil)
		carriertest.Next(t, s.Writable, "the client takes datagrams again")
		s.Send(c.Addr(), "newest")
		for {
			got, err := p.session.ReceiveDatagram(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if string(got) == "newest" {
				break
			}
		}
	})
}

// TestClientThatTakesNothing has nothing reach a client any more.
func TestClientThatTakesNothing(t *testing.T) {
	for name, datagram := range map[string]string{"datagrams": bytes(1000), "stream": bytes(30000)} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := start(t, nil, nil)
				p := s.connect("")
				p.send("first")
				c := s.WantDatagram("first")
				s.net.lose(to(s.from))
				s.block(c.Addr(), datagram)
				began := time.Now()
				s.WantEnd(carrier.Slow, "the client takes nothing")
				if took := time.Since(began); took > carrier.WriteTimeout+time.Second {
					t.Errorf("the client had %v, want %v", took, carrier.WriteTimeout)
				}
			})
		})
	}
}

// TestVanishedClient has a client's network go away while the edge has nothing to send.
func TestVanishedClient(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := start(t, nil, nil)
		s.connect("")
		carriertest.Next(t, s.Opened, "the client is connected")
		s.net.lose(func(simnet.Packet) bool { return true })
		began := time.Now()
		s.WantEnd(carrier.Lost, "the client is gone")
		if took := time.Since(began); took > time.Minute {
			t.Errorf("the edge noticed after %v", took)
		}
	})
}

// TestMigration has a client change its address, as from Wi-Fi to mobile: the connection goes on.
func TestMigration(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := start(t, nil, nil)
		p := s.connect("")
		p.send("from the first address")
		before := s.WantDatagram("from the first address")
		s.Send(before.Addr(), "to the first address")
		p.want("to the first address")
		second := &quic.Transport{Conn: s.net.endpoint("198.51.100.20:6000")}
		t.Cleanup(func() {
			if err := second.Close(); err != nil {
				t.Error(err)
			}
		})
		path, err := p.conn.AddPath(second)
		if err != nil {
			t.Fatal(err)
		}
		if err := path.Probe(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := path.Switch(); err != nil {
			t.Fatal(err)
		}
		s.net.lose(func(p simnet.Packet) bool { return p.From.String() == s.from || p.To.String() == s.from })
		for range 100 {
			p.send("from the second address") // the first ones may leave before the connection has switched
			pass(100 * time.Millisecond)
			if len(s.Arrivals) > 0 {
				break
			}
		}
		if after := s.WantDatagram("from the second address"); after != before {
			t.Error("the edge has another connection for the client")
		}
		got := make(chan string, 1)
		go func() {
			p, _ := p.session.ReceiveDatagram(t.Context())
			got <- string(p)
		}()
		for range 100 {
			s.Send(before.Addr(), "to the second address") // the first ones are lost while the server tries the path
			pass(100 * time.Millisecond)
			if len(got) > 0 {
				break
			}
		}
		if answer := carriertest.Next(t, got, "datagrams reach the second address"); answer != "to the second address" {
			t.Errorf("the client got %q", answer)
		}
	})
}

// TestRestart has an edge end without a word, and its next process get a datagram of a client that knows nothing of it: the
// client learns at once that its connection is gone.
func TestRestart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := start(t, nil, nil)
		p := s.connect("")
		p.send("first")
		s.WantDatagram("first")
		s.net.lose(func(simnet.Packet) bool { return true })
		s.stop()
		s.run()
		s.net.lose(nil)
		began := time.Now()
		p.send("is there anybody?", bytes(1000))
		carriertest.Next(t, p.conn.Context().Done(), "the connection ends")
		var reset *quic.StatelessResetError
		if err := context.Cause(p.conn.Context()); !errors.As(err, &reset) || time.Since(began) > time.Second {
			t.Errorf("the connection ended with %v after %v, want a stateless reset at once", err, time.Since(began))
		}
	})
}

func TestRefusals(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := start(t, func(c *carrier.Config) { c.ConnsMax, c.PerNetworkMax = 2, 1 }, func(c *webtransport.Config) {
			c.Origins = carrier.Origins{"https://game.example"}
		})
		if _, response, err := s.dial("https://evil.example"); err == nil || response == nil || response.StatusCode != http.StatusForbidden {
			t.Errorf("a page of another host: %+v, %v; want status 403", response, err)
		}
		s.from = "192.0.2.1:5001"
		if _, _, err := s.dial("https://game.example"); err != nil {
			t.Errorf("a page of an allowed host: %v", err)
		}
		s.from = "192.0.2.1:5002"
		s.connect("")
		s.from = "192.0.2.1:5003"
		s.join("").wantClosed(1013, "too many; retry-after=1000", "a client of this address is connected")
		s.from = "198.51.100.4:77"
		s.connect("")
		s.from = "198.51.100.5:77"
		s.join("").wantClosed(1013, "full; retry-after=1000", "the edge has two clients")
		s.Ready.Store(false)
		s.from = "198.51.100.6:77"
		s.join("").wantClosed(1013, "not ready; retry-after=250", "the edge drains")
		got := s.Stats().Refused
		for _, r := range []carrier.Reason{carrier.BadOrigin, carrier.TooMany, carrier.Full, carrier.NotReady} {
			if got[r] != 1 {
				t.Errorf("%d clients are counted as refused because of %v, want 1", got[r], r)
			}
		}
	})
}

func TestEdgeEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := start(t, nil, nil)
		p := s.connect("")
		s.from = "192.0.2.2:5000"
		q := s.connect("")
		s.Close()
		p.wantClosed(1012, "leaving; retry-after=0", "the edge ends")
		q.wantClosed(1012, "leaving; retry-after=0", "the edge ends")
	})
}

// TestConnectionWithoutSession has a client keep a connection without a session.
func TestConnectionWithoutSession(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := start(t, nil, nil)
		p := &peer{t: t, quic: &quic.Transport{Conn: s.net.endpoint(s.from)}}
		var err error
		p.conn, err = p.quic.Dial(t.Context(), net.UDPAddrFromAddrPort(netip.MustParseAddrPort(serverAddr)), clientTLS,
			&quic.Config{EnableDatagrams: true, KeepAlivePeriod: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		p.wantHungUp("there is no session")
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("a connection without session lasted %v", took)
		}
		if err := p.quic.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestHalfOpenHandshakes has one machine begin many handshakes that it never ends: others get in. Its datagrams may be forged, so
// the server asks for proof of an address before it keeps anything for it.
func TestHalfOpenHandshakes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := start(t, nil, nil)
		evil := &quic.Transport{Conn: s.net.endpoint("203.0.113.66:666")}
		s.net.lose(to("203.0.113.66:666"))
		ctx, cancel := context.WithCancel(t.Context())
		var dials sync.WaitGroup
		for range 600 {
			dials.Go(func() {
				_, err := evil.Dial(ctx, net.UDPAddrFromAddrPort(netip.MustParseAddrPort(serverAddr)), clientTLS,
					&quic.Config{EnableDatagrams: true})
				if err == nil {
					t.Error("a handshake ended although no answer arrived")
				}
			})
		}
		pass(time.Second)
		p := s.connect("")
		p.send("in")
		s.WantDatagram("in")
		cancel()
		dials.Wait()
		if err := evil.Close(); err != nil {
			t.Error(err)
		}
	})
}

// TestOverUDP is one client over a real socket.
func TestOverUDP(t *testing.T) {
	socket, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := carriertest.New(t, nil)
	cert, _, err := certificate.Own(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	server, err := webtransport.New(webtransport.Config{
		Hub: e.Hub, Socket: socket, TLS: &tls.Config{Certificates: []tls.Certificate{cert}}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	d := client.Transport{TLSClientConfig: clientTLS}
	_, session, err := d.Dial(ctx, "https://"+server.Addr().String()+"/dnp", nil)
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{t: t, session: session}
	if p.stream, err = session.OpenStream(); err != nil {
		t.Fatal(err)
	}
	p.sendFrame("")
	if _, err := p.readFrame(); err != nil {
		t.Fatal(err)
	}
	p.sendFrame("over UDP")
	c := e.WantDatagram("over UDP")
	e.Send(c.Addr(), strings.Repeat("and back", 1000))
	p.wantFrame(strings.Repeat("and back", 1000))
	e.Close()
	carriertest.Next(t, session.Context().Done(), "the edge ends")
	cancel()
	if err := carriertest.Next(t, done, "the server ends"); err != nil {
		t.Error(err)
	}
}
