package main

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/udp"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// A testEdge simulates an edge for dnpctl: it links two states to every client, "tower"
// (read-write: float32, string) and "door" (read-only: uint8), and handles messages:
//
//	echo TEXT   returns TEXT, reliable or not like the message
//	hp          sets tower's value 0 to 50
//	remove      ends tower's link with its farewell
//	close       ends the connection
//
// It refuses writes of tower's value 0 above 100. One goroutine owns it.
type testEdge struct {
	socket      *udp.Socket
	endpoint    *dnp.Endpoint
	tower, door *dnp.Source

	deafTo   int           // it drops reliable commands with numbers from here on; 0 for none
	lossy    bool          // it drops the first copy of each reliable command
	seen     int           // reliable commands of which it dropped the first copy
	received chan<- []byte // if set, gets each message
}

func startEdge(t testing.TB, profile wire.Profile) netip.AddrPort {
	t.Helper()
	return startEdgeAs(t, profile, testEdge{})
}

// startEdgeAs starts an edge with the behaviour of e.
func startEdgeAs(t testing.TB, profile wire.Profile, e testEdge) netip.AddrPort {
	t.Helper()
	endpoint, err := dnp.New(dnp.Config{Profile: profile, Listen: true, Rand: rand.New(rand.NewPCG(1, 2))})
	if err != nil {
		t.Fatal(err)
	}
	socket, err := udp.Open(udp.Config{Addr: netip.MustParseAddrPort("127.0.0.1:0")})
	if err != nil {
		t.Fatal(err)
	}
	e.socket, e.endpoint = socket, endpoint
	e.tower = e.source(t, "tower", float32Type, wire.TypeString)
	e.door = e.source(t, "door", uint8Type)
	var running sync.WaitGroup
	running.Go(e.run)
	t.Cleanup(func() {
		socket.Close()
		running.Wait()
	})
	return socket.LocalAddr()
}

func (e *testEdge) source(t testing.TB, key string, types ...wire.ValueType) *dnp.Source {
	var values []netstate.Value
	for _, typ := range types {
		values = append(values, netstate.Value{Type: typ})
	}
	layout, err := netstate.NewLayout(values)
	if err != nil {
		t.Fatal(err)
	}
	return e.endpoint.NewSource(dnp.SourceConfig{State: netstate.NewState(layout), Message: []byte(key), Farewell: []byte(key + " is gone")})
}

func (e *testEdge) run() {
	batch := make([]udp.Datagram, 16)
	for {
		e.handle(e.endpoint.Advance(time.Now(), e.socket.Writer()))
		e.endpoint.Flush(time.Now(), e.socket.Writer())
		if e.socket.Writer().Flush() != nil {
			return
		}
		due, ok := e.endpoint.NextTimeout()
		if ok && due.IsZero() {
			continue
		}
		e.socket.SetReadDeadline(due)
		n, err := e.socket.ReadBatch(batch)
		for _, d := range batch[:n] {
			if e.drops(d.Data) {
				continue
			}
			e.handle(e.endpoint.Receive(time.Now(), d.From, d.Data, e.socket.Writer()))
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, udp.ErrWoken) {
			return
		}
	}
}

// drops reports whether the edge does not hear a datagram.
func (e *testEdge) drops(p []byte) bool {
	cmd, seq, numbered := wire.Numbered(p)
	first := int(seq) >= e.seen
	switch {
	case !numbered || cmd == wire.CommandReliableAck:
		return false
	case e.lossy && first:
		e.seen = int(seq) + 1
		return true
	}
	return e.deafTo > 0 && int(seq) >= e.deafTo
}

func (e *testEdge) handle(events []dnp.Event) {
	for _, ev := range events {
		switch ev.Kind {
		case dnp.EventConnected:
			_ = ev.Conn.Link(e.tower, false)
			_ = ev.Conn.Link(e.door, true)
			ev.Conn.SetData(&session{})
		case dnp.EventLinkUp:
			s := ev.Conn.Data().(*session)
			s.up++
			e.messages(ev.Conn, s)
		case dnp.EventMessage:
			if e.received != nil {
				e.received <- bytes.Clone(ev.Data)
				continue
			}
			s := ev.Conn.Data().(*session)
			s.waiting = append(s.waiting, request{string(ev.Data), ev.Reliable})
			e.messages(ev.Conn, s)
		case dnp.EventUpdate:
			e.update(ev)
		}
	}
}

var (
	hundred = []byte{0, 0, 0xc8, 0x42} // float32
	fifty   = []byte{0, 0, 0x48, 0x42}
)

// A session is the state of a client. Messages wait until both links are up, so that the
// output of a script does not depend on timing.
type session struct {
	up      int
	waiting []request
}

type request struct {
	text     string
	reliable bool
}

func (e *testEdge) messages(c *dnp.Conn, s *session) {
	if s.up < 2 {
		return
	}
	for _, r := range s.waiting {
		e.message(c, r)
	}
	s.waiting = nil
}

func (e *testEdge) message(c *dnp.Conn, r request) {
	switch {
	case r.text == "hp":
		e.tower.State().Set(0, fifty)
		e.tower.Changed(0)
	case r.text == "remove":
		c.Unlink(e.tower, true)
	case r.text == "close":
		c.Close(dnp.CloseDrain)
	case len(r.text) > 5 && r.reliable:
		_ = c.Send([]byte(r.text[5:]), 0)
	case len(r.text) > 5:
		_ = c.SendUnreliable([]byte(r.text[5:]))
	}
}

func (e *testEdge) update(ev dnp.Event) {
	for i, value, ok := ev.Update.Next(); ok; i, value, ok = ev.Update.Next() {
		if i == 0 && value[3] >= hundred[3] && string(value) != string(hundred) && value[3] != fifty[3] {
			ev.Conn.Hold(ev.Link, i, value)
			ev.Conn.Refuse(ev.Link, i)
			continue
		}
		ev.Conn.Hold(ev.Link, i, value)
		e.tower.State().Set(i, value)
		e.tower.Changed(i)
		ev.Conn.Release(ev.Link, i)
	}
}

const (
	uint8Type   wire.ValueType = 1
	float32Type wire.ValueType = 9
)
