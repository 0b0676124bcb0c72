// Package viewertest is a viewer for tests and benchmarks of edges: it opens a circuit, confirms the region, and keeps what it
// sees. It is not package viewer the other way round, and shares no code with it.
package viewertest

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/lludp"
	"github.com/dnprelay/dnprelay/lludp/wire"
)

// Numbers of messages, and places in bodies, that the tests need.
const (
	regionHandshakeReply wire.Number = 0xFFFF0095
	chatFromViewer       wire.Number = 0xFFFF0050
	agentThrottle        wire.Number = 0xFFFF0051
	logoutRequest        wire.Number = 0xFFFF00FC
	logoutReply          wire.Number = 0xFFFF00FD
	multipleObjectUpdate wire.Number = 0xFF02
)

// An Object is an object as the viewer sees it.
type Object struct {
	Position [3]float32
	Text     string
	Moves    int
}

// A Viewer is connected until it logs out, the edge ends the circuit, or Close.
type Viewer struct {
	conn    *net.UDPConn
	opening wire.Opening
	running sync.WaitGroup

	// mu guards the rest: the goroutine that reads and those of the test meet here.
	mu      sync.Mutex
	circuit *lludp.Circuit
	objects map[uint32]*Object
	heard   []string
	ready   bool
	left    bool
	ended   bool
	changed chan struct{} // closed at each change
}

// Dial opens a circuit and waits until the edge answers.
func Dial(ctx context.Context, edge netip.AddrPort, o wire.Opening) (*Viewer, error) {
	conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(edge))
	if err != nil {
		return nil, err
	}
	circuit, err := lludp.New(time.Now(), lludp.Config{})
	if err != nil {
		return nil, err
	}
	v := &Viewer{conn: conn, opening: o, circuit: circuit, objects: map[uint32]*Object{}, changed: make(chan struct{})}
	v.running.Go(v.run)
	v.send(wire.UseCircuitCode, o.Append(nil))
	v.send(wire.CompleteAgentMovement, binary.LittleEndian.AppendUint32(v.identity(), o.Code))
	if err := v.Until(ctx, func() bool { return v.ready || v.ended }); err != nil {
		v.Close()
		return nil, fmt.Errorf("the edge does not answer: %w", err)
	}
	return v, nil
}

// Close forgets the circuit without a word.
func (v *Viewer) Close() {
	_ = v.conn.Close()
	v.running.Wait()
}

// Addr returns the address of the viewer.
func (v *Viewer) Addr() netip.AddrPort { return v.conn.LocalAddr().(*net.UDPAddr).AddrPort() }

func (v *Viewer) identity() []byte {
	return append(append([]byte(nil), v.opening.Agent[:]...), v.opening.Session[:]...)
}

// Datagram implements lludp.Sender.
func (v *Viewer) Datagram(size int) []byte { return make([]byte, 0, size) }

// Send implements lludp.Sender.
func (v *Viewer) Send(b []byte) { _, _ = v.conn.Write(b) } // a lost packet is repeated

func (v *Viewer) send(n wire.Number, body []byte) {
	v.mu.Lock()
	defer v.mu.Unlock()
	_ = v.circuit.Send(time.Now(), lludp.Message{Number: n, Body: body, Reliable: true}, v) // it fails when the circuit has ended
}

func (v *Viewer) run() {
	buffer := make([]byte, wire.ReceiveMax)
	for {
		v.mu.Lock()
		v.handle(v.circuit.Advance(time.Now(), v))
		due, ok := v.circuit.NextTimeout()
		v.mu.Unlock()
		if !ok || v.conn.SetReadDeadline(due) != nil {
			return
		}
		n, err := v.conn.Read(buffer)
		if e, timeout := err.(net.Error); err != nil && (!timeout || !e.Timeout()) {
			return
		}
		if err == nil {
			v.mu.Lock()
			v.handle(v.circuit.Receive(time.Now(), buffer[:n], v))
			v.mu.Unlock()
		}
	}
}

// handle takes events. mu is held.
func (v *Viewer) handle(events []lludp.Event) {
	for _, e := range events {
		switch e.Kind {
		case lludp.EventPacket:
			v.message(e.Packet)
		case lludp.EventClosed:
			v.ended = true
		}
	}
	if len(events) > 0 {
		close(v.changed)
		v.changed = make(chan struct{})
	}
}

func (v *Viewer) message(p wire.Packet) {
	b := p.Body
	switch p.Number {
	case wire.RegionHandshake:
		v.ready = true
		_ = v.circuit.Send(time.Now(), lludp.Message{Number: regionHandshakeReply, Body: append(v.identity(), 0, 0, 0, 0), Reliable: true}, v)
	case wire.ObjectUpdate:
		for n, at := int(b[10]), 11; n > 0; n-- {
			at += v.object(b[at:])
		}
	case wire.ImprovedTerseObjectUpdate:
		for i := range int(b[10]) {
			move := b[11+47*i:]
			if o := v.objects[binary.LittleEndian.Uint32(move[1:])]; o != nil {
				o.Position = vector(move[7:])
				o.Moves++
			}
		}
	case wire.KillObject:
		for i := range int(b[0]) {
			delete(v.objects, binary.LittleEndian.Uint32(b[1+4*i:]))
		}
	case wire.ChatFromSimulator:
		at := 1 + int(b[0]) + 32 + 3 + 12
		n := int(binary.LittleEndian.Uint16(b[at:]))
		v.heard = append(v.heard, string(b[at+2:at+2+n-1]))
	case logoutReply:
		v.left = true
	}
}

// object reads one object of ObjectUpdate, and returns its size.
func (v *Viewer) object(b []byte) int {
	const text = 4 + 1 + 16 + 4 + 3 + 12 + 61 + 4 + 4 + 2 + 4 + 2 + 9 + 6 + 2 + 1 + 2 + 2 // where its text is, as this edge writes it
	id := binary.LittleEndian.Uint32(b)
	n := int(b[text])
	o := v.objects[id]
	if o == nil {
		o = &Object{}
		v.objects[id] = o
	}
	o.Position, o.Text = vector(b[41:]), string(b[text+1:text+n])
	return text + 1 + n + 4 + 1 + 1 + 2 + 32 + 34
}

func vector(b []byte) (v [3]float32) {
	for i := range v {
		v[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return v
}

// Until waits until reached returns true, which is called with what the viewer knows locked.
func (v *Viewer) Until(ctx context.Context, reached func() bool) error {
	for {
		v.mu.Lock()
		ok, changed := reached(), v.changed
		v.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Objects returns what the viewer sees, for the functions that Until calls.
func (v *Viewer) Objects() map[uint32]*Object { return v.objects }

// Heard reports whether the viewer heard a text, for the functions that Until calls.
func (v *Viewer) Heard(text string) bool {
	for _, h := range v.heard {
		if h == text {
			return true
		}
	}
	return false
}

// Left reports whether the edge confirmed the logout.
func (v *Viewer) Left() bool { return v.left }

// Ended reports whether the circuit has ended.
func (v *Viewer) Ended() bool { return v.ended }

// Say says something.
func (v *Viewer) Say(text string) {
	b := binary.LittleEndian.AppendUint16(v.identity(), uint16(len(text)+1))
	v.send(chatFromViewer, append(append(b, text...), 0, 1, 0, 0, 0, 0))
}

// Move moves an object.
func (v *Viewer) Move(id uint32, to [3]float32) {
	b := binary.LittleEndian.AppendUint32(append(v.identity(), 1), id)
	b = append(b, 1, 12)
	for _, f := range to {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
	}
	v.send(multipleObjectUpdate, b)
}

// Throttle asks for so many bits per second.
func (v *Viewer) Throttle(bits float32) {
	b := binary.LittleEndian.AppendUint32(v.identity(), v.opening.Code)
	b = append(binary.LittleEndian.AppendUint32(b, 1), 28)
	for range 7 {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(bits/7))
	}
	v.send(agentThrottle, b)
}

// Tell tells where the camera is.
func (v *Viewer) Tell(camera [3]float32) {
	b := append(v.identity(), make([]byte, 25)...)
	for _, f := range camera {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(f))
	}
	v.send(wire.AgentUpdate, append(b, make([]byte, 45)...))
}

// Logout ends the session.
func (v *Viewer) Logout() { v.send(logoutRequest, v.identity()) }
