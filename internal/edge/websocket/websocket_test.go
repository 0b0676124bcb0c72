package websocket_test

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	client "github.com/coder/websocket"
	"github.com/dnprelay/dnprelay/internal/edge/carrier"
	"github.com/dnprelay/dnprelay/internal/edge/carrier/carriertest"
	"github.com/dnprelay/dnprelay/internal/edge/websocket"
)

// bubble runs a test in a bubble of its own time.
func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

func TestDatagramsBothWays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := start(t, nil, nil)
		p := s.connect("", nil)
		if p.protocol != carrier.Protocol || p.Resumed || !s.Tokens.Valid(carrier.WebSocket, p.Token) {
			t.Errorf("the edge selected %q and greeted with %+v", p.protocol, p)
		}
		largest := strings.Repeat("d", carrier.DatagramMax)
		p.send("a", largest)
		s.WantDatagram("a")
		c := s.WantDatagram(largest)
		if c.Addr() != s.addr(p) {
			t.Error("the datagrams come from another address than that of the token")
		}
		s.Send(c.Addr(), "b", "c")
		p.want("b", "c")
	})
}

func TestResume(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := start(t, nil, nil)
		first := s.connect("", nil)
		first.send("before")
		s.WantDatagram("before")
		if err := first.CloseNow(); err != nil {
			t.Fatal(err)
		}
		s.WantEnd(carrier.Lost, "the client's connection broke")
		second := s.connect(first.Token, nil)
		if !second.Resumed || second.Token != first.Token {
			t.Errorf("the greeting is %+v, want that the session goes on", second)
		}
		second.send("after")
		if c := s.WantDatagram("after"); c.Addr() != s.addr(first) {
			t.Error("the client has another address after it came again")
		}
		if other := s.connect(strings.Repeat("7", 64), nil); other.Resumed {
			t.Error("the edge took a token that it did not make")
		}
	})
}

// TestReplaced has a client come again before the edge noticed that its connection broke.
func TestReplaced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := start(t, nil, nil)
		older := s.connect("", nil)
		newer := s.connect(older.Token, nil)
		older.wantClosed(4001, "replaced", "a newer connection has the token")
		newer.send("here")
		s.WantDatagram("here")
	})
}

func TestClientBreaksRules(t *testing.T) {
	for _, c := range []struct {
		name   string
		do     func(t *testing.T, p *peer)
		code   client.StatusCode
		reason string
		want   carrier.Reason
	}{
		{"says nothing", func(*testing.T, *peer) {}, 1008, "silent", carrier.Silent},
		{"text", func(t *testing.T, p *peer) {
			if err := p.Write(t.Context(), client.MessageText, []byte("hello")); err != nil {
				t.Error(err)
			}
		}, 1003, "malformed", carrier.Malformed},
		{"empty", func(t *testing.T, p *peer) { p.send("") }, 1003, "malformed", carrier.Malformed},
		{"too long", func(t *testing.T, p *peer) {
			_ = p.Write(t.Context(), client.MessageBinary, make([]byte, carrier.DatagramMax+1)) // the edge may end it before
		}, 1009, "too long", carrier.TooLong},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := start(t, nil, nil)
				p := s.connect("", nil)
				began := time.Now()
				go c.do(t, p)
				p.wantClosed(c.code, c.reason, "the client "+c.name)
				s.WantEnd(c.want, c.name)
				if took := time.Since(began); c.want == carrier.Silent && took != carrier.FirstTimeout {
					t.Errorf("a client that says nothing had %v, want %v", took, carrier.FirstTimeout)
				}
			})
		})
	}
}

// TestQuietClientStays has a client say nothing for long after its first datagram, and then close codes of any time arrive: no
// deadline of the beginning may be left.
func TestQuietClientStays(t *testing.T) {
	for r, want := range map[carrier.Reason]struct {
		code   client.StatusCode
		reason string
	}{
		carrier.Over: {1000, "over"}, carrier.Leaving: {1012, "leaving; retry-after=0"}, carrier.Unknown: {4000, "unknown"},
		carrier.Silent: {1008, "silent"}, carrier.NotReady: {1013, "not ready; retry-after=250"},
	} {
		t.Run(r.String(), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := start(t, nil, nil)
				p := s.connect("", nil)
				p.send("first")
				c := s.WantDatagram("first")
				s.Send(c.Addr(), "answer")
				p.want("answer")
				pass(time.Hour)
				p.send("an hour later")
				s.WantDatagram("an hour later")
				s.Send(c.Addr(), "the last")
				c.End(r)
				p.want("the last")
				p.wantClosed(want.code, want.reason, "the edge ended the connection")
			})
		})
	}
}

// TestPing has a client ask whether the edge lives, long after the edge wrote something.
func TestPing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := start(t, nil, nil)
		p := s.connect("", nil)
		p.send("first")
		c := s.WantDatagram("first")
		s.Send(c.Addr(), "answer")
		p.want("answer")
		ctx := p.CloseRead(t.Context()) // it answers the edge, too
		pass(time.Minute)
		if err := p.Ping(ctx); err != nil {
			t.Errorf("the edge does not answer a ping: %v", err)
		}
	})
}

// TestSlowClient has a client stop reading, and read again.
func TestSlowClient(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := start(t, nil, nil)
		p := s.connect("", nil)
		p.send("first")
		c := s.WantDatagram("first")
		s.Send(c.Addr(), "one")
		synctest.Wait()
		s.Send(c.Addr(), kilobytes(17))
		if full := s.Output.Full(); len(full) != 1 || full[0] != c.Addr() {
			t.Errorf("full are %v, want the client that does not read", full)
		}
		synctest.Wait()
		if len(s.Writable) != 0 {
			t.Error("the worker may send although the client does not read")
		}
		p.want("one", kilobytes(17))
		reads := make(chan struct{})
		go func() { // it answers pings, too
			p.want("more")
			close(reads)
		}()
		carriertest.Next(t, s.Writable, "the client reads again")
		s.Send(c.Addr(), "more")
		<-reads
	})
}

// TestSlowPath has the client answer pings late, as one on a path with long buffers: datagrams leave for the buffers at once, but the
// worker has to wait until the client has them.
func TestSlowPath(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := start(t, nil, nil)
		pings, answers := make(chan struct{}, 10), make(chan struct{})
		s.onPing = func(context.Context, []byte) bool {
			pings <- struct{}{}
			<-answers
			return true
		}
		p := s.connect("", nil)
		p.send("first")
		c := s.WantDatagram("first")
		reads := make(chan struct{})
		go func() { // until the test ends
			p.want("one", kilobytes(20))
			close(reads)
			_, _, _ = p.Read(context.Background())
		}()
		s.Send(c.Addr(), "one")
		carriertest.Next(t, pings, "the edge asks early, before there is a queue")
		answers <- struct{}{}
		synctest.Wait()
		s.Send(c.Addr(), kilobytes(20))
		carriertest.Next(t, reads, "the datagrams leave without a pause")
		carriertest.Next(t, pings, "the edge asks whether they came")
		synctest.Wait()
		if full := s.Output.Full(); len(full) != 1 || full[0] != c.Addr() || len(s.Writable) != 0 || c.Room() != 0 {
			t.Errorf("full are %v, there is room for %d bytes; want that the worker waits", full, c.Room())
		}
		pass(time.Second)
		answers <- struct{}{}
		carriertest.Next(t, s.Writable, "the client has everything")
		if room := c.Room(); room <= 0 || room > 16<<10 {
			t.Errorf("there is room for %d bytes, want less than is usual", room)
		}
		close(answers)
	})
}

func TestClientThatTakesNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := start(t, nil, nil)
		p := s.connect("", nil)
		p.send("first")
		c := s.WantDatagram("first")
		began := time.Now()
		s.Send(c.Addr(), "something")
		s.WantEnd(carrier.Slow, "the client takes nothing")
		if took := time.Since(began); took != carrier.WriteTimeout {
			t.Errorf("the client had %v, want %v", took, carrier.WriteTimeout)
		}
	})
}

func TestRefusals(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := start(t, func(c *carrier.Config) { c.ConnsMax, c.PerNetworkMax = 3, 2 }, func(c *websocket.Config) {
			c.Origins = carrier.Origins{"https://game.example"}
		})
		s.wantRefused(http.StatusForbidden, "", "a page of another host", header("Origin", "https://evil.example"))
		s.connect("", header("Origin", "https://game.example"))
		s.connect("", header("Origin", "http://edge.example"))
		s.wantRefused(http.StatusTooManyRequests, "1", "two clients of this address are connected", nil)
		s.from = "198.51.100.4:77"
		s.connect("", nil)
		s.from = "203.0.113.9:77"
		s.wantRefused(http.StatusServiceUnavailable, "1", "the edge has three clients", nil)
		s.Ready.Store(false)
		s.wantRefused(http.StatusServiceUnavailable, "1", "the edge drains", nil)
		got := s.Stats().Refused
		for _, r := range []carrier.Reason{carrier.BadOrigin, carrier.TooMany, carrier.Full, carrier.NotReady} {
			if got[r] != 1 {
				t.Errorf("%d clients are counted as refused because of %v, want 1", got[r], r)
			}
		}
	})
}

// TestNoWebSocket has other programs and other clients come to the path.
func TestNoWebSocket(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := start(t, nil, func(c *websocket.Config) {
			c.Page = fstest.MapFS{"index.html": {Data: []byte("the page")}}
		})
		for _, c := range []struct {
			path   string
			header http.Header
			want   int
			text   string
		}{
			{"/dnp", nil, http.StatusUpgradeRequired, "WebSockets of DNP clients"},
			{"/dnp", header("Upgrade", "websocket", "Connection", "Upgrade"), http.StatusBadRequest, "dnp.v1"},
			{"/dnp", header("Upgrade", "websocket", "Connection", "Upgrade", "Sec-WebSocket-Protocol", "dnp.v1"), http.StatusBadRequest, "WebSocket"},
			{"/other", nil, http.StatusNotFound, ""},
			{"/", nil, http.StatusOK, "the page"},
			{"/", header("X-Long", strings.Repeat("x", 6<<10)), http.StatusOK, "the page"},
			{"/", header("X-Long", strings.Repeat("x", 16<<10)), http.StatusRequestHeaderFieldsTooLarge, ""},
		} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://edge.example"+c.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			if c.header != nil {
				r.Header = c.header
			}
			response, err := s.client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			if text := body(t, response); response.StatusCode != c.want || !strings.Contains(text, c.text) {
				t.Errorf("GET %s %.99q: %d %q, want %d %q", c.path, c.header, response.StatusCode, text, c.want, c.text)
			}
		}
		for range 3 { // no place is lost
			s.connect("", nil)
		}
	})
}

// speaks is an Adapter with these subprotocols that no client comes to.
type speaks []string

func (s speaks) Protocols() []string                         { return s }
func (s speaks) Enter(netip.Addr) (carrier.Reason, bool)     { return carrier.NotReady, false }
func (s speaks) Leave(netip.Addr)                            {}
func (s speaks) Serve(string, netip.Addr, *websocket.Socket) {}

// TestInfo: pages of allowed origins may read what there is, with the subprotocols of adapters.
func TestInfo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := start(t, nil, func(c *websocket.Config) {
			c.Origins, c.Adapters = carrier.Origins{"https://game.example"}, []websocket.Adapter{speaks{"other.v1", "other.v2"}}
		})
		for origin, allow := range map[string]string{
			"": "", "https://game.example": "https://game.example", "http://localhost:5173": "http://localhost:5173", "https://evil.example": "",
		} {
			r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://edge.example/dnp/info", nil)
			if err != nil {
				t.Fatal(err)
			}
			if origin != "" {
				r.Header.Set("Origin", origin)
			}
			response, err := s.client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			const want = `{"protocols":["dnp.v1"],"websocket":{"path":"/dnp","protocols":["dnp.v1","other.v1","other.v2"]}}`
			if text := body(t, response); response.StatusCode != http.StatusOK || text != want {
				t.Errorf("the answer is %d %s, want %s", response.StatusCode, text, want)
			}
			if got := response.Header.Get("Access-Control-Allow-Origin"); got != allow || response.Header.Get("Vary") != "Origin" {
				t.Errorf("for the origin %q: %q may read it, want %q", origin, got, allow)
			}
		}
	})
}

// TestForwarded has clients come through a proxy. One that is not trusted could claim any address.
func TestForwarded(t *testing.T) {
	for _, c := range []struct {
		name    string
		proxies carrier.Proxies
		want    string
	}{
		{"trusted", carrier.Proxies{netip.MustParsePrefix("192.0.2.0/24")}, "203.0.113.8"},
		{"not trusted", nil, "192.0.2.1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s := start(t, nil, func(cfg *websocket.Config) { cfg.Proxies = c.proxies })
				s.connect("", header("X-Forwarded-For", "203.0.113.8"))
				if got := carriertest.Next(t, s.Opened, "the client is connected").Home(); got != netip.MustParseAddr(c.want) {
					t.Errorf("the client comes from %v, want %s", got, c.want)
				}
			})
		})
	}
}

func TestEdgeEnds(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := start(t, nil, nil)
		p, q := s.connect("", nil), s.connect("", nil)
		s.Close()
		p.wantClosed(1012, "leaving; retry-after=0", "the edge ends")
		q.wantClosed(1012, "leaving; retry-after=0", "the edge ends")
	})
}

// TestHalfOpenConnections has one machine open many connections and say nothing: others get in.
func TestHalfOpenConnections(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := start(t, nil, nil)
		evil := netip.MustParseAddrPort("203.0.113.66:666")
		var open []net.Conn
		for range 3000 {
			c, err := s.listener.dial(evil)
			if err != nil {
				t.Fatal(err)
			}
			open = append(open, c)
		}
		p := s.connect("", nil)
		p.send("in")
		s.WantDatagram("in")
		if n := s.Stats().Displaced; n < 900 || n > 1000 {
			t.Errorf("%d connections were closed, want those beyond some two thousand", n)
		}
		pass(carrier.FirstTimeout)
		synctest.Wait()
		for _, c := range open {
			if _, err := c.Read(make([]byte, 1)); err == nil {
				t.Fatal("the server answers a connection that says nothing")
			}
		}
		p.send("still in")
		s.WantDatagram("still in")
	})
}

// TestOverTCP is one client over a real socket.
func TestOverTCP(t *testing.T) {
	e := carriertest.New(t, nil)
	socket, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := websocket.New(websocket.Config{Hub: e.Hub, Socket: socket, Log: discard})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	c, _, err := client.Dial(ctx, "ws://"+server.Addr().String()+"/dnp", &client.DialOptions{Subprotocols: []string{"dnp.v1"}})
	if err != nil {
		t.Fatal(err)
	}
	p := &peer{Conn: c, t: t}
	if _, _, err := c.Read(ctx); err != nil {
		t.Fatal(err)
	}
	p.send("over TCP")
	conn := e.WantDatagram("over TCP")
	e.Send(conn.Addr(), "and back")
	p.want("and back")
	e.Close()
	p.wantClosed(1012, "leaving; retry-after=0", "the edge ends")
	cancel()
	if err := carriertest.Next(t, done, "the server ends"); err != nil {
		t.Error(err)
	}
	http.DefaultClient.CloseIdleConnections()
}
