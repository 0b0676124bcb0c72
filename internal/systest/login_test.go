package systest

import (
	"crypto/ed25519"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/auth"
	"github.com/dnprelay/dnprelay/internal/edge"
	"github.com/dnprelay/dnprelay/internal/edge/login"
	"github.com/dnprelay/dnprelay/internal/simnet"
)

type claims = auth.Claims

var tokenKey = ed25519.NewKeyFromSeed([]byte(strings.Repeat("k", 32)))

// withTokens makes an edge admit clients with a token.
func (w *world) withTokens(c *edge.Config) {
	w.Helper()
	text, err := auth.EncodePublic(tokenKey.Public().(ed25519.PublicKey))
	if err != nil {
		w.Fatal(err)
	}
	c.Auth, c.TokenKeys, c.OpenSpace = login.AuthToken, filepath.Join(w.TempDir(), "keys"), ""
	if err := os.WriteFile(c.TokenKeys, text, 0o600); err != nil {
		w.Fatal(err)
	}
}

// token returns a login message for space s. It is valid for ten minutes, unless change says
// otherwise.
func (w *world) token(client string, change func(c *auth.Claims)) []byte {
	w.Helper()
	w.ids++
	c := auth.Claims{Client: client, Space: "s", Write: true, Expires: w.net.Now().Add(10 * time.Minute), ID: fmt.Sprint(w.ids)}
	if change != nil {
		change(&c)
	}
	token, err := auth.Issue(tokenKey, c, time.Time{})
	if err != nil {
		w.Fatal(err)
	}
	return auth.AppendMessage(nil, token)
}

// login connects a client from an address. The client sends a message first.
func (w *world) login(e *simEdge, from string, b dnptest.Behaviour, message []byte) *player {
	w.Helper()
	p := &player{world: w, addr: netip.MustParseAddrPort(from)}
	p.Client = dnptest.NewClient(dnptest.Config{
		Behaviour: b, Server: e.addr, Send: func(d []byte) { w.net.Send(p.addr, e.addr, d) },
		App: dnptest.App{Connected: func() {
			if err := p.Send(w.net.Now(), message); err != nil {
				w.Error(err)
			}
		}},
	})
	w.net.Attach(p.addr, p.Client)
	p.Connect(w.net.Now())
	w.net.Wake(p.addr)
	return p
}

const (
	flagPut = `{"op":"put","key":"flag","message":"F","audience":{"groups":["red"]},"values":[{"name":"v","type":"uint16","value":3}]}`
	doorPut = `{"op":"put","key":"door","message":"D","access":"read-write","values":[{"name":"v","type":"uint16","value":1}]}`
)

// TestToken admits two clients with the same states before them and different rights.
func TestToken(t *testing.T) {
	w := newWorld(t, *seed)
	w.startRelay()
	e := w.startEdge(wire.Denetwork, w.withTokens)
	w.mustPublish("s", flagPut)
	w.mustPublish("s", doorPut)
	var from []string
	w.on(w.subjects.From("s", "*"), func(m bus.Msg) { from = append(from, string(m.Data)) })
	red := w.login(e, "10.1.0.1:5000", dnptest.Cpp(), w.token("red", func(c *auth.Claims) { c.Groups = []string{"red"} }))
	guest := w.login(e, "10.1.0.2:5000", dnptest.Python(), w.token("guest", func(c *auth.Claims) { c.Write = false }))
	w.within(3*time.Second, "both see the door", func() bool { return red.has("D", 0, u16(1)) && guest.has("D", 0, u16(1)) })
	w.within(3*time.Second, "the groups of the token are the client's groups", func() bool { return red.has("F", 0, u16(3)) })
	if guest.LinkNamed("F") != nil {
		t.Error("a client without the group sees its state")
	}
	if !guest.LinkNamed("D").ReadOnly || red.LinkNamed("D").ReadOnly {
		t.Error("write:false makes every link read-only, and only then")
	}
	e.forge(guest.addr, "09 01 0080 01 0000 0900", "09 01 0180 01 0000 0900") // it writes all the same, under either LinkID
	guest.offer("avatar", 5)
	red.do(func(time.Time) { red.Set(red.LinkNamed("D"), 0, u16(2)) })
	w.within(3*time.Second, "a client that may write does", func() bool { return guest.has("D", 0, u16(2)) })
	w.net.Run(2 * time.Second)
	if !guest.has("D", 0, u16(2)) || !red.has("D", 0, u16(2)) || guest.LinkNamed("avatar").Phase == dnptest.LinkIsUp {
		t.Error("a client that may not write wrote, or made a state")
	}
	if len(from) > 0 {
		t.Errorf("game servers got logins: %q", from)
	}
	if names := fmt.Sprint(w.joined()); names != "[red guest]" && names != "[guest red]" {
		t.Errorf("joined: %s", names)
	}
}

// forge sends datagrams from a foreign address.
func (s *simEdge) forge(from netip.AddrPort, datagrams ...string) {
	for _, d := range datagrams {
		s.world.net.Send(from, s.addr, unhex(d))
	}
}

// TestTokenRefused checks that game servers hear nothing of a client that may not join.
func TestTokenRefused(t *testing.T) {
	w := newWorld(t, *seed)
	w.startRelay()
	e := w.startEdge(wire.Denetwork, w.withTokens)
	w.mustPublish("s", doorPut)
	good := w.token("alice", nil)
	for i, c := range []struct {
		why     string
		message []byte
	}{
		{"no token", []byte("hello, edge")},
		{"expired", w.token("alice", func(c *auth.Claims) { c.Expires = w.net.Now() })},
		{"too long", w.token("alice", func(c *auth.Claims) { c.Expires = w.net.Now().Add(25 * time.Hour) })},
		{"a reserved space", w.token("alice", func(c *auth.Claims) { c.Space = "_s" })},
		{"changed", append(good[:len(good)-6:len(good)-6], "AAAAAA"...)},
	} {
		p := w.login(e, fmt.Sprintf("10.2.0.%d:1", i+1), dnptest.Cpp(), c.message)
		w.within(2*time.Second, c.why+": the client is rejected when it has proved its address", func() bool { return p.Phase() == dnptest.Closed })
	}
	short := w.login(e, "10.2.0.9:1", dnptest.Cpp(), []byte("hello"))
	w.within(4*time.Second, "a greeting would be longer: the client gives up by itself", func() bool { return short.Phase() == dnptest.Closed })
	w.net.Run(time.Second)
	if len(w.joined()) > 0 || e.worker.Counts().Sessions != 0 {
		t.Errorf("joined: %v", w.joined())
	}
}

// TestTokenOnce checks that a token belongs to the client that used it first, and that a client
// is connected once.
func TestTokenOnce(t *testing.T) {
	w := newWorld(t, *seed)
	w.startRelay()
	e, other := w.startEdge(wire.Denetwork, w.withTokens), w.startEdge(wire.Denetwork, w.withTokens)
	w.mustPublish("s", doorPut)
	token := w.token("alice", nil)
	first := w.login(e, "10.1.0.1:5000", dnptest.Cpp(), token)
	w.within(3*time.Second, "alice is in", func() bool { return first.has("D", 0, u16(1)) })
	thief := w.login(e, "10.1.0.2:5000", dnptest.Cpp(), token)
	w.within(3*time.Second, "a client with the stolen token is not", func() bool { return thief.Phase() == dnptest.Closed })
	w.net.Run(3 * time.Second)
	again := w.login(e, "10.1.0.1:5001", dnptest.Cpp(), token)
	w.within(3*time.Second, "alice returns with it", func() bool { return again.has("D", 0, u16(1)) })
	w.within(3*time.Second, "and is connected once", func() bool { return first.Phase() == dnptest.Closed })
	w.net.Run(3 * time.Second)
	elsewhere := w.login(other, "10.1.0.9:5000", dnptest.Cpp(), w.token("alice", nil))
	w.within(3*time.Second, "with another token at another edge", func() bool { return elsewhere.has("D", 0, u16(1)) })
	w.within(3*time.Second, "the same holds", func() bool { return again.Phase() == dnptest.Closed })
	w.net.Run(5 * time.Second)
	if elsewhere.Phase() != dnptest.Connected {
		t.Errorf("the newest session is %v", elsewhere.Phase())
	}
	var reasons []string
	for _, ev := range w.events {
		if ev.Type == "left" {
			reasons = append(reasons, ev.Reason)
		}
	}
	if fmt.Sprint(reasons) != "[replaced replaced]" {
		t.Errorf("the clients left with reasons %v, want replaced twice", reasons)
	}
}

// TestTokenTwice connects a client to two edges at the same moment. One session stays.
func TestTokenTwice(t *testing.T) {
	w := newWorld(t, *seed)
	w.startRelay()
	e, other := w.startEdge(wire.Denetwork, w.withTokens), w.startEdge(wire.Denetwork, w.withTokens)
	w.mustPublish("s", doorPut)
	w.net.Run(time.Second)
	a := w.login(e, "10.1.0.1:5000", dnptest.Cpp(), w.token("alice", nil))
	b := w.login(other, "10.1.0.1:5001", dnptest.Cpp(), w.token("alice", nil))
	w.net.Run(10 * time.Second)
	if (a.Phase() == dnptest.Connected) == (b.Phase() == dnptest.Connected) {
		t.Errorf("the sessions are %v and %v, want exactly one connected", a.Phase(), b.Phase())
	}
}

// TestTokenExpires checks that a session ends when its token expires.
func TestTokenExpires(t *testing.T) {
	w := newWorld(t, *seed)
	w.startRelay()
	e := w.startEdge(wire.Denetwork, w.withTokens)
	w.mustPublish("s", doorPut)
	short := w.login(e, "10.1.0.1:1", dnptest.Cpp(), w.token("short", func(c *auth.Claims) { c.Expires = w.net.Now().Add(time.Minute) }))
	long := w.login(e, "10.1.0.2:1", dnptest.Cpp(), w.token("long", nil))
	w.net.Run(59 * time.Second)
	if !short.has("D", 0, u16(1)) || !long.has("D", 0, u16(1)) {
		t.Fatal("a client left before its token expired")
	}
	w.within(2*time.Second, "the short token expires", func() bool { return short.Phase() == dnptest.Closed })
	w.within(10*time.Minute, "the long token expires", func() bool { return long.Phase() == dnptest.Closed })
	if last := w.events[len(w.events)-1]; last.Type != "left" || last.Reason != "expired" {
		t.Errorf("the last event is %+v", last)
	}
}

// TestTokenGroupsSurvive kills the relay right after a login.
func TestTokenGroupsSurvive(t *testing.T) {
	w := newWorld(t, *seed)
	r := w.startRelay()
	e := w.startEdge(wire.Denetwork, w.withTokens)
	w.mustPublish("s", flagPut)
	red := w.login(e, "10.1.0.1:5000", dnptest.Cpp(), w.token("red", func(c *auth.Claims) { c.Groups = []string{"red"} }))
	w.within(3*time.Second, "the client is in its group", func() bool { return red.has("F", 0, u16(3)) })
	r.kill()
	w.startRelay()
	w.mustPublish("s", flagPut)
	w.mustPublish("s", `{"op":"set","key":"flag","values":{"v":4}}`)
	w.within(15*time.Second, "the next holder, which knew nothing, has it in the group, too", func() bool { return red.has("F", 0, u16(4)) })
}

// A door is the game's own service that identifies clients.
type door struct {
	asked []string
	say   func(message string) string // the answer; "" for none
}

func (w *world) withDoor(say func(message string) string) *door {
	d := &door{say: say}
	w.on(w.subjects.Auth(), func(m bus.Msg) {
		var q struct {
			Address, Edge string
			Message       []byte
		}
		if err := json.Unmarshal(m.Data, &q); err != nil || q.Edge == "" {
			w.Fatalf("asked %s: %v", m.Data, err)
		}
		d.asked = append(d.asked, q.Address+" "+string(q.Message))
		if a := d.say(string(q.Message)); a != "" {
			_ = w.game.Publish(bus.Msg{Subject: m.Reply, Data: []byte(a)})
		}
	})
	return d
}

func withCallout(c *edge.Config) { c.Auth, c.OpenSpace = login.AuthCallout, "" }

func TestCallout(t *testing.T) {
	w, e := newWorldWithEdge(t, withCallout)
	w.mustPublish("s", flagPut)
	w.mustPublish("s", doorPut)
	slow := false
	d := w.withDoor(func(message string) string {
		switch {
		case message == "alice's ticket":
			return fmt.Sprintf(`{"client":"alice","space":"s","groups":["red"],"exp":%d}`, w.net.Now().Unix()+60)
		case message == "slow" && !slow:
			slow = true
			return ""
		case message == "slow":
			return `{"client":"slow","space":"s","write":false}`
		case message == "odd name":
			return `{"client":"a.b","space":"s"}`
		}
		return `{"error":"no ticket"}`
	})
	alice := w.login(e, "10.1.0.1:1", dnptest.Cpp(), []byte("alice's ticket"))
	w.within(3*time.Second, "the service admits alice", func() bool { return alice.has("D", 0, u16(1)) && alice.has("F", 0, u16(3)) })
	if len(d.asked) != 1 || d.asked[0] != "10.1.0.1:1 alice's ticket" {
		t.Errorf("asked %q", d.asked)
	}
	bob := w.login(e, "10.1.0.2:1", dnptest.Cpp(), []byte("please let me in"))
	w.within(3*time.Second, "but not bob", func() bool { return bob.Phase() == dnptest.Closed })
	bob = w.login(e, "10.1.0.2:2", dnptest.Cpp(), []byte("please let me in"))
	w.within(3*time.Second, "not when bob tries again either", func() bool { return bob.Phase() == dnptest.Closed })
	if len(d.asked) != 2 {
		t.Errorf("asked %q, want two questions: the refusal is remembered for 5 s", d.asked)
	}
	odd := w.login(e, "10.1.0.3:1", dnptest.Cpp(), []byte("odd name"))
	w.within(3*time.Second, "an invalid name is a refusal", func() bool { return odd.Phase() == dnptest.Closed })
	patient := w.login(e, "10.1.0.4:1", dnptest.Cpp(), []byte("slow"))
	w.within(5*time.Second, "an unanswered question is asked again", func() bool { return patient.has("D", 0, u16(1)) })
	if c := e.worker.Counts(); c.Logins[auth.NoService] != 1 || c.Logins[auth.Refused] < 2 || c.Logins[auth.BadClaims] != 1 {
		t.Errorf("counted %v", c.Logins)
	}
	w.within(61*time.Second, "alice's session expires", func() bool { return alice.Phase() == dnptest.Closed })
}

// TestCalloutFlood sends more logins than may wait to an edge whose service is silent.
func TestCalloutFlood(t *testing.T) {
	w := newWorld(t, *seed)
	w.startRelay()
	e := w.startEdge(wire.Denetwork, func(c *edge.Config) {
		withCallout(c)
		c.Admission.LoginRate = -1 // a limit would leave fewer
	})
	w.mustPublish("s", doorPut)
	d := w.withDoor(func(string) string { return "" })
	for i := range 2000 {
		from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 9, byte(i >> 8), byte(i)}), 1)
		e.forge(from, "0001000000", "04 0000 6162636465")
	}
	w.net.Run(500 * time.Millisecond)
	if len(d.asked) == 0 || len(d.asked) > 256 {
		t.Errorf("the service was asked %d times, want at most 256 at a time", len(d.asked))
	}
	d.say = func(string) string { return `{"client":"late","space":"s"}` }
	w.net.Run(3 * time.Second)
	p := w.login(e, "10.1.0.1:1", dnptest.Cpp(), []byte("now"))
	w.within(5*time.Second, "there is room again later", func() bool { return p.has("D", 0, u16(1)) })
}

// silent connects a client that sends no login.
func (w *world) silent(e *simEdge, from string, b dnptest.Behaviour) *player {
	w.Helper()
	p := &player{world: w, addr: netip.MustParseAddrPort(from)}
	p.Client = dnptest.NewClient(dnptest.Config{Behaviour: b, Server: e.addr, Send: func(d []byte) { w.net.Send(p.addr, e.addr, d) }})
	w.net.Attach(p.addr, p.Client)
	p.Connect(w.net.Now())
	w.net.Wake(p.addr)
	return p
}

// TestLoginTimeout: clients of all libraries that connect and send no login are told, 5 s later. One
// that takes its time logs in.
func TestLoginTimeout(t *testing.T) {
	for _, durable := range []bool{false, true} {
		t.Run(fmt.Sprint("durable=", durable), func(t *testing.T) {
			w := newFloodWorld(t, false, durable)
			loginTimeout(w.world, w.e)
		})
	}
}

func loginTimeout(w *world, e *simEdge) {
	t := w.T
	var silent []*player
	for i, b := range []dnptest.Behaviour{dnptest.Cpp(), dnptest.Java(), dnptest.Python(), dnptest.Engine()} {
		silent = append(silent, w.silent(e, fmt.Sprintf("10.1.0.%d:1", i+1), b))
	}
	late := w.silent(e, "10.1.0.9:1", dnptest.Cpp())
	w.net.Run(4200 * time.Millisecond)
	late.do(func(now time.Time) {
		if err := late.Send(now, w.token("late", nil)); err != nil {
			t.Error(err)
		}
	})
	w.net.Run(700 * time.Millisecond)
	for _, p := range silent {
		if p.Phase() != dnptest.Connected {
			t.Errorf("%s is %v before its time is over", p.Behaviour().Name, p.Phase())
		}
	}
	w.net.Run(time.Second)
	for _, p := range silent {
		if p.Phase() != dnptest.Closed {
			t.Errorf("%s is %v, want closed", p.Behaviour().Name, p.Phase())
		}
	}
	w.within(3*time.Second, "the late one sees the door", func() bool { return late.has("D", 0, u16(1)) })
	w.net.Run(20 * time.Second)
	if late.Phase() != dnptest.Connected || fmt.Sprint(w.joined()) != "[late]" {
		t.Errorf("the late one is %v, joined: %v", late.Phase(), w.joined())
	}
}

// TestSilentIsLogged: the edge says that it closed the connection of a client that sent no login.
func TestSilentIsLogged(t *testing.T) {
	w := newWorld(t, *seed)
	w.startRelay()
	var text strings.Builder
	e := w.startEdge(wire.Denetwork, func(c *edge.Config) {
		w.withTokens(c)
		c.Log = slog.New(slog.NewTextHandler(&text, nil))
	})
	w.silent(e, "10.1.0.1:1", dnptest.Cpp())
	w.net.Run(10 * time.Second)
	if want := `msg="closing connections that sent no login in time" connections=1`; !strings.Contains(text.String(), want) {
		t.Errorf("the log has %s, want %s", text.String(), want)
	}
}

// TestRequestOfAnother: a request that a stranger makes at another edge, in the name of a client that
// plays, does not end the client's session.
func TestRequestOfAnother(t *testing.T) {
	w := newWorld(t, *seed)
	w.startRelay()
	e, other := w.startEdge(wire.Denetwork, w.withTokens), w.startEdge(wire.Denetwork, w.withTokens)
	w.mustPublish("s", doorPut)
	p := w.login(e, "10.1.0.1:1", dnptest.Cpp(), w.token("alice", nil))
	w.within(3*time.Second, "the client plays", func() bool { return p.has("D", 0, u16(1)) })
	other.forge(p.addr, "00 0100 0000")
	w.net.Run(10 * time.Second)
	if p.Phase() != dnptest.Connected || w.count("left") > 0 {
		t.Errorf("the client is %v, and %d left", p.Phase(), w.count("left"))
	}
}

// TestLoginBadPath: where 30 % of the datagrams get lost each way, clients log in before the edge
// loses its patience, or their libraries give up first, 3 s after they sent the login.
func TestLoginBadPath(t *testing.T) {
	const players = 200
	w := newWorld(t, *seed)
	w.startRelay()
	e := w.startEdge(wire.Denetwork, w.withTokens)
	w.mustPublish("s", doorPut)
	w.net.SetPath(simnet.Path{Loss: 0.3, Delay: 40 * time.Millisecond, Jitter: 10 * time.Millisecond})
	behaviours := []dnptest.Behaviour{dnptest.Cpp(), dnptest.Java(), dnptest.Python()}
	connected, loggedIn, slowest := 0, 0, time.Duration(0)
	for i := range players {
		p := w.login(e, fmt.Sprintf("10.1.%d.1:1", i), behaviours[i%3], w.token(fmt.Sprint("c", i), nil))
		w.net.RunUntil(6*time.Second, func() bool { return p.Phase() != dnptest.Connecting })
		if p.Phase() != dnptest.Connected {
			continue // none of its requests was answered
		}
		connected++
		known, began := len(w.joined()), w.net.Elapsed()
		w.net.RunUntil(12*time.Second, func() bool { return p.Phase() == dnptest.Closed || len(w.joined()) > known })
		if took := w.net.Elapsed() - began; len(w.joined()) > known {
			loggedIn++
			slowest = max(slowest, took)
		} else if took < 3*time.Second {
			t.Errorf("%s is closed after %v: %s", p.Behaviour().Name, took, p.Reason())
		}
	}
	t.Logf("%d of %d that connected logged in, the slowest after %v", loggedIn, connected, slowest)
	if loggedIn*10 < connected*9 || slowest > 4*time.Second {
		t.Errorf("%d of %d that connected logged in, the slowest after %v; want 9 of 10, within 4 s", loggedIn, connected, slowest)
	}
}
