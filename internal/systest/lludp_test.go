package systest

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/edge"
	"github.com/dnprelay/dnprelay/internal/edge/carrier"
	"github.com/dnprelay/dnprelay/internal/edge/fanout"
	"github.com/dnprelay/dnprelay/internal/edge/lludp"
	"github.com/dnprelay/dnprelay/internal/edge/lludp/viewertest"
	"github.com/dnprelay/dnprelay/internal/relay"
	lwire "github.com/dnprelay/dnprelay/lludp/wire"
)

// A grid is a stack with a listener for viewers.
type grid struct {
	*stack
	server *lludp.Server
	web    *httptest.Server
}

func newGrid(t *testing.T, change func(*lludp.Config)) *grid {
	t.Helper()
	return newGridOf(t, func(*edge.Config) {}, change)
}

// newGridOf is newGrid with another configuration of the edge.
func newGridOf(t *testing.T, changeEdge func(*edge.Config), change func(*lludp.Config)) *grid {
	t.Helper()
	s := newStackWith(t, func(_ *relay.Config, e *edge.Config) {
		e.Carriers, e.ClientStates = &edge.Carriers{Secret: []byte("secret")}, fanout.ClientStatesSpace
		changeEdge(e)
	}, local(wire.Denetwork))
	socket, err := lludp.Listen(netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	cfg := lludp.Config{
		Hub: s.edge.Hub(), Socket: socket, Region: "Lobby", Auth: "open", Log: slog.New(slog.DiscardHandler),
		Proxies: carrier.Proxies{netip.MustParsePrefix("127.0.0.1/32")},
	}
	change(&cfg)
	g := &grid{stack: s, server: lludp.New(cfg)}
	mux := http.NewServeMux()
	for pattern, h := range g.server.Routes() {
		mux.Handle(pattern, h)
	}
	g.web = httptest.NewServer(mux)
	t.Cleanup(g.web.Close)
	s.run("lludp", g.server.Run)
	return g
}

// login logs a viewer in, and returns the members of the answer.
func (g *grid) login(home string) map[string]string {
	g.Helper()
	return g.loginWith(home, "first", "Ada", "last", "Byron")
}

// loginWith is login with these members, names and values in turn.
func (g *grid) loginWith(home string, list ...string) map[string]string {
	g.Helper()
	body := `<methodCall><methodName>login_to_simulator</methodName><params><param><value><struct>`
	for i := 0; i < len(list); i += 2 {
		body += "<member><name>" + list[i] + "</name><value>" + list[i+1] + "</value></member>"
	}
	body += `</struct></value></param></params></methodCall>`
	r, err := http.NewRequestWithContext(g.ctx, http.MethodPost, g.web.URL+lludp.LoginPath, strings.NewReader(body))
	if err != nil {
		g.Fatal(err)
	}
	r.Header.Set("Content-Type", "text/xml")
	if home != "" {
		r.Header.Set("X-Forwarded-For", home)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		g.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		g.Fatalf("the login is answered with %s, %v: %s", answer.Status, err, text)
	}
	var parsed struct {
		Members []struct {
			Name  string `xml:"name"`
			Value struct {
				String string `xml:"string"`
				Int    string `xml:"int"`
			} `xml:"value"`
		} `xml:"params>param>value>struct>member"`
	}
	if err := xml.Unmarshal(text, &parsed); err != nil {
		g.Fatal(err)
	}
	members := map[string]string{}
	for _, m := range parsed.Members {
		members[m.Name] = m.Value.String + m.Value.Int
	}
	return members
}

// opening returns what a viewer says after a login.
func (g *grid) opening(members map[string]string) (o lwire.Opening) {
	g.Helper()
	if members["login"] != "true" {
		g.Fatalf("the login is refused: %q", members)
	}
	uuid := func(name string) (u lwire.UUID) {
		if copy(u[:], unhex(strings.ReplaceAll(members[name], "-", ""))) != len(u) {
			g.Fatalf("%s is %q", name, members[name])
		}
		return u
	}
	if _, err := fmt.Sscan(members["circuit_code"], &o.Code); err != nil {
		g.Fatal(err)
	}
	o.Agent, o.Session = uuid("agent_id"), uuid("session_id")
	return o
}

// dial has a viewer log in and open its circuit.
func (g *grid) dial() *viewertest.Viewer {
	g.Helper()
	v, err := viewertest.Dial(g.ctx, g.server.Addr(), g.opening(g.login("")))
	if err != nil {
		g.Fatal(err)
	}
	g.Cleanup(v.Close)
	return v
}

func (g *grid) untilViewer(v *viewertest.Viewer, why string, reached func() bool) {
	g.Helper()
	ctx, cancel := context.WithTimeout(g.ctx, patience)
	defer cancel()
	start := time.Now()
	if err := v.Until(ctx, reached); err != nil {
		g.Fatalf("%s: %v", why, err)
	}
	g.Logf("%s after %v", why, time.Since(start))
}

// counts waits until the counters of the listener are so.
func (g *grid) counts(why string, reached func(lludp.Counts) bool) {
	g.Helper()
	for end := time.Now().Add(patience); !reached(g.server.Counts()); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			g.Fatalf("%s: %+v", why, g.server.Counts())
		}
	}
}

const cratePut = `{"op":"put","key":"crate","describe":true,"access":"read-write","values":[{"name":"pos","type":"vector3f32","value":[1,2,3]}]}`

// TestViewers has two viewers see, move, speak, and see each other.
func TestViewers(t *testing.T) {
	t.Parallel()
	g := newGrid(t, func(c *lludp.Config) { c.Local = true })
	from := make(chan bus.Msg, 10)
	if _, err := g.game.Subscribe(g.subjects.From("s", "*"), func(m bus.Msg) { from <- m }); err != nil {
		t.Fatal(err)
	}
	g.publish(cratePut)
	ada, bob := g.dial(), g.dial()
	at := func(v *viewertest.Viewer, want [3]float32) func() bool {
		return func() bool {
			for _, o := range v.Objects() {
				if o.Text == "crate" && o.Position == want {
					return true
				}
			}
			return false
		}
	}
	g.untilViewer(ada, "a viewer sees the crate", at(ada, [3]float32{129, 125, 27}))
	g.untilViewer(bob, "so does another", at(bob, [3]float32{129, 125, 27}))
	var id uint32
	g.untilViewer(ada, "the crate has an id", func() bool {
		for i := range ada.Objects() {
			id = i
		}
		return true
	})
	ada.Move(id, [3]float32{130, 120, 30})
	g.untilViewer(bob, "the other sees what one moves", at(bob, [3]float32{130, 120, 30}))
	g.untilViewer(ada, "and who moved it", at(ada, [3]float32{130, 120, 30}))
	ada.Say("hello")
	m := receive(t, from, "the game server hears a viewer")
	if string(m.Data) != "hello" {
		t.Errorf("the game server hears %q", m.Data)
	}
	if err := g.game.Publish(bus.Msg{Subject: strings.Replace(m.Subject, ".from.", ".to.", 1), Data: []byte("welcome")}); err != nil {
		t.Fatal(err)
	}
	g.untilViewer(ada, "a viewer hears the game server", func() bool { return ada.Heard("welcome") })
	ada.Tell([3]float32{100, 100, 30})
	g.untilViewer(bob, "a viewer sees another", func() bool {
		for _, o := range bob.Objects() {
			if strings.HasPrefix(o.Text, "viewer Ada Byron") && o.Position == [3]float32{100, 100, 30} {
				return true
			}
		}
		return false
	})
	ada.Logout()
	g.untilViewer(ada, "the edge confirms the end", func() bool { return ada.Left() && ada.Ended() })
	g.untilViewer(bob, "and the other does not see it any more", func() bool { return len(bob.Objects()) == 1 })
}

// TestViewerCallout: with --auth callout, the game's service gets the names, the password as viewers send it, and the token, and says who
// the client is and in which space. A viewer that it refuses gets no circuit.
func TestViewerCallout(t *testing.T) {
	t.Parallel()
	g := newGridOf(t, withCallout, func(c *lludp.Config) { c.Auth = "callout" })
	const secret = "$1$5f4dcc3b5aa765d61d8327deb882cf99" // MD5 of "password"
	asked, from := make(chan string, 10), make(chan bus.Msg, 10)
	if _, err := g.game.Subscribe(g.subjects.Auth(), func(m bus.Msg) {
		var q struct{ Message []byte }
		if err := json.Unmarshal(m.Data, &q); err != nil {
			t.Error(err)
		}
		asked <- string(q.Message)
		answer := `{"error":"who?"}`
		if strings.Contains(string(q.Message), `"passwd":"`+secret+`"`) {
			answer = `{"client":"account-7","space":"s"}`
		}
		if err := g.game.Publish(bus.Msg{Subject: m.Reply, Data: []byte(answer)}); err != nil {
			t.Error(err)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := g.game.Subscribe(g.subjects.From("s", "*"), func(m bus.Msg) { from <- m }); err != nil {
		t.Fatal(err)
	}
	if err := g.game.Flush(patience); err != nil {
		t.Fatal(err)
	}
	g.publish(cratePut)

	refused := g.loginWith("", "first", "Ada", "last", "Byron", "passwd", "$1$0")
	if refused["login"] != "false" || refused["reason"] != "key" || refused["circuit_code"] != "" {
		t.Errorf("a viewer whose password the service refuses gets %v", refused)
	}
	const forged = `{"first":"Ada","last":"Byron","passwd":"$1$0","protocol":"lludp","token":""}`
	if got := receive(t, asked, "the service is asked about a wrong password"); got != forged {
		t.Errorf("the service is asked about %s, want %s", got, forged)
	}
	opening := g.opening(g.loginWith("", "first", "Ada", "last", "Byron", "passwd", secret, "token", "123456"))
	const want = `{"first":"Ada","last":"Byron","passwd":"` + secret + `","protocol":"lludp","token":"123456"}`
	if got := receive(t, asked, "the service is asked about the right password"); got != want {
		t.Errorf("the service is asked about %s, want %s", got, want)
	}
	v, err := viewertest.Dial(g.ctx, g.server.Addr(), opening)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	g.untilViewer(v, "the viewer sees the space that the service named", func() bool { return len(v.Objects()) == 1 })
	v.Say("hello")
	if m := receive(t, from, "the game server hears the viewer"); m.Subject != g.subjects.From("s", "account-7") {
		t.Errorf("the viewer speaks as %s, want as the client that the service named", m.Subject)
	}
}

// TestViewerOfThisMachine opens a circuit without a login, which is possible on loopback if clients need none.
func TestViewerOfThisMachine(t *testing.T) {
	t.Parallel()
	g := newGrid(t, func(c *lludp.Config) { c.Local = true })
	g.publish(cratePut)
	v, err := viewertest.Dial(g.ctx, g.server.Addr(), lwire.Opening{Code: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	g.untilViewer(v, "the viewer sees the crate", func() bool { return len(v.Objects()) == 1 })
}

// TestViewerCodes: a code is for one circuit, from the network of its login, for a while.
func TestViewerCodes(t *testing.T) {
	t.Parallel()
	g := newGrid(t, func(c *lludp.Config) { c.LoginLife = time.Second })
	refused := func(why string, o lwire.Opening) {
		t.Helper()
		ctx, cancel := context.WithTimeout(g.ctx, 300*time.Millisecond) // nothing is to come
		defer cancel()
		if v, err := viewertest.Dial(ctx, g.server.Addr(), o); err == nil {
			v.Close()
			t.Error(why)
		}
	}
	refused("a viewer that did not log in opens a circuit", lwire.Opening{Code: 1})
	refused("the login came from another network", g.opening(g.login("192.0.2.1")))
	o := g.opening(g.login(""))
	v, err := viewertest.Dial(g.ctx, g.server.Addr(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(v.Close)
	refused("a code opens two circuits", o)
	late := g.opening(g.login(""))
	g.counts("the logins expire", func(c lludp.Counts) bool { return c.Expired == 2 })
	refused("a login is valid for ever", late)
}

// TestForgedOpenings has others send a flood of UseCircuitCode while two viewers speak with the game server: nothing is answered, and no one
// who plays is interrupted.
func TestForgedOpenings(t *testing.T) {
	t.Parallel()
	g := newGrid(t, func(*lludp.Config) {})
	from := make(chan bus.Msg, 10)
	if _, err := g.game.Subscribe(g.subjects.From("s", "*"), func(m bus.Msg) { from <- m }); err != nil {
		t.Fatal(err)
	}
	g.publish(cratePut)
	viewers := []*viewertest.Viewer{g.dial(), g.dial()}
	for _, v := range viewers {
		g.untilViewer(v, "the viewer sees the crate", func() bool { return len(v.Objects()) == 1 })
	}
	forger, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(g.server.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	defer forger.Close()
	const forged = 10_000
	for i := range forged {
		o := lwire.Opening{Code: uint32(i)}
		binary.BigEndian.PutUint32(o.Agent[:], uint32(i))
		p := lwire.Packet{Flags: lwire.FlagReliable, Seq: lwire.Seq(i), Number: lwire.UseCircuitCode, Body: o.Append(nil)}
		if _, err := forger.Write(p.Append(nil)); err != nil {
			t.Fatal(err)
		}
		if i%1000 != 0 {
			continue
		}
		for n, v := range viewers {
			text := fmt.Sprint("hello ", i, n)
			v.Say(text)
			m := receive(t, from, "the game server hears a viewer during the flood")
			if string(m.Data) != text {
				t.Fatalf("the game server hears %q, want %q", m.Data, text)
			}
			if err := g.game.Publish(bus.Msg{Subject: strings.Replace(m.Subject, ".from.", ".to.", 1), Data: m.Data}); err != nil {
				t.Fatal(err)
			}
			g.untilViewer(v, "a viewer hears the game server during the flood", func() bool { return v.Heard(text) || v.Ended() })
		}
	}
	for _, v := range viewers {
		g.untilViewer(v, "no circuit ended", func() bool { return !v.Ended() })
	}
	g.counts("the forgeries are counted, but for those that the kernel dropped", func(c lludp.Counts) bool { return c.Ignored > forged/10 })
	if err := forger.SetReadDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	if n, err := forger.Read(make([]byte, 2000)); err == nil {
		t.Errorf("a forger gets %d bytes", n)
	}
}

// TestViewersWhenTheEdgeEnds: viewers are told, and do not have to wait for a time out.
func TestViewersWhenTheEdgeEnds(t *testing.T) {
	t.Parallel()
	g := newGrid(t, func(*lludp.Config) {})
	v := g.dial()
	g.edge.Hub().Close()
	g.untilViewer(v, "the circuit ends with the session", v.Ended)
}
