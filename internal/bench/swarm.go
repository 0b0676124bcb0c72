//go:build linux

package bench

import (
	"bytes"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// A swarm is all clients of a case, on one socket and in one goroutine.
type swarm struct {
	socket *swarmSocket
	script *script
	ports  []uint16 // of the edges

	// mu guards what is below. The goroutine of the swarm holds it for one batch at
	// a time; whoever directs the run holds it to begin and end a window and to look
	// at all links at once.
	mu      sync.Mutex
	clients []client
	wanted  int       // clients[:wanted] are to be connected
	asked   time.Time // when requests went out last
	line    timeline
	window  *window // nil between windows
	counted int     // clients[:counted] count in windows; 0 means all
	stalled int     // this one answers nothing; -1 means all answer

	connected, linked atomic.Int64
	closed            atomic.Int64
	stopped           chan struct{}
	stopping          atomic.Bool
	err               error // why run ended
}

// A client is one DNP peer. What a real one keeps, values and messages, it
// forgets at once.
type client struct {
	edge      uint8 // index in ports
	phase     uint8
	requested time.Time
	links     []clientLink // by slot, see slotOf
}

const (
	clientIdle uint8 = iota
	clientConnecting
	clientConnected
	clientClosed
)

// A clientLink is a link of a client and the newest tick that it has seen.
type clientLink struct {
	up   bool
	seen uint32
}

// connectResend is how long a client waits for an answer. Requests of thousands of
// clients do not come all at once: connectsPerTurn each connectPause, 5,000 a second.
const (
	connectResend   = time.Second
	connectPause    = 10 * time.Millisecond
	connectsPerTurn = 50
)

// A window is what clients count between two moments.
type window struct {
	updates   uint64 // that brought a newer tick
	repeats   uint64 // that did not
	datagrams uint64 // with updates
	bytes     uint64 // of those, without headers
	others    uint64 // other datagrams
	lost      uint64 // clients that the edge closed
	latency   histogram
	staleness histogram
	record    []Sent // of the first datagrams with updates
	sample    []byte // the largest datagram
	start     time.Time
}

// A Sent is one datagram that an edge sent, for the baseline that sends it again.
type Sent struct {
	Micros uint32 // since the start of the window
	Client uint32
	Size   uint32
}

// recordMax bounds what a window records: at 100,000 datagrams a second, ten
// seconds.
const recordMax = 1 << 20

func newSwarm(c *Case, s *script, ports []uint16) (*swarm, error) {
	socket, err := openSwarm()
	if err != nil {
		return nil, err
	}
	w := &swarm{socket: socket, script: s, ports: ports, clients: make([]client, c.Clients), stalled: -1, stopped: make(chan struct{})}
	for i := range w.clients {
		w.clients[i].edge = uint8(i % len(ports))
	}
	return w, nil
}

// run is the goroutine of the swarm. It ends after stop, or when the socket fails.
func (w *swarm) run() {
	defer close(w.stopped)
	for !w.stopping.Load() {
		n, err := w.socket.read()
		if err != nil {
			w.err = err
			return
		}
		w.turn(time.Now(), n)
	}
	w.sayGoodbye()
}

func (w *swarm) stop() {
	w.stopping.Store(true)
	<-w.stopped
	w.socket.close()
}

func (w *swarm) turn(now time.Time, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.connectSome(now)
	last := w.line.last(now)
	for i := range n {
		port, to, data := w.socket.datagram(i)
		index := int(to - firstAddress)
		switch {
		case index >= len(w.clients) || len(data) == 0:
		case port == w.ports[w.clients[index].edge]:
			w.receive(now, last, index, data)
		case w.window == nil && wire.Command(data[0]) == wire.CommandLinkUpdate:
			// A baseline's, outside of windows. Reading it costs what reading an edge's
			// costs, which slows a sender on the other half of the same core as much.
			w.updates(now, last, index, data)
		}
	}
	w.socket.flush()
}

// connectSome sends the connection requests that are due.
func (w *swarm) connectSome(now time.Time) {
	if int(w.connected.Load()+w.closed.Load()) == w.wanted || now.Sub(w.asked) < connectPause {
		return
	}
	w.asked = now
	sent := 0
	for i := range w.clients[:w.wanted] {
		c := &w.clients[i]
		if c.phase > clientConnecting || c.phase == clientConnecting && now.Sub(c.requested) < connectResend {
			continue
		}
		c.phase, c.requested = clientConnecting, now
		w.send(i, wire.AppendConnectionRequest(w.socket.room()))
		if sent++; sent == connectsPerTurn {
			return
		}
	}
}

func (w *swarm) send(index int, data []byte) {
	w.socket.send(clientAddress(index), w.ports[w.clients[index].edge], data)
}

// receive handles one datagram of an edge.
func (w *swarm) receive(now time.Time, last uint32, index int, data []byte) {
	c := &w.clients[index]
	if index == w.stalled || c.phase == clientClosed {
		return
	}
	command := wire.Command(data[0])
	if win := w.windowOf(index); win != nil && command != wire.CommandLinkUpdate {
		win.others++
	}
	switch command {
	case wire.CommandConnectionAck:
		if c.phase == clientConnecting {
			c.phase = clientConnected
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
func (w *swarm) windowOf(index int) *window {
	if w.counted > 0 && index >= w.counted {
		return nil
	}
	return w.window
}

func (w *swarm) close(index int) {
	c := &w.clients[index]
	if c.phase != clientConnected {
		return
	}
	c.phase = clientClosed
	w.connected.Add(-1)
	w.closed.Add(1)
	if win := w.windowOf(index); win != nil {
		win.lost++
	}
}

// acknowledge answers a reliable command. Order and repetition do not matter here:
// nothing that comes reliably has an effect when it comes again.
func (w *swarm) acknowledge(index int, data []byte) {
	if len(data) < 3 {
		return
	}
	seq := wire.Seq(uint16(data[1]) | uint16(data[2])<<8)
	w.send(index, wire.ReliableAck{Seq: seq, Code: wire.AckSuccess}.Append(w.socket.room()))
}

// link accepts a link.
func (w *swarm) link(index int, data []byte) {
	m, err := wire.ParseLinkState(data[1:])
	if err != nil {
		return
	}
	c := &w.clients[index]
	slot := slotOf(m.Link)
	for slot >= len(c.links) {
		c.links = append(c.links, clientLink{})
	}
	if !c.links[slot].up {
		c.links[slot].up = true
		w.linked.Add(1)
	}
	w.send(index, wire.LinkUp{Link: m.Link}.Append(w.socket.room()))
}

// slotOf numbers LinkIds in the order in which a server gives them: 0x8000 up to
// 0xFFFE, then 0x7FFF down.
func slotOf(id wire.LinkID) int {
	if id >= 0x8000 {
		return int(id) - 0x8000
	}
	return 0x7FFF + 0x7FFF - int(id)
}

// updates counts what a LinkUpdate brings.
func (w *swarm) updates(now time.Time, last uint32, index int, data []byte) {
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
		if slot >= len(c.links) || !c.links[slot].up {
			continue
		}
		l := &c.links[slot]
		fresh := newest > l.seen
		if fresh {
			l.seen = newest
		}
		switch {
		case win == nil:
		case fresh:
			win.updates++
			win.latency.add(now.Sub(w.line.due(newest)))
		default:
			win.repeats++
		}
	}
}

// newest reads the values of a link and returns the newest tick among them.
func (w *swarm) newest(r *wire.UpdateReader, last uint32) (newest uint32) {
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

// connect lets the first n clients connect.
func (w *swarm) connect(n int) {
	w.mu.Lock()
	w.wanted = n
	w.mu.Unlock()
}

// begin sets the times of the ticks to come.
func (w *swarm) begin(line timeline) {
	w.mu.Lock()
	w.line = line
	w.mu.Unlock()
}

// openWindow starts counting; closeWindow ends it.
func (w *swarm) openWindow(win *window) {
	w.mu.Lock()
	win.start = time.Now()
	w.window = win
	w.mu.Unlock()
}

func (w *swarm) closeWindow() {
	w.mu.Lock()
	w.window = nil
	w.mu.Unlock()
}

// sample notes how old what every link shows is. It is only meaningful when every
// tick changes every state.
func (w *swarm) sample() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.window == nil {
		return
	}
	now := time.Now()
	for i := range w.clients {
		if w.windowOf(i) == nil {
			continue
		}
		for _, l := range w.clients[i].links {
			if l.up && l.seen >= w.line.first { // others are of states that stand still
				w.window.staleness.add(now.Sub(w.line.due(l.seen)))
			}
		}
	}
}

func (w *swarm) sayGoodbye() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for i := range w.clients {
		if w.clients[i].phase == clientConnected {
			w.send(i, append(w.socket.room(), byte(wire.CommandConnectionClose)))
		}
	}
	w.socket.flush()
}
