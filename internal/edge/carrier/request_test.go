package carrier_test

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/netip"
	"strings"
	"testing"

	"github.com/dnprelay/dnprelay/internal/edge/carrier"
	"github.com/dnprelay/dnprelay/internal/edge/carrier/carriertest"
)

func TestOrigins(t *testing.T) {
	for _, c := range []struct {
		allowed carrier.Origins
		origin  string
		want    bool
	}{
		{nil, "", true}, // no browser
		{nil, "https://edge.example", true},
		{nil, "http://edge.example:8080", true}, // another port of the same host
		{nil, "http://localhost:5173", true},
		{nil, "http://127.0.0.1", true},
		{nil, "http://[::1]:80", true},
		{nil, "https://game.example", false},
		{nil, "https://edge.example.evil.example", false},
		{nil, "null", false}, // a page without origin, such as a sandboxed frame
		{nil, "://", false},
		{carrier.Origins{"https://game.example"}, "https://game.example", true},
		{carrier.Origins{"https://game.example"}, "http://game.example", false},
		{carrier.Origins{"https://game.example"}, "https://game.example:444", false},
		{carrier.Origins{"*"}, "https://game.example", true},
		{carrier.Origins{"*"}, "null", true},
	} {
		r := &http.Request{Host: "edge.example:3480", Header: http.Header{}}
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		if got := c.allowed.Allow(r); got != c.want {
			t.Errorf("%v allow %q: %v, want %v", c.allowed, c.origin, got, c.want)
		}
	}
}

func TestProxies(t *testing.T) {
	trusted := carrier.Proxies{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("fd00::/8")}
	for _, c := range []struct{ name, remote, forwarded, want string }{
		{"no proxy", "192.0.2.1:99", "", "192.0.2.1"},
		{"a client that claims another address", "192.0.2.1:99", "198.51.100.1", "192.0.2.1"},
		{"proxy", "10.1.2.3:99", "198.51.100.1", "198.51.100.1"},
		{"IPv4 of a socket for both", "[::ffff:10.1.2.3]:99", "198.51.100.1", "198.51.100.1"},
		{"proxy of IPv6", "[fd00::1]:99", "2001:db8::7", "2001:db8::7"},
		{"two proxies", "10.1.2.3:99", "198.51.100.1, 10.9.9.9", "198.51.100.1"},
		{"a claim before the proxy", "10.1.2.3:99", "203.0.113.5, 198.51.100.1", "198.51.100.1"},
		{"proxy that says nothing", "10.1.2.3:99", "", "10.1.2.3"},
		{"proxy that says nonsense", "10.1.2.3:99", "unknown", "10.1.2.3"},
		{"only proxies", "10.1.2.3:99", "10.1.2.4", "10.1.2.4"},
		{"no address", "@", "198.51.100.1", "::"},
	} {
		r := &http.Request{RemoteAddr: c.remote, Header: http.Header{}}
		for _, hop := range strings.Split(c.forwarded, ", ") { // a header line each, which means the same
			r.Header.Add("X-Forwarded-For", hop)
		}
		if got := trusted.Home(r); got != netip.MustParseAddr(c.want) {
			t.Errorf("%s: the client comes from %v, want %v", c.name, got, c.want)
		}
	}
}

func TestTokens(t *testing.T) {
	mine, other := carrier.NewTokens([]byte("secret"), rand.Text), carrier.NewTokens([]byte("another"), rand.Text)
	token := mine.New(carrier.WebSocket)
	if len(token) != carrier.TokenSize || token != strings.ToLower(token) {
		t.Errorf("the token %q is not %d digits of lower-case hex", token, carrier.TokenSize)
	}
	for _, c := range []struct {
		name  string
		token string
		kind  carrier.Kind
		by    carrier.Tokens
		want  bool
	}{
		{"its own", token, carrier.WebSocket, mine, true},
		{"by another edge of the deployment", token, carrier.WebSocket, carrier.NewTokens([]byte("secret"), rand.Text), true},
		{"of another deployment", token, carrier.WebSocket, other, false},
		{"of another kind of connection", token, carrier.WebTransport, mine, false},
		{"none", "", carrier.WebSocket, mine, false},
		{"cut", token[:62], carrier.WebSocket, mine, false},
		{"longer", token + "00", carrier.WebSocket, mine, false},
		{"changed", flip(token), carrier.WebSocket, mine, false},
		{"no hex", strings.Repeat("g", 64), carrier.WebSocket, mine, false},
		{"in capitals", strings.ToUpper(token), carrier.WebSocket, mine, false}, // another address, without admission
		{"guessed", strings.Repeat("1", 64), carrier.WebSocket, mine, false},
	} {
		if got := c.by.Valid(c.kind, c.token); got != c.want {
			t.Errorf("token %s: valid %v, want %v", c.name, got, c.want)
		}
	}
	if mine.New(carrier.WebSocket) == token {
		t.Error("two clients got the same token")
	}
}

// flip changes the first digit of a token.
func flip(token string) string {
	if token[0] == '0' {
		return "1" + token[1:]
	}
	return "0" + token[1:]
}

func TestAddresses(t *testing.T) {
	mine := carrier.NewTokens([]byte("secret"), rand.Text)
	token := mine.New(carrier.WebSocket)
	a := mine.Address(carrier.WebSocket, token)
	if a != carrier.NewTokens([]byte("secret"), rand.Text).Address(carrier.WebSocket, token) {
		t.Error("two edges of a deployment have different addresses for a client")
	}
	if a == mine.Address(carrier.WebSocket, mine.New(carrier.WebSocket)) || a == mine.Address(carrier.WebTransport, token) {
		t.Error("two clients have the same address")
	}
	if !carrier.Carried(a.Addr()) || carrier.Carried(home) || carrier.Carried(netip.MustParseAddr("fd9c:3b1e:60d8::1")) {
		t.Error("carried addresses are not told from others")
	}
}

func TestGreeting(t *testing.T) {
	e := carriertest.New(t, nil)
	known := e.Tokens.New(carrier.WebSocket)
	for _, c := range []struct {
		token   string
		resumed bool
	}{{"", false}, {strings.Repeat("0", 64), false}, {known, true}} {
		seat, _, _ := e.Reserve(carrier.WebSocket, home, c.token)
		var g struct {
			Token   string
			Resumed *bool
		}
		text := seat.Greeting()
		if err := json.Unmarshal(text, &g); err != nil || g.Resumed == nil || len(text) > 256 {
			t.Fatalf("the greeting is %q: %v", text, err)
		}
		if *g.Resumed != c.resumed || c.resumed && g.Token != c.token || !e.Tokens.Valid(carrier.WebSocket, g.Token) {
			t.Errorf("the greeting for token %.4q is %q", c.token, text)
		}
	}
}

func TestReasons(t *testing.T) {
	for r, want := range map[carrier.Reason]struct {
		code  uint16
		text  string
		retry int
	}{
		carrier.Over:      {1000, "over", 0},
		carrier.Leaving:   {1012, "leaving; retry-after=0", 0},
		carrier.Unknown:   {4000, "unknown", 0},
		carrier.Replaced:  {4001, "replaced", 0},
		carrier.Full:      {1013, "full; retry-after=1000", 1},
		carrier.NotReady:  {1013, "not ready; retry-after=250", 1}, // whole seconds, and not at once
		carrier.TooLong:   {1009, "too long", 0},
		carrier.Malformed: {1003, "malformed", 0},
	} {
		if r.Code() != want.code || r.Text() != want.text || r.RetryAfter() != want.retry {
			t.Errorf("%v: %d %q %d, want %+v", r, r.Code(), r.Text(), r.RetryAfter(), want)
		}
	}
	for r := range carrier.NumReasons {
		if len(carrier.Reason(r).Text()) > 123 {
			t.Errorf("the text of %v does not fit into a close frame", carrier.Reason(r))
		}
	}
}
