package websocket

import (
	"context"
	"encoding/binary"
	"net/http"
	"net/netip"
	"slices"

	"github.com/coder/websocket"
	"github.com/dnprelay/dnprelay/internal/edge/carrier"
)

// An Adapter serves WebSockets whose messages are of another protocol than DNP.
type Adapter interface {
	// Protocols are the subprotocols that it serves.
	Protocols() []string

	// Enter takes a place for a connection from a real address, and reports false with the reason if there is none. Leave
	// gives it back if the connection is not made, for which Serve is not called then.
	Enter(home netip.Addr) (carrier.Reason, bool)
	Leave(home netip.Addr)

	// Serve serves a connection until it ends, and closes it.
	Serve(protocol string, home netip.Addr, s *Socket)
}

// A Socket is a WebSocket of an Adapter.
type Socket struct {
	server    *Server
	t         *transport
	first     bool
	confirmed func(mark uint32)
}

// OnConfirmed sets the function that Read calls when the client confirms a mark. The caller sets it before it reads.
func (s *Socket) OnConfirmed(f func(mark uint32)) { s.confirmed = f }

// Read returns the next message, or nil and why there is none. The first one has to come within carrier.FirstTimeout.
func (s *Socket) Read() (p []byte, r carrier.Reason) {
	p, r = s.server.next(s.t, s.first)
	s.first = false
	return p, r
}

// Write sends messages in order with one system call, and behind them a mark for the client to confirm if it is not 0. It may
// block, for carrier.WriteTimeout at most. One goroutine calls it.
func (s *Socket) Write(list [][]byte, mark uint32) error {
	if mark != 0 {
		s.t.Mark(mark)
	}
	return s.t.Write(list)
}

// Close ends the connection and tells the client why. It is called once, after the last Write.
func (s *Socket) Close(r carrier.Reason) { s.t.Close(r) }

// adapter returns who serves a request that is not for DNP, and the subprotocol; nil if that is nobody.
func (s *Server) adapter(r *http.Request) (a Adapter, protocol string) {
	for _, name := range offered(r) {
		for _, a := range s.cfg.Adapters {
			if slices.Contains(a.Protocols(), name) {
				return a, name
			}
		}
	}
	return nil, ""
}

// adapt serves one client of an adapter.
func (s *Server) adapt(w http.ResponseWriter, r *http.Request, a Adapter, protocol string) {
	home := s.cfg.Proxies.Home(r)
	if reason, ok := a.Enter(home); !ok {
		s.cfg.Hub.Refused(reason)
		refuse(w, reason)
		return
	}
	socket := &Socket{server: s, first: true}
	var ok bool
	if socket.t, ok = accept(w, r, protocol, func(payload []byte) {
		if len(payload) == markSize && socket.confirmed != nil {
			socket.confirmed(binary.LittleEndian.Uint32(payload))
		}
	}); !ok {
		a.Leave(home)
		return
	}
	s.serving.Go(func() { a.Serve(protocol, home, socket) }) // not in this goroutine, whose stack and request would remain
}

// accept makes the WebSocket of a request. If it reports false, the request has been answered. Reading calls pong with the
// payload of each pong.
func accept(w http.ResponseWriter, r *http.Request, protocol string, pong func(payload []byte)) (*transport, bool) {
	h := &hijacker{ResponseWriter: w}
	socket, err := websocket.Accept(h, r, &websocket.AcceptOptions{
		Subprotocols: []string{protocol}, InsecureSkipVerify: true, CompressionMode: websocket.CompressionDisabled, // Origins has verified it
		OnPongReceived: func(_ context.Context, payload []byte) { pong(payload) },
	})
	if err != nil {
		return nil, false
	}
	socket.SetReadLimit(-1) // read has a limit of its own
	return &transport{socket: socket, conn: h.conn}, true
}
