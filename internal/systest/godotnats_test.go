package systest

import (
	"bufio"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dnprelay/dnprelay/godot/variant"
	"github.com/dnprelay/dnprelay/internal/natsembed"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// scriptNATS runs a case of testdata/nats.gd with a real engine.
func scriptNATS(t *testing.T, name, addr string, env ...string) *process {
	t.Helper()
	return engine(t, "testdata/nats.gd", append([]string{"CASE=" + name, "NATS=" + strings.TrimPrefix(addr, "nats://"), "PATIENCE=60000"}, env...)...)
}

// natsClient connects a game server in Go.
func natsClient(t *testing.T, url string, options ...nats.Option) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url, options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// on has the game server hear a subject.
func on(t *testing.T, nc *nats.Conn, subject string, do func(*nats.Msg)) {
	t.Helper()
	if _, err := nc.Subscribe(subject, do); err != nil {
		t.Fatal(err)
	}
	if err := nc.Flush(); err != nil {
		t.Fatal(err)
	}
}

// answer answers with a Variant.
func answer(t *testing.T, to *nats.Msg, text string) {
	w := variant.NewWriter(variant.Godot3, nil)
	w.String(text)
	m := nats.NewMsg(to.Reply)
	m.Header.Set("Content-Type", godotContent(variant.Godot3))
	m.Data = w.Bytes()
	if err := to.RespondMsg(m); err != nil {
		t.Error(err)
	}
}

// TestGodotNATSLate answers the first of two requests when the second one comes: each gets its own answer, or none.
func TestGodotNATSLate(t *testing.T) {
	t.Parallel()
	url := startNATS(t, natsembed.Config{}).URL()
	nc := natsClient(t, url)
	var first *nats.Msg
	on(t, nc, "slow", func(m *nats.Msg) {
		if first == nil {
			first = m
			return
		}
		answer(t, first, "to the first")
		answer(t, m, "to the second")
	})
	p := scriptNATS(t, "late", url)
	p.ends(0, "first: Null", "second: to the second")
	p.clean()
}

// TestGodotNATSUnheard has a request without a listener, and one whose listener comes later.
func TestGodotNATSUnheard(t *testing.T) {
	t.Parallel()
	url := startNATS(t, natsembed.Config{}).URL()
	nc := natsClient(t, url)
	on(t, nc, "ready", func(*nats.Msg) {
		_, _ = nc.Subscribe("nobody.yet", func(m *nats.Msg) { answer(t, m, "here") })
	})
	p := scriptNATS(t, "unheard", url)
	p.ends(0, "nobody: Null no responders", "somebody: here")
	p.clean()
}

// TestGodotNATSForms sends an event in JSON, one as a Variant, and a client's message, which looks like JSON.
func TestGodotNATSForms(t *testing.T) {
	t.Parallel()
	url := startNATS(t, natsembed.Config{}).URL()
	nc := natsClient(t, url)
	on(t, nc, "ready", func(*nats.Msg) {
		_ = nc.Publish("dnp.v1.event.s", []byte(`{"type":"joined"}`))
		m := nats.NewMsg("dnp.v1.from.s.c1")
		m.Header.Set("Dnp-Session", "s1")
		m.Data = []byte(`{"x":1}`)
		_ = nc.PublishMsg(m)
		w := variant.NewWriter(variant.Godot3, nil)
		w.Floats(variant.Vector3, 1, 2, 3)
		m = nats.NewMsg("dnp.v1.event.s.godot3")
		m.Header.Set("Content-Type", godotContent(variant.Godot3))
		m.Data = w.Bytes()
		_ = nc.PublishMsg(m)
	})
	p := scriptNATS(t, "forms", url)
	p.ends(0, "dnp.v1.event.s -: {type:joined}", "dnp.v1.from.s.c1 s1: 7b2278223a317d", "dnp.v1.event.s.godot3 -: (1, 2, 3)")
	p.clean()
}

// TestGodotNATSReconnects cuts the connection of a subscriber several times.
func TestGodotNATSReconnects(t *testing.T) {
	t.Parallel()
	url := startNATS(t, natsembed.Config{}).URL()
	nc := natsClient(t, url)
	through := newPipe(t, strings.TrimPrefix(url, "nats://"))
	ready := make(chan struct{}, 1)
	on(t, nc, "ready", func(*nats.Msg) { ready <- struct{}{} })
	p := scriptNATS(t, "reconnect", through.listener.Addr().String())
	<-ready
	n := 0
	eventually(t, "the script has counted, over several connections", func() bool {
		if n%10 == 0 {
			through.cut(strings.TrimPrefix(url, "nats://"))
		}
		w := variant.NewWriter(variant.Godot3, nil)
		w.Int(int64(n))
		m := nats.NewMsg("count")
		m.Header.Set("Content-Type", godotContent(variant.Godot3))
		m.Data = w.Bytes()
		_ = nc.PublishMsg(m)
		n++
		return strings.Contains(p.output.String(), "counted")
	})
	p.ends(0)
	p.clean()
}

// runNATS runs a server with options.
func runNATS(t *testing.T, options *server.Options) string {
	t.Helper()
	options.Host, options.Port, options.NoSigs = "127.0.0.1", server.RANDOM_PORT, true
	s, err := server.NewServer(options)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() {
		s.Shutdown()
		s.WaitForShutdown()
	})
	if !s.ReadyForConnections(patience) {
		t.Fatal("the NATS server does not start")
	}
	return s.Addr().String()
}

// TestGodotNATSLogin logs in with a user, with a token, by TLS, and with a wrong password, which is final.
func TestGodotNATSLogin(t *testing.T) {
	t.Parallel()
	web := httptest.NewTLSServer(nil) // for its certificate, which is for example.com
	t.Cleanup(web.Close)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: web.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	secure := runNATS(t, &server.Options{TLSConfig: &tls.Config{Certificates: web.TLS.Certificates}, TLSTimeout: 60})
	user := runNATS(t, &server.Options{Username: "game", Password: "secret"})
	for _, c := range []struct {
		name, addr, want string
		env              []string
	}{
		{"user", user, "open: True", []string{"NATS_USER=game", "NATS_PASSWORD=secret"}},
		{"wrong", user, "Authorization Violation", []string{"NATS_USER=game", "NATS_PASSWORD=guess"}},
		{"token", runNATS(t, &server.Options{Authorization: "a token"}), "open: True", []string{"NATS_TOKEN=a token"}},
		{"tls", secure, "open: True", []string{"NATS_CA=" + ca, "NATS_NAME=example.com"}},
		{"tls of another name", secure, "open: False", []string{"NATS_CA=" + ca, "NATS_NAME=other.example", "PATIENCE=1000"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := scriptNATS(t, "", c.addr, c.env...)
			p.ends(0, c.want)
			p.clean()
		})
	}
}

// TestGodotNATSLongLine has a server whose first line is longer than what nats.gd reads at once.
func TestGodotNATSLongLine(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	served := make(chan struct{})
	t.Cleanup(func() { l.Close(); <-served })
	go func() {
		defer close(served)
		c, err := l.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		fmt.Fprintf(c, "INFO {\"connect_urls\":[%q]}\r\n", strings.Repeat("neighbour ", 2000))
		for in := bufio.NewScanner(c); in.Scan(); {
			if in.Text() == "PING" {
				fmt.Fprint(c, "PONG\r\n")
			}
		}
	}()
	p := scriptNATS(t, "", l.Addr().String())
	p.ends(0, "open: True")
	p.clean()
}
