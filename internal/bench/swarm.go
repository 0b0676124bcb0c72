//go:build linux

package bench

import (
	"bytes"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// A Swarm is all clients of a case, on one socket and in one goroutine.
type Swarm struct {
	socket *Socket
	script *script
	ports  []uint16 // of the edges

	// Set in Do.
	Counted int // clients[:Counted] count in windows; 0 means all
	Stalled int // this client answers nothing; -1 means that all answer

	// mu guards Counted, Stalled and the fields below. The goroutine of the swarm holds it
	// for one batch at a time; the goroutine that directs the run holds it to begin and end
	// a window and to look at all links at once.
	mu      sync.Mutex
	clients []Client
	wanted  int       // clients[:wanted] should be connected
	asked   time.Time // of the last connection requests
	line    timeline
	window  *Window // nil between windows

	connected, linked atomic.Int64
	closed            atomic.Int64
	stopped           chan struct{}
	stopping          atomic.Bool
}

// A Client is one DNP peer. It drops values and messages, which a real one keeps.
type Client struct {
	edge      uint8 // index in ports
	Phase     uint8
	requested time.Time
	Links     []ClientLink // by slot, see slotOf
}

// Phases of a client.
const (
	ClientIdle uint8 = iota
	Connecting
	Connected
	Closed
)

// A ClientLink is a link of a client and the newest tick that it has seen.
type ClientLink struct {
	Up   bool
	Seen uint32
}

// connectResend is how long a client waits for an answer. The swarm spreads requests:
// connectsPerTurn each connectPause, 5,000 per second.
const (
	connectResend   = time.Second
	connectPause    = 10 * time.Millisecond
	connectsPerTurn = 50
)

// A Window is what clients count between two moments.
type Window struct {
	Updates   uint64 // that brought a newer tick
	repeats   uint64 // that did not
	datagrams uint64 // with updates
	bytes     uint64 // of those, without headers
	lost      uint64 // clients that the edge closed
	Latency   Histogram
	staleness Histogram
	record    []Sent // of the first datagrams with updates
	sample    []byte // the largest datagram
	start     time.Time
}

// A Sent is a datagram of an edge, for the baseline that sends it again.
type Sent struct {
	Micros uint32 // since the start of the window
	Client uint32
	Size   uint32
}

// recordMax bounds the datagrams that a window records: ten seconds at 100,000 datagrams
// per second.
const recordMax = 1 << 20

func newSwarm(s *script, ports []uint16) (*Swarm, error) {
	socket, err := OpenSocket()
	if err != nil {
		return nil, err
	}
	w := &Swarm{socket: socket, script: s, ports: ports, clients: make([]Client, s.c.Clients), Stalled: -1, stopped: make(chan struct{})}
	for i := range w.clients {
		w.clients[i].edge = uint8(i % len(ports))
	}
	return w, nil
}

// run is the goroutine of the swarm. It ends after stop, or when the socket fails.
func (w *Swarm) run() {
	defer close(w.stopped)
	for !w.stopping.Load() {
		n, err := w.socket.read()
		if err != nil {
			Progress("the clients end: %v", err)
			return
		}
		w.turn(time.Now(), n)
	}
	w.Do(func(clients []Client) {
		for i := range clients {
			if clients[i].Phase == Connected {
				w.send(i, append(w.socket.Room(), byte(wire.CommandConnectionClose)))
			}
		}
	})
}

func (w *Swarm) stop() {
	w.stopping.Store(true)
	<-w.stopped
	w.socket.Close()
}

func (w *Swarm) turn(now time.Time, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.connectDue(now)
	last := w.line.last(now)
	for i := range n {
		port, to, data := w.socket.datagram(i)
		index := int(to - firstAddress)
		switch {
		case index >= len(w.clients) || len(data) == 0:
		case port == w.ports[w.clients[index].edge]:
			w.receive(now, last, index, data)
		case w.window == nil && wire.Command(data[0]) == wire.CommandLinkUpdate:
			// A datagram of a baseline, outside of windows. It is read like one of an edge,
			// because reading slows a sender on the other hyperthread of the core.
			w.updates(now, last, index, data)
		}
	}
	w.socket.Flush()
}

// connectDue sends the connection requests that are due.
func (w *Swarm) connectDue(now time.Time) {
	if int(w.connected.Load()+w.closed.Load()) == w.wanted || now.Sub(w.asked) < connectPause {
		return
	}
	w.asked = now
	sent := 0
	for i := range w.clients[:w.wanted] {
		c := &w.clients[i]
		if c.Phase > Connecting || c.Phase == Connecting && now.Sub(c.requested) < connectResend {
			continue
		}
		c.Phase, c.requested = Connecting, now
		w.send(i, wire.AppendConnectionRequest(w.socket.Room()))
		if sent++; sent == connectsPerTurn {
			return
		}
	}
}

func (w *Swarm) send(index int, data []byte) {
	w.socket.Send(ClientAddress(index), w.ports[w.clients[index].edge], data)
}

// receive handles one datagram of an edge.
func (w *Swarm) receive(now time.Time, last uint32, index int, data []byte) {
	c := &w.clients[index]
	if index == w.Stalled || c.Phase == Closed {
		return
	}
	switch wire.Command(data[0]) {
	case wire.CommandConnectionAck:
		if c.Phase == Connecting {
			c.Phase = Connected
			w.connected.Add(1)
		}
	case wire.CommandConnectionClose:
		w.close(index)
	case wire.CommandReliableMessage, wire.CommandReliableMessageLong:
		w.acknowledge(index, data)
	case wire.CommandReliableLinkState:
		w.acknowledge(index, data)
		w.link(index, data)
	case wire.CommandLinkUpdate:
		w.updates(now, last, index, data)
	}
}

// windowOf returns the window in which a client counts, if there is one.
func (w *Swarm) windowOf(index int) *Window {
	if w.Counted > 0 && index >= w.Counted {
		return nil
	}
	return w.window
}

func (w *Swarm) close(index int) {
	c := &w.clients[index]
	if c.Phase != Connected {
		return
	}
	c.Phase = Closed
	w.connected.Add(-1)
	w.closed.Add(1)
	if win := w.windowOf(index); win != nil {
		win.lost++
	}
}

// acknowledge answers a reliable command. Order and repetition do not matter: no reliable
// command has an effect when it arrives again.
func (w *Swarm) acknowledge(index int, data []byte) {
	if len(data) < 3 {
		return
	}
	seq := wire.Seq(uint16(data[1]) | uint16(data[2])<<8)
	w.send(index, wire.ReliableAck{Seq: seq, Code: wire.AckSuccess}.Append(w.socket.Room()))
}

// link accepts a link.
func (w *Swarm) link(index int, data []byte) {
	m, err := wire.ParseLinkState(data[1:])
	if err != nil {
		return
	}
	c := &w.clients[index]
	slot := slotOf(m.Link)
	for slot >= len(c.Links) {
		c.Links = append(c.Links, ClientLink{})
	}
	if !c.Links[slot].Up {
		c.Links[slot].Up = true
		w.linked.Add(1)
	}
	w.send(index, wire.LinkUp{Link: m.Link}.Append(w.socket.Room()))
}

// slotOf numbers LinkIds in the order in which a server gives them: 0x8000 up to
// 0xFFFE, then 0x7FFF down.
func slotOf(id wire.LinkID) int {
	if id >= 0x8000 {
		return int(id) - 0x8000
	}
	return 0x7FFF + 0x7FFF - int(id)
}

// updates counts the updates of a LinkUpdate.
func (w *Swarm) updates(now time.Time, last uint32, index int, data []byte) {
	c, win := &w.clients[index], w.windowOf(index)
	if win != nil {
		win.datagrams++
		win.bytes += uint64(len(data))
		if len(data) > len(win.sample) {
			win.sample = bytes.Clone(data)
		}
		if len(win.record) < recordMax {
			win.record = append(win.record, Sent{uint32(now.Sub(win.start).Microseconds()), uint32(index), uint32(len(data))})
		}
	}
	r := wire.Denetwork.UpdateReader(data[1:])
	for id, ok := r.NextLink(); ok; id, ok = r.NextLink() {
		newest := w.newest(&r, last)
		slot := slotOf(id)
		if slot >= len(c.Links) || !c.Links[slot].Up {
			continue
		}
		l := &c.Links[slot]
		switch fresh := newest > l.Seen; {
		case win == nil:
		case fresh:
			win.Updates++
			win.Latency.add(now.Sub(w.line.due(newest)))
		default:
			win.repeats++
		}
		l.Seen = max(l.Seen, newest)
	}
}

// newest reads the values of a link and returns the newest tick among them.
func (w *Swarm) newest(r *wire.UpdateReader, last uint32) (newest uint32) {
	for {
		i, value, ok := r.NextValue(w.script.types)
		if !ok {
			return newest
		}
		if n, ok := w.script.tick(w.script.types[i], value, last); ok && n > newest {
			newest = n
		}
	}
}

// Connect lets the first n clients connect.
func (w *Swarm) Connect(n int) { w.Do(func([]Client) { w.wanted = n }) }

// Do calls f with all clients while the goroutine of the swarm waits, and sends what f
// gave to Send.
func (w *Swarm) Do(f func(clients []Client)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(w.clients)
	w.socket.Flush()
}

// Send sends a datagram as a client, with the address of the client. It is called in Do.
func (w *Swarm) Send(index int, data []byte) { w.send(index, append(w.socket.Room(), data...)) }

// Sender returns a socket with a queue of its own that sends from the port of the swarm.
func (w *Swarm) Sender() *Socket {
	s := &Socket{fd: w.socket.fd, port: w.socket.port}
	s.out.init()
	return s
}

// Stale reports whether a link that is up shows a tick older than an age. It is called in
// Do, and is false between windows, when no state changes.
func (w *Swarm) Stale(l ClientLink, age time.Duration) bool {
	return w.window != nil && l.Up && l.Seen >= w.line.first && time.Since(w.line.due(l.Seen)) > age
}

// begin sets the times of the next ticks.
func (w *Swarm) begin(line timeline) { w.Do(func([]Client) { w.line = line }) }

// count begins to count in a window, or ends it if win is nil.
func (w *Swarm) count(win *Window) {
	w.Do(func([]Client) {
		w.window = win
		if win != nil {
			win.start = time.Now()
		}
	})
}

// sample records the age of the value that every link shows. It is only meaningful when
// every tick changes every state.
func (w *Swarm) sample() {
	w.Do(func(clients []Client) {
		now := time.Now()
		for i := range clients {
			win := w.windowOf(i)
			if win == nil {
				continue
			}
			for _, l := range clients[i].Links {
				if l.Up && l.Seen >= w.line.first { // the state of another link does not change
					win.staleness.add(now.Sub(w.line.due(l.Seen)))
				}
			}
		}
	})
}
