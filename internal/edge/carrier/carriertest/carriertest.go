// Package carriertest has an edge for tests of carriers and their listeners: a Hub with one worker, which does what a test
// tells it to.
package carriertest

import (
	"context"
	"crypto/rand"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/edge/carrier"
)

// eventsMax is how many events of a kind a worker holds for the test. More are a fault of the test.
const eventsMax = 1 << 16

// patience is how long a test waits for what has to happen. In a synctest bubble it takes no time.
const patience = 30 * time.Second

// An Edge is a Hub and its worker.
type Edge struct {
	*carrier.Hub
	Tokens carrier.Tokens
	Output *carrier.Output

	// Ready tells whether the edge takes clients. It does from the beginning.
	Ready atomic.Bool

	// Hold has the worker keep datagrams: the test calls Taken.
	Hold atomic.Bool

	Arrivals chan Arrival
	Opened   chan *carrier.Conn
	Ended    chan Ending
	Writable chan *carrier.Conn

	t testing.TB
}

// An Arrival is a datagram that the worker got.
type Arrival struct {
	Conn *carrier.Conn
	Data []byte
}

// An Ending is a connection that ended.
type Ending struct {
	Conn   *carrier.Conn
	Reason carrier.Reason
}

// New returns an Edge without limits, besides those that limit sets if it is not nil.
func New(t testing.TB, limit func(*carrier.Config)) *Edge {
	e := &Edge{
		Tokens: carrier.NewTokens([]byte("secret of the test"), rand.Text), t: t,
		Arrivals: make(chan Arrival, eventsMax), Opened: make(chan *carrier.Conn, eventsMax),
		Ended: make(chan Ending, eventsMax), Writable: make(chan *carrier.Conn, eventsMax),
	}
	e.Ready.Store(true)
	cfg := carrier.Config{
		Tokens: e.Tokens, ConnsMax: 1 << 20, Ready: e.Ready.Load, Now: time.Now,
		Receiver: func(netip.AddrPort) carrier.Receiver { return worker{e} },
	}
	if limit != nil {
		limit(&cfg)
	}
	hub, err := carrier.NewHub(cfg)
	if err != nil {
		t.Fatal(err)
	}
	e.Hub, e.Output = hub, &carrier.Output{UDP: noUDP{}, Hub: hub}
	return e
}

// Send sends datagrams to a client, as a worker does at the end of a turn.
func (e *Edge) Send(to netip.AddrPort, datagrams ...string) {
	e.t.Helper()
	for _, p := range datagrams {
		e.Output.Send(to, append(e.Output.Datagram(len(p)), p...))
	}
	if err := e.Output.Flush(); err != nil {
		e.t.Fatal(err)
	}
}

// Next returns the next value of a channel. what says what the test expects, and why.
func Next[T any](t testing.TB, c <-chan T, what string) (v T) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	select {
	case v = <-c:
	case <-ctx.Done():
		t.Fatalf("nothing happened, want: %s", what)
	}
	return v
}

// WantDatagram returns the connection of the next datagram, which has to be this one.
func (e *Edge) WantDatagram(want string) *carrier.Conn {
	e.t.Helper()
	a := Next(e.t, e.Arrivals, "the worker gets a datagram")
	if string(a.Data) != want {
		e.t.Fatalf("the worker got %d bytes, %.40q, want %d bytes, %.40q", len(a.Data), a.Data, len(want), want)
	}
	return a.Conn
}

// WantEnd has the next connection end with a reason.
func (e *Edge) WantEnd(want carrier.Reason, why string) {
	e.t.Helper()
	if got := Next(e.t, e.Ended, why); got.Reason != want {
		e.t.Fatalf("the connection ended with %v, want %v: %s", got.Reason, want, why)
	}
}

// A worker is an Edge as a carrier.Receiver.
type worker struct{ e *Edge }

func (w worker) Arrived(c *carrier.Conn, p []byte) {
	if !w.e.Hold.Load() {
		c.Taken(len(p))
	}
	post(w.e.t, w.e.Arrivals, Arrival{c, p})
}

func (w worker) Opened(c *carrier.Conn)                  { post(w.e.t, w.e.Opened, c) }
func (w worker) Ended(c *carrier.Conn, r carrier.Reason) { post(w.e.t, w.e.Ended, Ending{c, r}) }
func (w worker) Writable(c *carrier.Conn)                { post(w.e.t, w.e.Writable, c) }

func post[T any](t testing.TB, c chan T, v T) {
	select {
	case c <- v:
	default:
		t.Errorf("the worker got more than %d events", eventsMax)
	}
}

// noUDP is the UDP of an edge whose clients are all carried.
type noUDP struct{}

func (noUDP) Datagram(size int) []byte { return make([]byte, 0, size) }
func (noUDP) Send(netip.AddrPort, []byte) {
	panic("carriertest: a datagram to a client that speaks UDP")
}
func (noUDP) Flush() error { return nil }
