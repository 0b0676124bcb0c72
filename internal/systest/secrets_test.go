package systest

import (
	"context"
	"crypto/ed25519"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/internal/auth"
	"github.com/dnprelay/dnprelay/subject"
)

// TestSecretsInLogs plants secrets everywhere that a node reads from: passwords of URLs, valid
// and invalid tokens, keys, and the payloads of game servers and clients. Then it searches
// everything that the processes logged, at level debug, and showed at /metrics.
func TestSecretsInLogs(t *testing.T) {
	t.Parallel()
	s, dir := secureServer(t), t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	public, err := auth.EncodePublic(tokenKey.Public().(ed25519.PublicKey))
	if err != nil {
		t.Fatal(err)
	}
	claims := auth.Claims{Client: "alice", Space: "s", Write: true, Expires: time.Now().Add(time.Hour), ID: "canary-jti"}
	token, err := auth.Issue(tokenKey, claims, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	forged, err := auth.Issue(ed25519.NewKeyFromSeed([]byte(strings.Repeat("x", 32))), claims, time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	gossipKey, httpToken := strings.Repeat("c4", 32), "canary-http-token-0123456789"
	common := []string{"--log-level", "debug", "--http", "127.0.0.1:0", "--http-token", write("http", httpToken), "--gossip-bind", "127.0.0.1:0",
		"--gossip-key-file", write("gossip", gossipKey+"\n")}
	port, https := freePorts(t, 3), []string{}
	flags := func(user string, more ...string) []string {
		all := append([]string{"serve", "--nats-url", as(s, user), "--node", user}, append(common, more...)...)
		addr := port[1+len(https)]
		https = append(https, addr)
		for i := range all {
			if all[i] == "--http" {
				all[i+1] = addr
			}
		}
		return all
	}
	nodes := []*process{
		start(t, "relay", flags("relay")...),
		start(t, "edge", flags("edge", "--auth", "token", "--token-keys", write("keys", string(public)), "--listen", "udp://"+port[0])...),
	}
	nodes[1].says("bus reached")

	game, subjects := connectAs(t, s, "publisher"), subject.Names{}
	body := []byte(`{"op":"put","key":"canary-key","message":"L","access":"read-write","values":[{"name":"v","type":"string","value":"canary-value"},{"name":"n","type":"float32","value":0}]}`)
	accepted(t, game, subjects, body)
	for _, bad := range []string{`{"op":"canary-op`, `{"op":"put","key":"canary key"}`, `{"op":"set","key":"canary-key","values":{"v":7}}`} {
		_, _ = game.Request(subjects.Publish("s", ""), []byte(bad), time.Second)
	}
	_ = game.Publish(subjects.Live("s"), []byte("canary-batch")) // the server rejects it
	from, err := game.SubscribeSync(subjects.From("s", "alice"))
	if err != nil || game.Flush() != nil {
		t.Fatal(err)
	}
	for _, first := range [][]byte{auth.AppendMessage(nil, forged), []byte("canary-login"), auth.AppendMessage(nil, token)} {
		refused := make(chan struct{}, 1)
		app := dnptest.App{Closed: func(string) { refused <- struct{}{} }}
		p := runClient(t, netip.MustParseAddrPort(port[0]), dnptest.Cpp(), app)
		eventually(t, "connected", func() bool { return phase(p) == dnptest.Connected })
		_ = p.Do(func(now time.Time, c *dnptest.Client) { _ = c.Send(now, first) })
		if string(first) != string(auth.AppendMessage(nil, token)) {
			<-refused
			continue
		}
		eventually(t, "the client is linked", func() (ok bool) {
			_ = p.Do(func(_ time.Time, c *dnptest.Client) { ok = c.LinkNamed("L") != nil })
			return ok
		})
		_ = p.Do(func(now time.Time, c *dnptest.Client) {
			_ = c.Send(now, []byte("canary-message"))
			c.Set(c.LinkNamed("L"), 0, append([]byte{12, 0}, "canary-write"...))
			c.Set(c.LinkNamed("L"), 1, []byte{0, 0, 0xc0, 0x7f})
		})
	}
	if m, err := from.NextMsg(patience); err != nil || string(m.Data) != "canary-message" {
		t.Errorf("the game server got %v, %v", m, err)
	}
	shown := ""
	for _, addr := range https {
		for _, path := range []string{"/metrics", "/readyz", "/debug/pprof/cmdline"} {
			shown += get(t, "http://"+addr+path)
		}
	}
	for _, args := range [][]string{
		{"relay", "serve", "--nats-url", "nats://u:secret-of-nobody@127.0.0.1:1", "--http", "", "--start-timeout", "1s"},
		{"relay", "serve", "--nats-url", "http://u:secret-of-nobody@127.0.0.1:1"},
		{"relay", "serve", "--nats-url", "nats://u:secret-of-no body%zz@127.0.0.1:1"},
		{"edge", "serve", "--nats-url", as(s, "edge") + "x", "--http", "", "--listen", "udp://127.0.0.1:0", "--start-timeout", "1s"},
	} {
		p := start(t, args[0], args[1:]...)
		<-p.ended
		shown += p.output.String()
	}
	for _, p := range nodes {
		p.term()
		<-p.ended
		shown += p.output.String()
	}
	for _, secret := range []string{"canary", "secret-of", gossipKey, token[:60], forged[len(forged)-40:], token[len(token)-40:]} {
		if i := strings.Index(shown, secret); i >= 0 {
			t.Errorf("a secret was written:\n%s", shown[max(0, i-200):min(len(shown), i+100)])
		}
	}
	if !strings.Contains(shown, "serving shard") {
		t.Errorf("the searched text does not have the logs of the run:\n%s", shown)
	}
}

func phase(p *dnptest.Peer) (ph dnptest.Phase) {
	_ = p.Do(func(_ time.Time, c *dnptest.Client) { ph = c.Phase() })
	return ph
}

// get returns the status and the body of a page, whatever the status.
func get(t *testing.T, url string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Body.Close()
	body, _ := io.ReadAll(a.Body)
	return a.Status + string(body)
}
