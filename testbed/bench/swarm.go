//go:build linux

package bench

import (
	"bytes"
	"cmp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/latency"
	"golang.org/x/sys/unix"
)

// A Swarm is all clients of a case, on one carrier and in one goroutine.
type Swarm struct {
	carrier carrier
	script  *script

	// Set in Do.
	Counted int // clients[:Counted] count in windows; 0 means all
	Stalled int // this client answers nothing; -1 means that all answer

	// Login returns the message with which a client logs in. Set it before clients connect; nil
	// means that they do not log in.
	Login func(index int) []byte

	look time.Duration // see Pace; 0 if it was not called

	// Watch is told what clients receive; nil means that nothing is. Set it before clients connect.
	Watch Watcher

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
	resting           atomic.Bool // see rest
}

// A Watcher sees what arrives, in the goroutine of the swarm, which holds the lock of Do. It must not call the swarm. Data are valid
// until it returns.
type Watcher interface {
	// Received sees each datagram of an edge, before the other methods see what is in it.
	Received(now time.Time, client int, data []byte)

	// Linked sees an offer of a link, repeated ones too. The client accepts all.
	Linked(now time.Time, client int, m wire.LinkState)

	// Updated sees a LinkUpdate after its command byte, in place of the counters of a [Window].
	Updated(now time.Time, client int, data []byte)
}

// A Client is one DNP peer. It drops values and messages, which a real one keeps.
type Client struct {
	Edge      uint8 // index in the edges of the stack
	Phase     uint8
	Began, In time.Time // when it began to connect, and had all its links
	up        int       // links

	Interrupted bool          // see MarkInterrupted
	requested   time.Time     // when it sent its request, or its login, last
	login       time.Time     // when it logged in first
	hellos      []wire.LinkID // that it has answered
	Links       []ClientLink  // by slot, see SlotOf
}

// Phases of a client.
const (
	ClientIdle uint8 = iota
	Connecting
	LoggingIn
	Connected
	Closed
)

// A ClientLink is a link of a client and the newest tick that it has seen.
type ClientLink struct {
	Up   bool
	Seen uint32
}

// connectResend is how long a client waits for an answer, and loginResend for that to its
// login, which it gives up after loginGiveUp, as libraries do. The swarm spreads requests:
// connectsPerTurn each connectPause, 5,000 per second.
const (
	connectResend   = time.Second
	loginResend     = 500 * time.Millisecond
	loginGiveUp     = 3 * time.Second
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
	Latency   latency.Histogram
	staleness latency.Histogram
	record    []Sent // of the first datagrams with updates
	sample    []byte // the largest datagram
	carried   uint64 // bytes of the carrier with all headers; 0 for UDP
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

// NewSwarm returns the clients of a case. Start lets them live.
func NewSwarm(c *Case, stack *Stack) (*Swarm, error) { return newSwarm(newScript(c), stack) }

func newSwarm(s *script, stack *Stack) (*Swarm, error) {
	carrier, err := openCarrier(s.c, stack)
	if err != nil {
		return nil, err
	}
	w := &Swarm{carrier: carrier, script: s, clients: make([]Client, s.c.Clients), Stalled: -1, stopped: make(chan struct{})}
	for i := range w.clients {
		w.clients[i].Edge = uint8(i % len(stack.Edges))
	}
	return w, nil
}

// Pace has a swarm whose carrier is UDP look for datagrams each so often, and many at once, instead of whenever one may be there.
// So they cost less, and what they say of times is exact, because the kernel tells when it had each of them. Call it before Start.
func (w *Swarm) Pace(look time.Duration) error {
	w.look = look
	return w.socket().stamp()
}

// Start starts the goroutine of the swarm.
func (w *Swarm) Start() { go w.run() }

// run is the goroutine of the swarm. It ends after stop, or when the socket fails.
func (w *Swarm) run() {
	defer close(w.stopped)
	for !w.stopping.Load() {
		n, err := w.turn()
		switch {
		case err != nil:
			Progress("the clients end: %v", err)
			return
		case n == 0, w.look > 0 && n < socketBatch:
			w.pause()
		}
	}
	w.Do(func(clients []Client) {
		for i := range clients {
			if clients[i].Phase == Connected {
				w.send(i, append(w.carrier.Room(), byte(wire.CommandConnectionClose)))
			}
		}
	})
}

// pause waits until the next look, in the kernel, because a timer of the runtime would have a thread wait for it in epoll.
func (w *Swarm) pause() {
	pause := unix.NsecToTimespec(int64(cmp.Or(w.look, lookInterval)))
	if w.resting.Load() {
		pause = unix.NsecToTimespec(int64(restInterval))
	}
	_ = unix.Nanosleep(&pause, nil) // a signal that ends it early does no harm
}

// rest makes the swarm look seldom, while another swarm is measured.
func (w *Swarm) rest(on bool) { w.resting.Store(on) }

// Stop closes the connections of all clients and ends the goroutine.
func (w *Swarm) Stop() {
	w.stopping.Store(true)
	<-w.stopped
	w.carrier.Close()
}

// turn handles what has arrived, and returns how many datagrams that were.
func (w *Swarm) turn() (n int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.read()
}

func (w *Swarm) read() (n int, err error) {
	if n, err = w.carrier.read(); err != nil {
		return 0, err
	}
	now := time.Now()
	wall := now.UnixNano()
	w.connectDue(now)
	last := w.line.last(now)
	for i := range n {
		a := w.carrier.datagram(i)
		switch {
		case a.client < 0 || a.client >= len(w.clients):
		case a.data == nil:
			w.close(a.client)
		case !a.baseline:
			at := now
			if a.stamp != 0 {
				at = now.Add(-time.Duration(max(0, wall-a.stamp)))
			}
			w.receive(at, last, a.client, a.data)
		case w.window == nil && wire.Command(a.data[0]) == wire.CommandLinkUpdate:
			// A datagram of a baseline, outside of windows. It is read like one of an edge,
			// because reading slows a sender on the other hyperthread of the core.
			w.updates(now, last, a.client, a.data)
		}
	}
	w.carrier.Flush()
	return n, nil
}

// connectDue sends the connection requests and logins that are due.
func (w *Swarm) connectDue(now time.Time) {
	if int(w.connected.Load()+w.closed.Load()) == w.wanted || now.Sub(w.asked) < connectPause {
		return
	}
	w.asked = now
	sent := 0
	for i := range w.clients[:w.wanted] {
		c := &w.clients[i]
		waited := now.Sub(c.requested)
		switch {
		case c.Phase > LoggingIn, c.Phase == Connecting && waited < connectResend, c.Phase == LoggingIn && waited < loginResend:
			continue
		case c.Phase == LoggingIn && now.Sub(c.login) >= loginGiveUp:
			w.close(i)
			continue
		case c.Phase == LoggingIn:
			w.logIn(now, i)
		default:
			w.request(now, i)
		}
		if sent++; sent == connectsPerTurn {
			return
		}
	}
}

func (w *Swarm) request(now time.Time, index int) {
	c := &w.clients[index]
	if c.Phase == ClientIdle {
		c.Phase, c.Began = Connecting, now
	}
	c.requested = now
	w.send(index, wire.AppendConnectionRequest(w.carrier.Room()))
}

// logIn sends the login of a client, its first reliable message.
func (w *Swarm) logIn(now time.Time, index int) {
	w.clients[index].requested = now
	w.send(index, wire.ReliableMessage{Data: w.Login(index)}.Append(w.carrier.Room()))
}

// accepted handles that the edge answered the request of a client.
func (w *Swarm) accepted(now time.Time, index int) {
	if w.Login == nil {
		w.enter(index)
		return
	}
	c := &w.clients[index]
	c.Phase, c.login = LoggingIn, now
	w.logIn(now, index)
}

func (w *Swarm) enter(index int) {
	w.clients[index].Phase = Connected
	w.connected.Add(1)
}

func (w *Swarm) send(index int, data []byte) {
	w.carrier.send(index, data)
}

// receive handles one datagram of an edge.
func (w *Swarm) receive(now time.Time, last uint32, index int, data []byte) {
	c := &w.clients[index]
	if index == w.Stalled || c.Phase == Closed {
		return
	}
	if w.Watch != nil {
		w.Watch.Received(now, index, data)
	}
	switch wire.Command(data[0]) {
	case wire.CommandConnectionAck:
		if c.Phase == Connecting {
			w.accepted(now, index)
		}
	case wire.CommandReliableAck:
		if c.Phase == LoggingIn { // it has sent nothing else
			w.enter(index)
		}
	case wire.CommandConnectionClose:
		w.close(index)
	case wire.CommandReliableMessage, wire.CommandReliableMessageLong:
		w.acknowledge(index, data)
	case wire.CommandReliableLinkState:
		w.acknowledge(index, data)
		w.link(now, index, data)
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
	switch c.Phase {
	case LoggingIn:
	case Connected:
		w.connected.Add(-1)
	default:
		return
	}
	c.Phase = Closed
	w.closed.Add(1)
	if win := w.windowOf(index); win != nil {
		win.lost++
	}
}

// acknowledge answers a reliable command. Order and repetition do not matter: no reliable
// command has an effect when it arrives again.
func (w *Swarm) acknowledge(index int, data []byte) {
	if _, seq, ok := wire.Numbered(data); ok {
		w.send(index, wire.ReliableAck{Seq: seq, Code: wire.AckSuccess}.Append(w.carrier.Room()))
	}
}

// link accepts a link.
func (w *Swarm) link(now time.Time, index int, data []byte) {
	m, err := wire.ParseLinkState(data[1:])
	if err != nil {
		return
	}
	c := &w.clients[index]
	if string(m.Message) == "h" { // a hello, whose id is any
		if !slices.Contains(c.hellos, m.Link) { // libraries answer the first only
			c.hellos = append(c.hellos, m.Link)
			w.send(index, wire.LinkUp{Link: m.Link}.Append(w.carrier.Room()))
		}
		return
	}
	if w.Watch != nil {
		w.Watch.Linked(now, index, m)
	}
	slot := SlotOf(m.Link)
	for slot >= len(c.Links) {
		c.Links = append(c.Links, ClientLink{})
	}
	if !c.Links[slot].Up {
		c.Links[slot].Up = true
		w.linked.Add(1)
		if c.up++; c.up == w.script.c.linksPerClient() {
			c.In = now
		}
	}
	w.send(index, wire.LinkUp{Link: m.Link}.Append(w.carrier.Room()))
}

// SlotOf numbers LinkIds in the order in which a server gives them: 0x8000 up to
// 0xFFFE, then 0x7FFF down.
func SlotOf(id wire.LinkID) int {
	if id >= 0x8000 {
		return int(id) - 0x8000
	}
	return 0x7FFF + 0x7FFF - int(id)
}

// updates counts the updates of a LinkUpdate.
func (w *Swarm) updates(now time.Time, last uint32, index int, data []byte) {
	if w.Watch != nil {
		w.Watch.Updated(now, index, data[1:])
		return
	}
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
		slot := SlotOf(id)
		if slot >= len(c.Links) || !c.Links[slot].Up {
			continue
		}
		l := &c.Links[slot]
		switch fresh := newest > l.Seen; {
		case win == nil:
		case fresh:
			win.Updates++
			win.Latency.Add(now.Sub(w.line.due(newest)))
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

// Connected returns how many clients are connected.
func (w *Swarm) Connected() int { return int(w.connected.Load()) }

// Closed returns how many connections an edge ended.
func (w *Swarm) Closed() int { return int(w.closed.Load()) }

// Overflows returns how many datagrams were lost because the swarm was too slow.
func (w *Swarm) Overflows() uint32 { return w.carrier.overflows() }

// Connect lets the first n clients connect.
func (w *Swarm) Connect(n int) { w.Do(func([]Client) { w.wanted = n }) }

// In returns how many clients have all their links.
func (w *Swarm) In() (n int) {
	w.Do(func(clients []Client) {
		for i := range clients {
			if c := &clients[i]; c.Phase == Connected && !c.In.IsZero() {
				n++
			}
		}
	})
	return n
}

// Do calls f with all clients while the goroutine of the swarm waits, and sends what f
// gave to Send.
func (w *Swarm) Do(f func(clients []Client)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f(w.clients)
	w.carrier.Flush()
}

// DoNow is Do after the clients have received what has arrived, for f that asks what they show: whoever waits for a core shows what is
// in its socket already.
func (w *Swarm) DoNow(f func(clients []Client)) {
	w.Do(func(clients []Client) {
		for range catchUpMax {
			if n, err := w.read(); n < socketBatch || err != nil { // run gets the error too
				break
			}
		}
		f(clients)
	})
}

// catchUpMax bounds the batches that DoNow reads, so that it ends although edges send more: so many fill the buffer of the socket.
const catchUpMax = swarmBuffer / slotBytes / socketBatch

// Send sends a datagram as a client, with the address of the client. It is called in Do.
func (w *Swarm) Send(index int, data []byte) { w.send(index, append(w.carrier.Room(), data...)) }

// Sender returns a socket with a queue of its own that sends from the port of a swarm whose carrier is UDP.
func (w *Swarm) Sender() *Socket {
	own := w.socket()
	s := &Socket{fd: own.fd, port: own.port}
	s.out.init()
	return s
}

// socket returns the socket of a swarm whose carrier is UDP.
func (w *Swarm) socket() *Socket { return w.carrier.(*udpCarrier).Socket }

// MarkInterrupted marks the clients with a link that shows a tick older than an age. It is
// called in Do, and marks none between windows, when no state changes.
func (w *Swarm) MarkInterrupted(age time.Duration) {
	if w.window == nil {
		return
	}
	for i := range w.clients {
		c := &w.clients[i]
		c.Interrupted = c.Interrupted || slices.ContainsFunc(c.Links, func(l ClientLink) bool {
			return l.Up && l.Seen >= w.line.first && time.Since(w.line.due(l.Seen)) > age
		})
	}
}

// begin sets the times of the next ticks.
func (w *Swarm) begin(line timeline) { w.Do(func([]Client) { w.line = line }) }

// count begins to count in a window, or ends it if win is nil.
func (w *Swarm) count(win *Window) {
	w.Do(func([]Client) {
		if w.window != nil {
			w.window.carried = w.carrier.received() - w.window.carried
		}
		w.window = win
		if win != nil {
			win.carried = w.carrier.received()
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
					win.staleness.Add(now.Sub(w.line.due(l.Seen)))
				}
			}
		}
	})
}
