// Package edgetest has an edge in this process, for tests of clients. [Start] runs it on a free port of
// loopback. It is no edge of the product: it has two states of its own, takes those of its clients, and
// obeys a few messages.
package edgetest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/command"
	"github.com/dnprelay/dnprelay/dnp/linkmsg"
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/udp"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// A Config says how an edge differs from the usual one. All fields may be zero.
type Config struct {
	Profile  wire.Profile
	DeafTo   int               // it drops reliable commands with numbers from here on
	Lossy    bool              // it drops the first copy of each reliable command
	Loss     float64           // of all datagrams, both ways
	Describe bool              // link messages have the names of the values
	Gun      bool              // it has a third state, "gun" (read-write: ammo data of 8 bytes), whose link message tells the components aim and shots
	Login    func(string) bool // judges the first message of a client; nil means that clients do not log in
	Received chan<- []byte     // gets each message, which the edge then does not obey
	Wrote    chan<- Write      // gets each value that a client writes, or offers
}

// A Write is a value of a state that a client wrote, or offers.
type Write struct {
	State string // the link message
	Index int
	Value []byte
}

// An edge links two states to every client, "tower" (read-write: hp float32, name string) and "door"
// (read-only: open uint8), and obeys messages:
//
//	echo TEXT   returns TEXT, reliable or not like the message
//	hp          sets tower's value 0 to 50
//	remove      ends tower's link with its farewell
//	close       ends the connection
//
// It refuses writes of tower's value 0 above 100, and states with the message "refuse". One goroutine
// owns it.
type edge struct {
	Config
	socket      *udp.Socket
	endpoint    *dnp.Endpoint
	tower, door *dnp.Source
	gun         *dnp.Source // nil without Config.Gun
	rand        *rand.Rand
	seen        int // reliable commands of which it dropped the first copy
}

// Start starts an edge, which ends with the test, and returns its address.
func Start(t testing.TB, cfg Config) netip.AddrPort {
	t.Helper()
	addr, stop, err := Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return addr
}

// Run starts an edge for an example, which has no testing.TB.
func Run(cfg Config) (addr netip.AddrPort, stop func(), err error) {
	e := &edge{Config: cfg, rand: rand.New(rand.NewPCG(3, 4))}
	listen := dnp.Config{Profile: cfg.Profile, Listen: true, Rand: rand.New(rand.NewPCG(1, 2))}
	if cfg.Login != nil {
		listen.Login = e.logIn
	}
	if e.endpoint, err = dnp.New(listen); err != nil {
		return addr, nil, err
	}
	if e.socket, err = udp.Open(udp.Config{Addr: netip.MustParseAddrPort("127.0.0.1:0")}); err != nil {
		return addr, nil, err
	}
	e.tower = e.source("tower", field{"hp", float32Type}, field{"name", wire.TypeString})
	e.door = e.source("door", field{"open", uint8Type})
	if cfg.Gun {
		e.gun = e.armed()
	}
	var running sync.WaitGroup
	running.Go(e.run)
	return e.socket.LocalAddr(), func() {
		e.socket.Close()
		running.Wait()
	}, nil
}

func (e *edge) logIn(_ time.Time, _ netip.AddrPort, message []byte) (dnp.LoginVerdict, any) {
	if e.Login(string(message)) {
		return dnp.LoginAccept, nil
	}
	return dnp.LoginRefuse, nil
}

type field struct {
	name string
	typ  wire.ValueType
}

func (e *edge) source(key string, fields ...field) *dnp.Source {
	var values []netstate.Value
	d := linkmsg.Description{Key: key}
	for _, f := range fields {
		values = append(values, netstate.Value{Type: f.typ})
		d.Names = append(d.Names, f.name)
	}
	message := []byte(key)
	if e.Describe {
		message = linkmsg.Append(nil, d)
	}
	layout, err := netstate.NewLayout(values)
	if err != nil {
		panic("edgetest: " + err.Error()) // a state of this package has values
	}
	return e.endpoint.NewSource(dnp.SourceConfig{State: netstate.NewState(layout), Message: message, Farewell: []byte(key + " is gone")})
}

// armed returns the state with a value that has components.
func (e *edge) armed() *dnp.Source {
	layout, err := netstate.NewLayout([]netstate.Value{{Type: wire.TypeData}})
	if err != nil {
		panic("edgetest: " + err.Error()) // the state has a value
	}
	message := linkmsg.Append(nil, linkmsg.Description{Key: "gun", Names: []string{"ammo"}, Fields: map[int][]linkmsg.Field{0: {{Name: "aim", Type: "vector3f16"}, {Name: "shots", Type: "uint16"}}}})
	state := netstate.NewState(layout)
	state.Set(0, []byte{8, 0, 0, 0x3c, 0, 0x40, 0, 0xc2, 7, 0}) // 1, 2, -3 and 7
	return e.endpoint.NewSource(dnp.SourceConfig{State: state, Message: message})
}

func (e *edge) run() {
	batch := make([]udp.Datagram, 16)
	for {
		e.handle(e.endpoint.Advance(time.Now(), e.out()))
		e.endpoint.Flush(time.Now(), e.out())
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
			e.handle(e.endpoint.Receive(time.Now(), d.From, d.Data, e.out()))
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) && !errors.Is(err, udp.ErrWoken) {
			return
		}
	}
}

// out is what the edge writes datagrams to.
func (e *edge) out() dnp.Sender {
	if e.Loss > 0 {
		return lossyWriter{e.socket.Writer(), e}
	}
	return e.socket.Writer()
}

// A lossyWriter loses datagrams.
type lossyWriter struct {
	*udp.Writer
	edge *edge
}

func (w lossyWriter) Send(to netip.AddrPort, b []byte) {
	if w.edge.rand.Float64() >= w.edge.Loss {
		w.Writer.Send(to, b)
	}
}

// drops reports whether the edge does not hear a datagram.
func (e *edge) drops(p []byte) bool {
	if e.Loss > 0 && e.rand.Float64() < e.Loss {
		return true
	}
	cmd, seq, numbered := wire.Numbered(p)
	first := int(seq) >= e.seen
	switch {
	case !numbered || cmd == wire.CommandReliableAck:
		return false
	case e.Lossy && first:
		e.seen = int(seq) + 1
		return true
	}
	return e.DeafTo > 0 && int(seq) >= e.DeafTo
}

func (e *edge) handle(events []dnp.Event) {
	for _, ev := range events {
		switch ev.Kind {
		case dnp.EventConnected:
			_ = ev.Conn.Link(e.tower, false)
			_ = ev.Conn.Link(e.door, true)
			if e.gun != nil {
				_ = ev.Conn.Link(e.gun, false)
			}
			ev.Conn.SetData(&session{})
		case dnp.EventLinkUp:
			s := ev.Conn.Data().(*session)
			s.up++
			e.messages(ev.Conn, s)
		case dnp.EventLinkOffered:
			e.accept(ev)
		case dnp.EventMessage:
			s := ev.Conn.Data().(*session)
			if ev.Reliable && s.opted.OptIn(ev.Number, ev.Data) {
				if s.opted.Granted&command.Writes != 0 {
					ev.Conn.Writes().Order(0)
				}
				_ = ev.Conn.Send(command.HelloAnswer(s.opted.Granted).Append(nil), 0)
				continue
			}
			if env, err := command.Parse(ev.Data); ev.Reliable && s.opted.OptedIn(ev.Number) && err == nil && env.Kind == command.KindRaw {
				ev.Data = env.Raw
			}
			if e.Received != nil {
				e.Received <- bytes.Clone(ev.Data)
				continue
			}
			s.waiting = append(s.waiting, request{string(ev.Data), ev.Reliable})
			e.messages(ev.Conn, s)
		case dnp.EventUpdate:
			e.update(ev)
		}
	}
	for _, ev := range events { // when all links of the datagram were looked at
		if ev.Kind == dnp.EventUpdate && ev.Number != 0 {
			if s := ev.Conn.Data().(*session); s.ended.Number != 0 {
				ev.Conn.Writes().Acknowledge(s.ended, 1, false)
				s.ended = wire.WriteAck{}
			}
		}
	}
}

var fifty = []byte{0, 0, 0x48, 0x42} // float32

// A session is the state of a client. Messages wait until both links are up, so that the
// output of a script does not depend on timing.
type session struct {
	up      int
	waiting []request

	opted   command.Progress
	applied map[valueKey]uint32 // numbers of writes
	ended   wire.WriteAck       // of the datagram that is being handled
}

type valueKey struct {
	link  wire.LinkID
	index int
}

// fresh reports whether a write of a value was not applied or overtaken.
func (s *session) fresh(link wire.LinkID, index int, number uint64) bool {
	k := valueKey{link, index}
	if number == 0 {
		return true
	}
	if s.applied == nil {
		s.applied = map[valueKey]uint32{}
	}
	if s.applied[k] >= uint32(number) {
		return false
	}
	s.applied[k] = uint32(number)
	return true
}

type request struct {
	text     string
	reliable bool
}

func (e *edge) messages(c *dnp.Conn, s *session) {
	if s.up < 2 {
		return
	}
	for _, r := range s.waiting {
		e.message(c, r)
	}
	s.waiting = nil
}

func (e *edge) message(c *dnp.Conn, r request) {
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

// accept takes a state of a client.
func (e *edge) accept(ev dnp.Event) {
	var values []netstate.Value
	for rest := ev.Values; rest.Len() > 0; {
		var t wire.ValueType
		t, _, rest = rest.Next()
		values = append(values, netstate.Value{Type: t})
	}
	layout, err := netstate.NewLayout(values)
	if err != nil || string(ev.Data) == "refuse" {
		ev.Conn.Reject(ev.Link)
		return
	}
	state := netstate.NewState(layout)
	state.SetAll(ev.Values)
	s := e.endpoint.NewSource(dnp.SourceConfig{State: state, Message: bytes.Clone(ev.Data)})
	_ = ev.Conn.Accept(ev.Link, s)
	for i := range layout.Len() {
		e.wrote(s, i, state.Value(i))
	}
}

func (e *edge) wrote(s *dnp.Source, index int, value []byte) {
	if e.Wrote != nil {
		e.Wrote <- Write{linkmsg.Parse(s.Message()).Key, index, bytes.Clone(value)}
	}
}

func (e *edge) update(ev dnp.Event) {
	session := ev.Conn.Data().(*session)
	session.ended.Number = uint32(ev.Number)
	for i, value, ok := ev.Update.Next(); ok; i, value, ok = ev.Update.Next() {
		ev.Conn.Writes().Hold(ev.Link, i, uint32(ev.Number), value)
		if ev.Source == e.tower && i == 0 && math.Float32frombits(binary.LittleEndian.Uint32(value)) > 100 {
			ev.Conn.Writes().Refuse(ev.Link, i)
			session.ended.Refused = append(session.ended.Refused, wire.RefusedValue{Link: ev.Link, Index: uint16(i), Code: wire.RefusedBounds})
			continue
		}
		if !session.fresh(ev.Link, i, ev.Number) {
			ev.Conn.Writes().Release(ev.Link, i)
			continue
		}
		if ev.Source.State().Set(i, value) {
			e.wrote(ev.Source, i, value)
		}
		ev.Source.Changed(i)
		ev.Conn.Writes().Release(ev.Link, i)
	}
}

const (
	uint8Type   wire.ValueType = 1
	float32Type wire.ValueType = 9
)
