package systest

import (
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/edge"
)

func unhex(s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		panic(err)
	}
	return b
}

// TestForgedClose ends, once a second for ten minutes, the sessions of idle clients of
// every library, with the one byte that anybody can forge.
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
		w.within(5*time.Second, "the client is there", func() bool { return v.has("D", 0, u16(1)) })
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
		w.within(time.Second, "the session goes on", func() bool { return v.has("D", 0, u16(7)) })
	}
}

// TestRealClose frees the sessions of clients that leave within two seconds, and a
// little for the network.
func TestRealClose(t *testing.T) {
	w := newWorld(t, *seed)
	w.startRelay()
	e := w.startEdge(wire.Denetwork, nil)
	for _, b := range []dnptest.Behaviour{dnptest.Cpp(), dnptest.Java(), dnptest.Python()} {
		p := w.join(e, b, dnptest.App{})
		w.net.Run(time.Second)
		left := w.count("left")
		p.do(p.Close)
		w.within(2100*time.Millisecond, b.Name+" has left", func() bool { return w.count("left") > left })
	}
	if n := e.worker.Counts().Sessions; n != 0 {
		t.Errorf("%d sessions are left", n)
	}
}

// TestForgedRequests asks for a new session in the name of clients that have one.
func TestForgedRequests(t *testing.T) {
	w := newWorld(t, *seed)
	w.startRelay()
	e := w.startEdge(wire.Denetwork, nil)
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

// TestSessionsPerAddress lets no more sessions begin from one address than configured.
func TestSessionsPerAddress(t *testing.T) {
	w := newWorld(t, *seed)
	w.startRelay()
	e := w.startEdge(wire.Denetwork, func(c *edge.Config) { c.SessionsPerAddress, c.SessionsMax = 3, 5 })
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
		t.Errorf("%d sessions, want three of one address and five in all", n)
	}
	players[0].do(players[0].Close)
	w.net.Run(3 * time.Second)
	late := w.login(e, "10.1.0.1:99", dnptest.Cpp(), []byte("hello"))
	w.within(3*time.Second, "who leaves makes room", func() bool { return late.has("D", 0, u16(1)) })
}
