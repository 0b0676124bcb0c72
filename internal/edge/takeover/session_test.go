package takeover

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/internal/auth"
	"github.com/dnprelay/dnprelay/internal/simnet"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// TestAbout: what a client may is the same at the edge that takes its session over.
func TestAbout(t *testing.T) {
	for why, c := range map[string]auth.Claims{
		"may write, for ever":           {Client: "a", Space: "s", Write: true},
		"may only read, for an hour":    {Client: "a", Space: "s", Expires: simnet.Epoch.Add(time.Hour)},
		"groups, in the order of token": {Client: "a", Space: "s", Groups: []string{"red", "blue"}, Write: true},
	} {
		a := newAbout("id", 3413, simnet.Epoch, &c)
		b, ok := parseAbout(a.marshal())
		got := b.Claims()
		if !ok || b.ID != "id" || b.Listener != 3413 || b.Began != simnet.Epoch.UnixMicro() {
			t.Errorf("%s: got %+v, %v", why, b, ok)
		}
		if !got.Expires.Equal(c.Expires) {
			t.Errorf("%s: expires at %v, want %v", why, got.Expires, c.Expires)
		}
		if got.Expires = c.Expires; !reflect.DeepEqual(*got, c) {
			t.Errorf("%s: the claims are %+v, want %+v", why, *got, c)
		}
	}
}

// TestAboutOfOthers: a log is what another version of an edge wrote.
func TestAboutOfOthers(t *testing.T) {
	const whole = `{"id":"i","space":"s","client":"c","listener":1,"began":2}`
	for why, c := range map[string]struct {
		text string
		ok   bool
	}{
		"what the first version writes":    {whole, true},
		"what a later version may add":     {strings.Replace(whole, "{", `{"more":[1],`, 1), true},
		"nothing":                          {``, false},
		"cut off":                          {whole[:len(whole)-1], false},
		"no client: no event can name it":  {`{"id":"i","space":"s"}`, false},
		"no space":                         {`{"id":"i","client":"c"}`, false},
		"no session":                       {`{"space":"s","client":"c"}`, false},
		"a listener that cannot be a port": {strings.Replace(whole, `"listener":1`, `"listener":65536`, 1), false},
	} {
		if _, ok := parseAbout([]byte(c.text)); ok != c.ok {
			t.Errorf("%s: parsed %v, want %v", why, ok, c.ok)
		}
	}
}

// TestAboutFits: the largest claims fit into a log, or append would panic.
func TestAboutFits(t *testing.T) {
	long := strings.Repeat("x", 64)
	c := auth.Claims{Client: long, Space: long, Expires: simnet.Epoch}
	for range 32 {
		c.Groups = append(c.Groups, long)
	}
	a := newAbout(long, 65535, simnet.Epoch, &c)
	if n := len(a.marshal()); n > sessionlog.AboutMax {
		t.Errorf("%d bytes, at most %d fit", n, sessionlog.AboutMax)
	}
}

// TestRefresh checks which sessions write their logs again after a server lost them, and how fast.
func TestRefresh(t *testing.T) {
	e := newTestEdge(t)
	w := e.workers[0]
	e.addWorker() // which gets half of what the edge may write
	clients := map[netip.AddrPort]*dnptest.Client{}
	e.toClient = func(to netip.AddrPort, p []byte) {
		p = slices.Clone(p)
		e.net.Schedule(0, func() { clients[to].Receive(e.net.Now(), server, p) })
	}
	const sessions = 100
	for i := range sessions {
		addr := clientAddr(i)
		clients[addr] = dnptest.NewClient(dnptest.Config{Behaviour: dnptest.Cpp(), Server: server, Send: func(p []byte) {
			e.net.Schedule(0, func() { w.deliver(addr, e.via, p...) })
		}})
		clients[addr].Connect(e.net.Now())
	}
	for range 20 {
		for _, c := range clients {
			c.Advance(e.net.Now())
		}
		e.pass(100 * time.Millisecond)
	}
	if n := w.t.counts.SessionsOpened; n != sessions {
		t.Fatalf("%d sessions were opened, want %d", n, sessions)
	}
	before := w.t.counts.LogWrites
	except := w.t.name(clientAddr(1))
	w.t.Refresh(e.net.Now(), func(log string) bool { return log != except })
	for _, want := range []uint64{25, 50, 75} {
		e.pass(25 * time.Millisecond)
		if n := w.t.counts.LogWrites - before; n < want-5 || n > want {
			t.Errorf("%d sessions were written again, want almost %d: a worker of two writes 1,000 a second", n, want)
		}
	}
	e.pass(time.Second)
	if n := w.t.counts.LogWrites - before; n != sessions-1 {
		t.Errorf("%d writes, want one of each session whose log was lost: %d", n, sessions-1)
	}
}
