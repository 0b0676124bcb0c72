package variant

import (
	"net/netip"
	"time"

	"github.com/dnprelay/dnprelay/godot/variant"
	"github.com/dnprelay/dnprelay/internal/edge/carrier"
	"github.com/dnprelay/dnprelay/internal/edge/variant/protocol"
	"github.com/dnprelay/dnprelay/internal/edge/websocket"
)

// Subprotocols of WebSocket, for the two generations of Godot that have it.
const (
	Protocol3 = "dnp.variant.v3"
	Protocol4 = "dnp.variant.v4"
)

// Protocols implements websocket.Adapter.
func (a *Adapter) Protocols() []string { return []string{Protocol3, Protocol4} }

// Enter implements websocket.Adapter.
func (a *Adapter) Enter(home netip.Addr) (carrier.Reason, bool) {
	return carrier.TooMany, a.enter(home)
}

// Leave implements websocket.Adapter.
func (a *Adapter) Leave(home netip.Addr) { a.newcomers.Leave(home) }

// Serve implements websocket.Adapter.
func (a *Adapter) Serve(name string, home netip.Addr, socket *websocket.Socket) {
	p := a.newPeer(home)
	dialect := variant.Godot3
	if name == Protocol4 {
		dialect = variant.Godot4
	}
	s := &wsPeer{peer: p, socket: socket, stream: protocol.NewStream(protocol.Config{Dialect: dialect, Client: p}, time.Now()), done: make(chan struct{})}
	p.core = s.stream.Core()
	a.add(p)
	socket.OnConfirmed(s.confirmed)
	go s.write() // ends with the core; close waits for it
	p.end(s.read())
	<-s.done
	p.close()
}

// A wsPeer is a peer by WebSocket.
type wsPeer struct {
	*peer
	socket *websocket.Socket
	stream *protocol.Stream
	done   chan struct{} // closed when write has ended
}

func (s *wsPeer) confirmed(mark uint32) {
	s.mu.Lock()
	s.stream.Confirmed(time.Now(), mark)
	s.mu.Unlock()
	s.wake.Wake()
}

// read hands messages to the core until the connection ends, and returns why.
func (s *wsPeer) read() protocol.Reason {
	for {
		message, reason := s.socket.Read()
		if message == nil {
			switch reason {
			case carrier.Malformed, carrier.TooLong:
				return protocol.Malformed
			case carrier.Silent:
				return protocol.Silent
			}
			return protocol.Gone
		}
		if !s.receive(message) {
			return protocol.Gone
		}
	}
}

// receive hands a message to the core, when that takes it. It reports false if the connection has ended meanwhile.
func (s *wsPeer) receive(message []byte) bool {
	for {
		s.mu.Lock()
		wait := s.stream.Receive(time.Now(), message)
		s.mu.Unlock()
		s.wake.Wake()
		if wait == 0 {
			return true
		}
		select {
		case <-time.After(wait):
		case <-s.done:
			return false
		}
	}
}

// write sends what the core has until the connection ends.
func (s *wsPeer) write() {
	defer close(s.done)
	timer := time.NewTimer(0)
	defer timer.Stop()
	var out batch
	for {
		s.mu.Lock()
		now := time.Now()
		s.stream.Expire(now)
		out.reset()
		mark := s.stream.Advance(now, out.add)
		reason, ended := s.core.Ended()
		ended = ended && s.stream.Over(now)
		due := s.stream.NextTimeout()
		s.mu.Unlock()
		if out.some() || mark != 0 {
			if s.socket.Write(out.list(), mark) != nil {
				s.end(protocol.Gone)
				reason, ended = protocol.Gone, true
			}
		}
		if ended {
			s.socket.Close(closings[reason])
			return
		}
		timer.Reset(time.Until(due))
		select {
		case <-timer.C:
		case <-s.wake:
		}
	}
}

// closings are how a WebSocket is closed, after the peer was told the reason in a message.
var closings = map[protocol.Reason]carrier.Reason{
	protocol.Gone: carrier.Lost, protocol.Leaving: carrier.Leaving, protocol.Full: carrier.Full, protocol.TooMany: carrier.TooMany,
	protocol.NotReady: carrier.NotReady, protocol.Silent: carrier.Silent, protocol.Slow: carrier.Slow,
	protocol.Malformed: carrier.Malformed, protocol.Version: carrier.Malformed, protocol.Over: carrier.Over, protocol.Refused: carrier.Over,
}

// A batch collects messages that are valid for a moment only.
type batch struct {
	data  []byte
	ends  []int
	parts [][]byte
}

// batchKept is how much room a batch keeps.
const batchKept = 4 << 10

func (b *batch) reset() {
	if b.data, b.ends = b.data[:0], b.ends[:0]; cap(b.data) > batchKept {
		b.data = nil
	}
}

func (b *batch) add(p []byte) {
	b.data = append(b.data, p...)
	b.ends = append(b.ends, len(b.data))
}

func (b *batch) some() bool { return len(b.ends) > 0 }

// list returns the messages. They are valid until the next reset.
func (b *batch) list() [][]byte {
	b.parts = b.parts[:0]
	from := 0
	for _, end := range b.ends {
		b.parts = append(b.parts, b.data[from:end])
		from = end
	}
	return b.parts
}
