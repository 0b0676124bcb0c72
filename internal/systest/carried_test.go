package systest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/dnprelay/dnprelay/internal/edge/carrier"
)

// carriedAlone returns a world in which nothing fails, with players that come by a carrier.
func carriedAlone(t *testing.T) *takeoverWorld {
	return newTakeoverWorldOf(t, 1, takeoverPlan{name: "carried", carried: true})
}

// TestCarriedForged: what comes by UDP in the name of a carried client changes nothing.
func TestCarriedForged(t *testing.T) {
	w := carriedAlone(t)
	p := w.players[0]
	p.begin()
	count := func() (n uint64) {
		for _, e := range w.edges {
			for _, k := range e.workers {
				n += k.worker.Counts().Impostors
			}
		}
		return n
	}
	for _, forged := range [][]byte{{0x02}, {0x00, 1, 0, 0, 0}, {0x08, 0, 0x80}, {0x06, 0, 0, 0}, {0x04, 1, 0, 'x'}} {
		for _, e := range w.edges {
			e.receive(p.addr, forged)
		}
	}
	w.net.Run(10 * time.Second)
	if n := count(); n != 15 {
		t.Errorf("%d forged datagrams were dropped, want 15", n)
	}
	w.healed = true
	w.net.Run(time.Second)
	if p.frozen || p.consumed != p.said || p.said == 0 {
		t.Errorf("the game got %d of %d messages of the client", p.consumed, p.said)
	}
	for _, e := range w.errors {
		t.Error(e)
	}
}

// TestCarriedUnknown: a client that goes on with a session which no edge has is told so. Its session is durable.
func TestCarriedUnknown(t *testing.T) {
	w := carriedAlone(t)
	p := w.players[0]
	p.frozen = true
	p.Close(w.net.Now())
	w.net.Wake(p.addr)
	w.within(takeoverFarewell, "the session has ended", func() bool { return w.fence.of(p.log()).ended && p.wire.last == carrier.Over })
	w.within(5*time.Second, "the client is connected again", func() bool { return p.wire.now != nil })
	p.wire.send([]byte{0x06, 0, 0, 0})
	w.within(5*time.Second, "the client is told that no edge has its session", func() bool { return p.wire.last == carrier.Unknown })
}

// TestTokenIsNotLogged has a client resume, and go on with a session that is over, and looks for its token in all that the edge says.
func TestTokenIsNotLogged(t *testing.T) {
	t.Parallel()
	ports := freePorts(t, 2)
	p := start(t, "relay", "dev", "--listen", "udp://127.0.0.1:0", "--nats-listen", "127.0.0.1:0", "--http", ports[0], "--log-level", "debug", "--log-addresses", "full",
		"--websocket", ports[1], "--webtransport", "", "--variant", "")
	p.says("web clients")
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	connect := func(token string) (*websocket.Conn, string) {
		offer := []string{"dnp.v1"}
		if token != "" {
			offer = append(offer, "dnp.resume."+token)
		}
		c, _, err := websocket.Dial(ctx, "ws://"+ports[1]+"/dnp", &websocket.DialOptions{Subprotocols: offer})
		if err != nil {
			t.Fatal(err)
		}
		var greeting struct {
			Token   string
			Resumed bool
		}
		_, text, err := c.Read(ctx)
		if err == nil {
			err = json.Unmarshal(text, &greeting)
		}
		if err != nil || greeting.Resumed != (token != "") {
			t.Fatalf("the edge greets with %s, %v", text, err)
		}
		return c, greeting.Token
	}
	send := func(c *websocket.Conn, d ...byte) {
		if err := c.Write(ctx, websocket.MessageBinary, d); err != nil {
			t.Fatal(err)
		}
	}
	first, token := connect("")
	send(first, 0, 1, 0, 0, 0)
	if _, answer, err := first.Read(ctx); err != nil || answer[0] != 1 {
		t.Fatalf("the edge answers the request with % x, %v", answer, err)
	}
	if err := first.CloseNow(); err != nil {
		t.Fatal(err)
	}
	second, _ := connect(token)
	send(second, 2)
	if code, reason := readToEnd(ctx, second); code != 1000 || reason != "over" {
		t.Errorf("after the end of its session, the connection is closed with %d %q", code, reason)
	}
	third, _ := connect(token)
	send(third, 6, 0, 0, 0)
	if code, reason := readToEnd(ctx, third); code != 4000 || reason != "unknown" {
		t.Errorf("a client that goes on with a session that is over is told %d %q", code, reason)
	}
	answer, err := http.Get("http://" + ports[0] + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	metrics, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range []string{p.output.String(), string(metrics)} {
		if len(text) == 0 || strings.Contains(text, token) || strings.Contains(text, token[:16]) {
			t.Errorf("a token is in %q", text)
		}
	}
}

// readToEnd reads until the edge closes a connection, and returns how.
func readToEnd(ctx context.Context, c *websocket.Conn) (code int, reason string) {
	for {
		_, _, err := c.Read(ctx)
		if err == nil {
			continue
		}
		var closed websocket.CloseError
		if !errors.As(err, &closed) {
			return 0, fmt.Sprint(err)
		}
		return int(closed.Code), closed.Reason
	}
}
