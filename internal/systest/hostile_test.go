package systest

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/edge"
)

// A listener is a client whose datagrams are inspected before it receives them.
type listener struct {
	*dnptest.Client
	heard func(p []byte)
}

func (l listener) Receive(now time.Time, from netip.AddrPort, p []byte) {
	l.heard(p)
	l.Client.Receive(now, from, p)
}

// hostile returns a datagram that an attacker with a session may think of: any command with any
// numbers, most often close to those in use, and bodies that are cut, changed or extended. It
// does not end the session, which every client may do.
func hostile(r *rand.Rand) []byte {
	link := []int{0, 1, 7, 0x1000, 0x7FFF, 0x8000, 0x8001, 0x8002, 0x8003, 0x8004, 0xFFFE, 0xFFFF}[r.IntN(12)]
	number := []int{0, 1, 2, 3, 5, 9, r.IntN(40), r.IntN(65536)}[r.IntN(8)]
	p := func(format string, args ...any) []byte { return unhex(fmt.Sprintf(format, args...)) }
	le := func(x int) string { return fmt.Sprintf("%02x%02x", x&255, x>>8&255) }
	value := func() string { return le(r.IntN(65536)) }
	var b []byte
	switch r.IntN(14) {
	case 0, 1, 2, 3:
		b = p("09 01 %s 01 %s %s", le(link), le(r.IntN(3)), value()) // an update
	case 4:
		b = p("09 02 %s 01 0000 %s %s 02 0000 %s 0100 %s", le(link), value(), le(0x8000+r.IntN(6)), value(), value())
	case 5:
		b = p("07 %s", le(link)) // LinkUp
	case 6:
		b = p("08 %s", le(link)) // LinkDown
	case 7:
		b = p("05 %s %s %02x 0100 41 0100 03 %s", le(number), le(link), r.IntN(4), value()) // offers a link
	case 8:
		b = p("04 %s 61 62 63", le(number)) // a message
	case 9:
		b = p("06 %s %02x", le(number), r.IntN(3)) // acknowledges
	case 10:
		b = p("0a %s %02x", le(number), r.IntN(16))
	case 11:
		b = p("0b %s %s %02x 0100 41", le(number), value(), r.IntN(256))
	case 12:
		b = p("03 78 79 7a")
	case 13:
		b = []byte{byte(3 + r.IntN(253))}
	}
	switch r.IntN(6) {
	case 0:
		b = b[:1+r.IntN(len(b))]
	case 1:
		if i := r.IntN(len(b)); i > 0 {
			b[i] = byte(r.Uint32())
		}
	case 2:
		for range r.IntN(30) {
			b = append(b, byte(r.Uint32()))
		}
	}
	return b
}

// TestRightsCannotBeWidened lets three clients with different rights send thousands of hostile
// datagrams each, between honest operations, to a real edge worker. Nothing may happen that
// their rights do not cover: states that a client may not write stay as game servers put them, a
// client is not sent what it must not see, and messages in its name are its own.
func TestRightsCannotBeWidened(t *testing.T) {
	const secret, others = 0x5EC7, 0x1234
	w := newWorld(t, *seed)
	w.startRelay()
	e := w.startEdge(wire.Denetwork, w.withTokens)
	w.mustPublish("s", fmt.Sprintf(`{"ops":[{"op":"put","key":"fixed","message":"fixed","values":[{"type":"uint16","value":7},{"type":"uint16","value":8}]},`+
		`{"op":"put","key":"bobs","message":"bobs","access":{"writers":["bob"]},"values":[{"type":"uint16","value":9},{"type":"uint16","value":10}]},`+
		`{"op":"put","key":"hidden","message":"hidden-message","audience":{"groups":["red"]},"access":"read-write","values":[{"type":"uint16","value":%d},{"type":"uint16","value":%d}]},`+
		`{"op":"put","key":"free","message":"free","access":"read-write","values":[{"type":"uint16","value":1,"max":1000},{"type":"uint16","value":2}]}]}`, secret, secret))
	w.mustPublish("elsewhere", `{"op":"put","key":"free","message":"other-space","access":"read-write","values":[{"type":"uint16","value":4660}]}`)
	before := map[string]string{}
	for _, key := range []string{"fixed", "bobs", "hidden"} {
		before[key] = values(w.ask(w.subjects.Get("s", key), ""))
	}
	elsewhere := values(w.ask(w.subjects.Get("elsewhere", "free"), ""))

	names := map[string]bool{"eve": true, "mallory": true, "guest": true}
	w.hub.Tap = func(from string, m bus.Msg) {
		rest, mine := strings.CutPrefix(m.Subject, "dnp.v1.from.")
		if mine && (!strings.HasPrefix(rest, "s.") || !names[strings.TrimPrefix(rest, "s.")]) {
			t.Errorf("a message arrived as %s", m.Subject)
		}
		if from == e.node && (strings.HasPrefix(m.Subject, "dnp.v1.publish.") && !strings.Contains(m.Subject, "_probe") || strings.HasPrefix(m.Subject, "dnp.v1.live.")) {
			t.Errorf("the edge published on %s", m.Subject)
		}
	}
	canary := binary.LittleEndian.AppendUint16(binary.LittleEndian.AppendUint16(nil, secret), secret)
	heard := func(p []byte) {
		if strings.Contains(string(p), "hidden-message") || strings.Contains(string(p), "other-space") ||
			len(p) > 1 && wire.Command(p[0]) == wire.CommandReliableLinkState && strings.Contains(string(p), string(canary)) {
			t.Errorf("a client was sent what it must not see: %x", p)
		}
	}
	bob := w.login(e, "10.1.0.9:5000", dnptest.Cpp(), w.token("bob", nil))
	w.within(5*time.Second, "bob is connected", func() bool { return bob.has("bobs", 0, u16(9)) })
	r, sent := rand.New(rand.NewPCG(*seed, 11)), 0
	for round := range 25 { // a hostile datagram may cost its sender the session, so there are many
		attackers := []*player{
			w.login(e, fmt.Sprintf("10.1.0.1:%d", 5000+round), dnptest.Cpp(), w.token("eve", nil)),
			w.login(e, fmt.Sprintf("10.1.0.2:%d", 5000+round), dnptest.Java(), w.token("mallory", func(c *claims) { c.Groups = []string{"blue"} })),
			w.login(e, fmt.Sprintf("10.1.0.3:%d", 5000+round), dnptest.Python(), w.token("guest", func(c *claims) { c.Write = false })),
		}
		for _, p := range attackers {
			w.net.Detach(p.addr)
			w.net.Attach(p.addr, listener{p.Client, heard})
			w.net.Wake(p.addr)
		}
		for _, p := range attackers {
			w.within(8*time.Second, "a client sees the public states", func() bool { return p.LinkNamed("free") != nil && p.LinkNamed("bobs") != nil })
		}
		for range 100 {
			for _, p := range attackers {
				if p.Phase() == dnptest.Connected {
					e.forge(p.addr, fmt.Sprintf("%x", hostile(r)))
					sent++
				}
			}
			if p := attackers[r.IntN(3)]; r.IntN(8) == 0 {
				if l := p.LinkNamed([]string{"fixed", "bobs", "free"}[r.IntN(3)]); l != nil {
					p.do(func(time.Time) { p.Set(l, r.IntN(2), u16(uint16(r.IntN(2000)))) })
				}
			}
			w.net.Run(time.Duration(5+r.IntN(10)) * time.Millisecond)
		}
		w.net.Run(300 * time.Millisecond)
	}
	t.Logf("%d hostile datagrams from clients with a session", sent)
	if sent < 3000 {
		t.Errorf("only %d hostile datagrams were tried", sent)
	}
	w.net.Run(5 * time.Second)
	for key, want := range before {
		if got := values(w.ask(w.subjects.Get("s", key), "")); got != want {
			t.Errorf("%s is %s, was %s", key, got, want)
		}
	}
	if got := values(w.ask(w.subjects.Get("elsewhere", "free"), "")); got != elsewhere {
		t.Errorf("a state of another space is %s, was %s", got, elsewhere)
	}
	changed := 0
	for _, ev := range w.events {
		switch own := "client." + ev.Client + "."; {
		case ev.Type == "changed" && ev.Client == "guest":
			t.Errorf("a client that may not write wrote %+v", ev)
		case ev.Type == "changed" && ev.Key != "free" && !strings.HasPrefix(ev.Key, own):
			t.Errorf("a client wrote %+v", ev)
		case ev.Type == "linked" && (ev.Key == "hidden" || strings.HasPrefix(ev.Key, "client.")):
			t.Errorf("a client was linked to %+v", ev)
		case ev.Type == "left" && ev.Client == "bob":
			t.Errorf("another client lost its session: %+v", ev)
		case ev.Type == "changed":
			changed++
		}
	}
	if strings.Contains(w.ask(w.subjects.Get("s", ""), ""), `"client.guest.`) {
		t.Error("a client that may not write made a state")
	}
	if changed == 0 {
		t.Error("no client wrote anything, so nothing was tested")
	}
	bob.do(func(time.Time) { bob.Set(bob.LinkNamed("bobs"), 0, u16(others)) })
	w.within(2*time.Second, "a client that may write does", func() bool {
		return strings.Contains(w.ask(w.subjects.Get("s", "bobs"), ""), fmt.Sprint(others))
	})
}

// values returns the states of a listing without its position.
func values(listing string) string {
	_, states, _ := strings.Cut(listing, `"states":`)
	return states
}

func unhex(s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		panic(err)
	}
	return b
}

// TestForgedClose sends, once a second for ten minutes, the single byte of a ConnectionClose in
// the name of idle clients of every library. Anyone can forge it; no session may end.
func TestForgedClose(t *testing.T) {
	w := newWorld(t, *seed)
	w.startRelay()
	open, token := w.startEdge(wire.Denetwork, nil), w.startEdge(wire.Denetwork, w.withTokens)
	w.mustPublish("s", doorPut)
	type victim struct {
		*player
		e *simEdge
	}
	var victims []victim
	for i, b := range []dnptest.Behaviour{dnptest.Cpp(), dnptest.Java(), dnptest.Python()} {
		from := fmt.Sprintf("10.1.0.%d:1", 10+i)
		victims = append(victims, victim{w.join(open, b, dnptest.App{}), open},
			victim{w.login(token, from, b, w.token(fmt.Sprint("c", i), func(c *claims) { c.Expires = w.net.Now().Add(time.Hour) })), token})
	}
	for _, v := range victims {
		w.within(5*time.Second, "the client is connected", func() bool { return v.has("D", 0, u16(1)) })
	}
	forged := 0
	w.net.Every(time.Second, func() bool {
		for _, v := range victims {
			v.e.forge(v.addr, "02")
			forged++
		}
		return true
	})
	w.net.Run(10 * time.Minute)
	if w.count("left") > 0 || w.count("joined") != len(victims) {
		t.Errorf("after %d forged closes: %+v", forged, w.events)
	}
	w.mustPublish("s", `{"op":"set","key":"door","values":{"v":7}}`)
	for _, v := range victims {
		w.within(time.Second, "the session continues", func() bool { return v.has("D", 0, u16(7)) })
	}
}

// TestRealClose closes clients. The edge frees the session of one that acknowledged a few dozen
// commands within two seconds, and a little more for the network. Of one that has just come it
// cannot know how many datagrams its path loses, so it asks for longer.
func TestRealClose(t *testing.T) {
	w, e := newWorldWithEdge(t, nil)
	closes := func(p *player, within time.Duration) {
		t.Helper()
		left := w.count("left")
		p.do(p.Close)
		w.within(within, "the client has left", func() bool { return w.count("left") > left })
	}
	for _, b := range []dnptest.Behaviour{dnptest.Cpp(), dnptest.Java(), dnptest.Python()} {
		p := w.join(e, b, dnptest.App{})
		w.net.Run(time.Second)
		closes(p, 3600*time.Millisecond)
		p = w.join(e, b, dnptest.App{})
		for range 64 {
			_ = w.game.Publish(bus.Msg{Subject: w.subjects.ToAll("s"), Data: []byte("hello")})
			w.net.Run(50 * time.Millisecond)
		}
		closes(p, 2100*time.Millisecond)
	}
	if n := e.worker.Counts().Sessions; n != 0 {
		t.Errorf("%d sessions are left", n)
	}
}

// TestForgedRequests requests new sessions in the name of clients that have one.
func TestForgedRequests(t *testing.T) {
	w, e := newWorldWithEdge(t, nil)
	w.mustPublish("s", doorPut)
	p := w.join(e, dnptest.Cpp(), dnptest.App{})
	w.net.Every(700*time.Millisecond, func() bool {
		e.forge(p.addr, "00 0100 0000")
		return true
	})
	w.net.Run(2 * time.Minute)
	if w.count("left") > 0 || w.count("joined") != 1 || p.Phase() != dnptest.Connected {
		t.Errorf("%+v", w.events)
	}
}

// TestSessionsPerAddress admits no more sessions from one address than configured.
func TestSessionsPerAddress(t *testing.T) {
	w, e := newWorldWithEdge(t, func(c *edge.Config) { c.SessionsPerAddress, c.SessionsMax = 3, 5 })
	w.mustPublish("s", doorPut)
	players := make([]*player, 8)
	connected := func() (n int) {
		for _, p := range players {
			if p.Phase() == dnptest.Connected && p.has("D", 0, u16(1)) {
				n++
			}
		}
		return n
	}
	for i := range players {
		players[i] = w.login(e, fmt.Sprintf("10.1.0.%d:%d", 1+i/4, 1+i), dnptest.Cpp(), []byte("hello"))
		w.net.Run(time.Second)
	}
	if n := connected(); n != 5 || players[3].Phase() != dnptest.Closed || players[7].Phase() != dnptest.Closed {
		t.Errorf("%d sessions, want three from one address and five in all", n)
	}
	players[0].do(players[0].Close)
	w.net.Run(3 * time.Second)
	late := w.login(e, "10.1.0.1:99", dnptest.Cpp(), []byte("hello"))
	w.within(3*time.Second, "a client that leaves makes room", func() bool { return late.has("D", 0, u16(1)) })
}
