package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/edgetest"
)

// webSchemes are the carriers that resume. wss differs from ws only where the connection begins.
var webSchemes = []string{"ws", "wt"}

// onWeb runs a test over several carriers, each with an edge of its own.
func onWeb(t *testing.T, schemes []string, cfg edgetest.Config, test func(t *testing.T, e *webEdge, scheme string)) {
	t.Parallel()
	for _, scheme := range schemes {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			test(t, startWebEdge(t, cfg), scheme)
		})
	}
}

func (e *webEdge) dial(t *testing.T, scheme string, cfg Config) (*Client, error) {
	t.Helper()
	if cfg.TLS == nil {
		cfg.TLS = &tls.Config{RootCAs: e.roots}
	}
	cfg = cfg.withDefaults()
	way, err := openWeb(patient(t), e.urls[scheme], &cfg, patienceTimes{check: usualPatience.check, answer: patience}) // on a machine of any speed
	if err != nil {
		return nil, err
	}
	return dial(patient(t), way, cfg)
}

func (e *webEdge) connect(t *testing.T, scheme string, cfg Config) *Client {
	t.Helper()
	c, err := e.dial(t, scheme, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	e.expect(t, "connect")
	return c
}

// expect fails the test unless the edge sees an event next.
func (e *webEdge) expect(t *testing.T, want string) {
	t.Helper()
	if got := receive(t, e.events, want); got != want {
		t.Fatalf("the edge sees %q, want %q", got, want)
	}
}

// ended waits for the end of a client.
func ended(t *testing.T, c *Client) *EndError {
	t.Helper()
	receive(t, c.Done(), "the end of the connection")
	end, ok := errors.AsType[*EndError](c.Err())
	if !ok {
		t.Fatalf("the end is %v", c.Err())
	}
	return end
}

func TestWeb(t *testing.T) {
	onWeb(t, []string{"ws", "wss", "wt"}, edgetest.Config{Describe: true}, func(t *testing.T, e *webEdge, scheme string) {
		var seen journal
		a, b := e.connect(t, scheme, seen.config()), e.connect(t, scheme, Config{CertificateHashes: []string{e.hash}, TLS: &tls.Config{}})
		tower, other := await(t, a, "tower"), await(t, b, "tower")
		if err := tower.Set("hp", 93.5); err != nil {
			t.Fatal(err)
		}
		until(t, b, "the write reaches another client", func() bool { return other.Value("hp").Float() == 93.5 })
		long := strings.Repeat("0123456789", 5000)
		for _, text := range []string{"one", long, "two"} {
			if err := a.Send([]byte("echo " + text)); err != nil {
				t.Fatal(err)
			}
		}
		until(t, a, "the echoes come", func() bool { return seen.has("< two true") })
		if !seen.has("< "+long+" true") || !seen.has("< one true") {
			t.Error("an echo is missing")
		}
		until(t, a, "a long unreliable message comes back", func() bool {
			if err := a.SendUnreliable([]byte("echo " + long)); err != nil {
				t.Error(err)
			}
			return seen.has("< " + long + " false")
		})
		if s := a.CarrierStats(); s.Connections != 1 || s.DroppedIn != 0 || s.DroppedOut != 0 {
			t.Errorf("counters %+v, want one connection without losses", s)
		}
		if want := strings.TrimPrefix(e.urls[scheme], scheme+"://"); a.Address().String() != want {
			t.Errorf("the address is %v, want %s", a.Address(), want)
		}
		if err := a.Send([]byte("close")); err != nil {
			t.Fatal(err)
		}
		if end := ended(t, a); end.Reason != Peer || !end.Made {
			t.Errorf("the end is %+v", end)
		}
	})
}

// TestWebResume: connections are cut while messages and values are under way. Messages arrive once and in order,
// and so does the last value.
func TestWebResume(t *testing.T) {
	wrote := map[string]chan edgetest.Write{}
	for _, scheme := range webSchemes {
		wrote[scheme] = make(chan edgetest.Write, 10_000)
	}
	t.Parallel()
	for _, scheme := range webSchemes {
		t.Run(scheme, func(t *testing.T) {
			t.Parallel()
			e := startWebEdge(t, edgetest.Config{Wrote: wrote[scheme]})
			var seen journal
			c := e.connect(t, scheme, seen.config())
			me, err := c.Offer("me", Field{Type: "uint16", Name: "hp"})
			if err != nil {
				t.Fatal(err)
			}
			until(t, c, "the edge takes a state", me.Linked)
			const rounds, each = 3, 10
			for round := range rounds {
				for i := range each {
					n := round*each + i
					if err := errors.Join(c.Send(fmt.Appendf(nil, "echo %d", n)), me.Set("hp", n+1)); err != nil {
						t.Fatal(err)
					}
				}
				e.cut()
				until(t, c, "the session resumes", func() bool { return c.CarrierStats().Connections >= uint64(round+2) })
			}
			until(t, c, "all echoes come", func() bool { return seen.has(fmt.Sprintf("< %d true", rounds*each-1)) })
			var want, got []string
			for i := range rounds * each {
				want = append(want, fmt.Sprintf("< %d true", i))
			}
			for _, line := range strings.Split(seen.all(), "\n") {
				if strings.HasPrefix(line, "< ") {
					got = append(got, line)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("messages, want each once and in order:\n%s", strings.Join(got, "\n"))
			}
			for w := receive(t, wrote[scheme], "the last value"); w.Value[0] != rounds*each; w = receive(t, wrote[scheme], "the last value") {
			}
		})
	}
}

// TestWebOutage: what is set and sent while there is no connection arrives after it.
func TestWebOutage(t *testing.T) {
	onWeb(t, webSchemes, edgetest.Config{}, func(t *testing.T, e *webEdge, scheme string) {
		c, watcher := e.connect(t, scheme, Config{}), connect(t, e.edge, Config{})
		tower, other := await(t, c, "tower"), await(t, watcher, "tower")
		e.set(func() { e.refuse = func() (int, string) { return http.StatusServiceUnavailable, "" } })
		e.cut()
		e.expect(t, "refuse")
		if err := errors.Join(tower.SetAt(0, 1), tower.SetAt(0, 93.5), c.Send([]byte("x"))); err != nil {
			t.Fatal(err)
		}
		e.expect(t, "refuse")
		if s := c.carrier.status(); s.up || s.trouble == nil {
			t.Errorf("the carrier is %+v, want one that is down and says why", s)
		}
		e.set(func() { e.refuse = nil })
		for receive(t, e.events, "resume") != "resume" {
		}
		until(t, watcher, "the last value comes", func() bool { return other.At(0).Float() == 93.5 })
		if err := c.Flush(patient(t)); err != nil {
			t.Errorf("the message: %v", err)
		}
	})
}

// TestWebSpeaks: a client that has nothing to say says something when it is back.
func TestWebSpeaks(t *testing.T) {
	onWeb(t, webSchemes, edgetest.Config{}, func(t *testing.T, e *webEdge, scheme string) {
		c := e.connect(t, scheme, Config{})
		await(t, c, "tower")
		await(t, c, "door")
		for range 3 {
			select {
			case <-e.heard:
			default:
			}
			e.cut()
			e.expect(t, "resume")
			receive(t, e.heard, "a datagram after the session resumed")
		}
	})
}

func TestWebRetryAfter(t *testing.T) {
	onWeb(t, webSchemes, edgetest.Config{}, func(t *testing.T, e *webEdge, scheme string) {
		c := e.connect(t, scheme, Config{})
		e.close(1012, "leaving; retry-after=0")
		e.expect(t, "resume")
		const pause = 300 * time.Millisecond
		for _, reason := range []string{"leaving", "full"} {
			before := time.Now()
			e.close(map[string]int{"leaving": 1012, "full": 1013}[reason], fmt.Sprintf("%s; retry-after=%d", reason, pause.Milliseconds()))
			e.expect(t, "resume")
			if waited := time.Since(before); waited < pause {
				t.Errorf("%s: the client came back after %v, want %v at least", reason, waited, pause)
			}
		}
		if c.Err() != nil {
			t.Errorf("the client ended: %v", c.Err())
		}
	})
}

func TestWebEnds(t *testing.T) {
	onWeb(t, webSchemes, edgetest.Config{}, func(t *testing.T, e *webEdge, scheme string) {
		for _, byCode := range []bool{false, true} {
			e.set(func() { e.byCode = byCode })
			for _, x := range []struct {
				code int
				text string
				want Reason
			}{{1000, "over", Peer}, {4000, "unknown", Unknown}, {4001, "replaced", Replaced}} {
				c := e.connect(t, scheme, Config{})
				e.close(x.code, x.text)
				if end := ended(t, c); end.Reason != x.want || !end.Made || !strings.Contains(end.Error(), string(x.want)) {
					t.Errorf("%d: the end is %v, want %s", x.code, end, x.want)
				}
			}
		}
		c := e.connect(t, scheme, Config{})
		e.forget()
		e.expect(t, "resume")
		if end := ended(t, c); end.Reason != Unknown {
			t.Errorf("no edge has the session: the end is %v", end)
		}
		c = e.connect(t, scheme, Config{})
		e.set(func() { e.greet = func(text string) string { return strings.Replace(text, "true", "false", 1) } })
		e.cut()
		if end := ended(t, c); end.Reason != Unknown || !errors.Is(end, errSession) {
			t.Errorf("the token is not of this deployment: the end is %v", end)
		}
	})
}

// TestWebClosingFrame: an edge tells in a frame that it takes no clients, before it greets, and later that another edge takes over.
// It leaves the end of the session to the client.
func TestWebClosingFrame(t *testing.T) {
	t.Parallel()
	e := startWebEdge(t, edgetest.Config{})
	refusals := 0
	e.set(func() {
		e.greet = func(text string) string {
			if refusals++; refusals%2 == 1 {
				return `{"code":1013,"reason":"full; retry-after=0"}`
			}
			return text
		}
	})
	c, err := e.dial(t, "wt", Config{Timeout: patience})
	if err != nil {
		t.Fatalf("an edge that was full for a moment: %v", err)
	}
	defer c.Close()
	e.expect(t, "connect") // was refused
	e.expect(t, "connect")
	e.each(func(p webPeer) {
		for _, text := range []string{"{", "{}", `{"code":"x","reason":"y"}`, `{"code":1012}`} { // say nothing
			if err := p.(*wtPeer).writeFrame([]byte(text)); err != nil {
				t.Error(err)
			}
		}
	})
	e.close(1012, "leaving; retry-after=0")
	e.expect(t, "resume") // was refused
	e.expect(t, "resume")
	until(t, c, "the session goes on", func() bool { return c.CarrierStats().Connections == 2 })
	await(t, c, "tower")
}

func TestWebRefused(t *testing.T) {
	onWeb(t, webSchemes, edgetest.Config{}, func(t *testing.T, e *webEdge, scheme string) {
		for _, x := range []struct {
			status int
			after  string
		}{{307, ""}, {403, ""}, {404, ""}, {503, "60"}, {429, "60"}} {
			e.set(func() { e.refuse = func() (int, string) { return x.status, x.after } })
			_, err := e.dial(t, scheme, Config{})
			if end, ok := errors.AsType[*EndError](err); !ok || end.Reason != Rejected || end.Made || !strings.Contains(err.Error(), fmt.Sprint(x.status)) {
				t.Errorf("%d: %v, want %s", x.status, err, Rejected)
			}
			e.expect(t, "refuse")
		}
		left := 3
		e.set(func() {
			e.refuse = func() (int, string) {
				if left--; left >= 0 {
					return 503, "0"
				}
				return 0, ""
			}
		})
		c, err := e.dial(t, scheme, Config{Timeout: patience})
		if err != nil {
			t.Fatalf("an edge that was full for a moment: %v", err)
		}
		defer c.Close()
	})
}

func TestWebGreeting(t *testing.T) {
	token := strings.Repeat("0af", 22)[:64]
	for text, ok := range map[string]bool{
		`{"token":"` + token + `","resumed":true}`: true,
		`{"token":"` + token + `"}`:                true,
		`{"token":"` + token + `","later":1}`:      true,
		"":                                         false,
		"hello":                                    false,
		`{"resumed":true}`:                         false,
		`{"token":"` + token[1:] + `"}`:            false,
		`{"token":"` + strings.ToUpper(token) + `"}`: false,
		`{"token":7}`: false,
		`{"token":"` + token + `"}` + strings.Repeat(" ", greetingMax+1): false,
	} {
		g, err := parseGreeting([]byte(text))
		if ok != (err == nil) || ok && g.Token != token {
			t.Errorf("%q: %+v, %v", text, g, err)
		}
	}
	onWeb(t, webSchemes, edgetest.Config{}, func(t *testing.T, e *webEdge, scheme string) {
		for _, text := range []string{"", "{}", strings.Repeat("x", 1000)} {
			e.set(func() { e.greet = func(string) string { return text } })
			_, err := e.dial(t, scheme, Config{Timeout: patience})
			if end, ok := errors.AsType[*EndError](err); !ok || end.Reason != Lost || !errors.Is(err, errGreeting) {
				t.Errorf("greeting %.20q: %v", text, err)
			}
		}
		e.set(func() { e.silent = true })
		_, err := e.dial(t, scheme, Config{Timeout: 500 * time.Millisecond})
		if end, ok := errors.AsType[*EndError](err); !ok || end.Reason != Timeout || end.Made {
			t.Errorf("the edge does not greet: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Millisecond, cancel)
		if _, err := Dial(ctx, e.urls[scheme], Config{Timeout: patience, CertificateHashes: []string{e.hash}}); !errors.Is(err, context.Canceled) {
			t.Errorf("ctx ended: %v", err)
		}
	})
}

// TestWebNoEdge: nothing that speaks the protocol is there.
func TestWebNoEdge(t *testing.T) {
	t.Parallel()
	e := startWebEdge(t, edgetest.Config{})
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the system accepts
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { silent.Close() }) // after the parallel subtests, so that no other test gets the port
	wrong := strings.Repeat("00", 32)
	short := Config{Timeout: 200 * time.Millisecond}
	for name, x := range map[string]struct {
		url    string
		cfg    Config
		reason Reason
		text   string
	}{
		"nothing listens, WebSocket":    {"ws://127.0.0.1:1", short, Timeout, "no edge answers"},
		"nothing listens, WebTransport": {"wt://127.0.0.1:1", short, Timeout, "no edge answers"},
		"silent":                        {"ws://" + silent.Addr().String(), short, Timeout, "no edge answers"},
		"silent, TLS":                   {"wss://" + silent.Addr().String(), short, Timeout, "no edge answers"},
		"no TLS":                        {"wss" + strings.TrimPrefix(e.urls["ws"], "ws"), Config{Timeout: patience}, Lost, "no connection"},
		"other path":                    {e.urls["ws"] + "/other", Config{Timeout: patience}, Rejected, "404"},
		"unknown authority":             {e.urls["wss"], Config{Timeout: patience}, Lost, "certificate"},
		"unknown authority, QUIC":       {e.urls["wt"], Config{Timeout: patience}, Lost, "certificate"},
		"other pin":                     {e.urls["wss"], Config{Timeout: patience, CertificateHashes: []string{wrong}}, Lost, "CertificateHashes"},
		"other pin, QUIC":               {e.urls["wt"], Config{Timeout: patience, CertificateHashes: []string{wrong}}, Lost, "CertificateHashes"},
		"no such host":                  {"ws://nowhere.invalid", Config{Timeout: patience}, Lost, "nowhere.invalid"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := Dial(patient(t), x.url, x.cfg)
			if end, ok := errors.AsType[*EndError](err); !ok || end.Reason != x.reason || end.Made || !strings.Contains(err.Error(), x.text) {
				t.Errorf("%v, want reason %s with %q", err, x.reason, x.text)
			}
		})
	}
	for what, dial := range map[string]func() (*Client, error){
		"nothing else": func() (*Client, error) { return Dial(t.Context(), "ws://127.0.0.1/dnp?token=x", Config{}) },
		"64 hex": func() (*Client, error) {
			return Dial(t.Context(), "wt://127.0.0.1", Config{CertificateHashes: []string{"00"}})
		},
		"parse": func() (*Client, error) { return Dial(t.Context(), "ws://[", Config{}) },
	} {
		if _, err := dial(); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("got error %v, want one about %q", err, what)
		}
	}
}

// TestWebMoves: the address of the client changes, as behind a NAT, and the QUIC connection goes on.
func TestWebMoves(t *testing.T) {
	t.Parallel()
	e := startWebEdge(t, edgetest.Config{})
	middle := startMiddle(t, strings.TrimPrefix(e.urls["wt"], "wt://"))
	e.urls["wt"] = "wt://" + middle.addr()
	var seen journal
	c := e.connect(t, "wt", seen.config())
	for n := range 3 {
		middle.move(t)
		if err := c.Send(fmt.Appendf(nil, "echo %d", n)); err != nil {
			t.Fatal(err)
		}
		until(t, c, "the echo comes", func() bool { return seen.has(fmt.Sprintf("< %d true", n)) })
	}
	if s := c.CarrierStats(); s.Connections != 1 {
		t.Errorf("%d connections, want 1", s.Connections)
	}
}

// TestWebSilence: an edge that falls silent without an end of the connection is left, and the session resumes.
func TestWebSilence(t *testing.T) {
	t.Parallel()
	e := startWebEdge(t, edgetest.Config{})
	middle := startMiddle(t, strings.TrimPrefix(e.urls["wt"], "wt://"))
	e.urls["wt"] = "wt://" + middle.addr()
	watcher := connect(t, e.edge, Config{})
	other := await(t, watcher, "tower")
	for i, scheme := range webSchemes {
		t.Run(scheme, func(t *testing.T) {
			c, err := Dial(patient(t), e.urls[scheme], Config{CertificateHashes: []string{e.hash}})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			e.expect(t, "connect")
			tower := await(t, c, "tower")
			e.set(func() { e.deaf = true }) // WebSocket: it answers no ping any more
			middle.hold(true)               // WebTransport
			if err := tower.SetAt(0, 42+i); err != nil {
				t.Fatal(err)
			}
			until(t, c, "the client notices", func() bool { return !c.carrier.status().up || c.CarrierStats().Connections > 1 })
			e.set(func() { e.deaf = false })
			middle.hold(false)
			until(t, c, "the session resumes", func() bool { return c.CarrierStats().Connections > 1 })
			if c.Err() != nil {
				t.Errorf("the client ended: %v", c.Err())
			}
			e.expect(t, "resume")
			until(t, watcher, "what was set meanwhile comes", func() bool { return other.At(0).Int() == int64(42+i) })
		})
	}
}

// TestWebStalled: a connection that takes nothing does not hold the client up.
func TestWebStalled(t *testing.T) {
	t.Parallel()
	e := startWebEdge(t, edgetest.Config{})
	c := e.connect(t, "ws", Config{BytesPerSecond: 1 << 30})
	tower := await(t, c, "tower")
	e.set(func() { e.deaf = true })
	until(t, c, "datagrams are dropped", func() bool {
		if err := c.SendUnreliable(make([]byte, 60_000)); err != nil {
			t.Error(err)
		}
		return c.CarrierStats().DroppedOut > 0
	})
	if err := tower.SetAt(0, 5); err != nil || c.Err() != nil {
		t.Errorf("a write: %v, the client: %v", err, c.Err())
	}
}

// TestWebBounds: what waits has a bound, and what is beyond is counted.
func TestWebBounds(t *testing.T) {
	w := &webCarrier{inbox: newInbox(), outward: make(chan struct{}, 1), up: true}
	for range arrivedCountMax + 7 {
		w.deliver([]byte{1})
	}
	got := 0
	if err := w.read(time.Time{}, func([]byte) { got++ }); err != nil || got != arrivedCountMax || w.status().stats.DroppedIn != 7 {
		t.Errorf("%d datagrams came, %d were dropped, %v", got, w.status().stats.DroppedIn, err)
	}
	for range arrivedBytesMax/10_000 + 3 {
		w.deliver(make([]byte, 10_000))
	}
	if w.status().stats.DroppedIn != 7+3 || len(w.inbox.arrived.data) > arrivedBytesMax {
		t.Errorf("%d bytes wait, %d datagrams were dropped", len(w.inbox.arrived.data), w.status().stats.DroppedIn)
	}
	for range leavingBytesMax/10_000 + 4 {
		w.Send(w.peer(), append(w.Datagram(10_000), make([]byte, 10_000)...))
		if err := w.flush(); err != nil {
			t.Fatal(err)
		}
	}
	if w.stats.DroppedOut != 4 || len(w.leaving.data) > leavingBytesMax {
		t.Errorf("%d bytes wait, %d datagrams were dropped", len(w.leaving.data), w.stats.DroppedOut)
	}
}

// TestRepeatable: only what the other side takes for a needless repeat is sent again after a resume.
func TestRepeatable(t *testing.T) {
	for _, x := range []struct {
		p    []byte
		want bool
	}{
		{wire.AppendConnectionRequest(nil), true},
		{wire.AppendConnectionClose(nil), false},
		{wire.AppendMessage(nil, []byte("x")), false},
		{[]byte{byte(wire.CommandReliableAck), 1, 0, byte(wire.AckSuccess)}, true},
		{[]byte{byte(wire.CommandReliableAck), 1, 0, byte(wire.AckSuccess) + 1}, false},
		{[]byte{byte(wire.CommandReliableMessage), 1, 0, 'x'}, true},
		{[]byte{byte(wire.CommandLinkUpdate), 1, 0, 0, 0}, false},
	} {
		if got := repeatable(x.p); got != x.want {
			t.Errorf("% x: %v", x.p, got)
		}
	}
}

// TestGiveUp: a client tries again for a limited time, and says what it met last.
func TestGiveUp(t *testing.T) {
	for _, x := range []struct {
		err  error
		want Reason
	}{{net.ErrClosed, Timeout}, {&closeError{1013, "full"}, Rejected}, {&refusedError{status: 503}, Rejected}, {&refusedError{status: 404}, Rejected}} {
		d := dialer{host: "edge:1", made: true}
		if err := d.pause(t.Context(), x.err); err != nil {
			t.Errorf("%v: %v, want another attempt", x.err, err)
		}
		if left := time.Until(d.until); left > outageMax || d.failures != 1 {
			t.Errorf("%v: the client tries for %v, %d failures", x.err, left, d.failures)
		}
		d.until = time.Now()
		err := d.pause(t.Context(), x.err)
		if end, ok := errors.AsType[*EndError](err); !ok || end.Reason != x.want || !errors.Is(err, x.err) {
			t.Errorf("%v: %v, want %s", x.err, err, x.want)
		}
	}
}

func TestRetryPause(t *testing.T) {
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	for _, x := range []struct {
		failures  int
		after     time.Duration
		low, high time.Duration
	}{
		{0, 0, 0, ms(50)},
		{1, 0, ms(50), ms(100)},
		{2, 0, ms(100), ms(200)},
		{5, 0, ms(800), ms(1600)},
		{9, 0, ms(7500), ms(15_000)},
		{1000, 0, ms(7500), ms(15_000)},
		{0, ms(1000), ms(1000), ms(1500)},
		{9, ms(1000), ms(7500), ms(15_000)},
	} {
		if low, high := retryPause(x.failures, x.after, 0), retryPause(x.failures, x.after, 1); low != x.low || high != x.high {
			t.Errorf("after %d failures, retry-after %v: %v to %v, want %v to %v", x.failures, x.after, low, high, x.low, x.high)
		}
	}
	for _, x := range []struct {
		err  error
		want time.Duration
	}{
		{&closeError{1012, "leaving; retry-after=250"}, ms(250)},
		{&closeError{1013, "draining"}, 0},
		{&closeError{1013, "full; retry-after=-1"}, 0},
		{&closeError{1013, "full; retry-after=4000000000"}, retryAfterMax},
		{&refusedError{503, "7"}, ms(7000)},
		{&refusedError{503, "Fri, 01 Jan 2100 00:00:00 GMT"}, 0},
		{net.ErrClosed, 0},
	} {
		if got := retryAfter(x.err); got != x.want {
			t.Errorf("%v: %v, want %v", x.err, got, x.want)
		}
	}
}
