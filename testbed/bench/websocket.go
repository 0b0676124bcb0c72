//go:build linux

package bench

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// WebSockets of the swarm speak the minimum of RFC 6455 themselves, on sockets that package net does not know, so that the edge
// is measured and not a client library that wakes a goroutine per message.
const (
	wsSlotBytes = 128 << 10 // for what one client reads at once
	wsRequest   = "GET /dnp HTTP/1.1\r\nHost: bench\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n" +
		"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: dnp.v1\r\n\r\n"

	// wsDialTimeout bounds each step of an upgrade.
	wsDialTimeout = 10 * time.Second

	// Opcodes.
	wsText, wsBinary, wsClose, wsPing, wsPong = 1, 2, 8, 9, 10

	wsFinal  = 0x80 // in the first byte
	wsMasked = 0x80 // in the second

	// tcpSegment and tcpHeaders are what a segment of Ethernet brings, and its headers of TCP with time stamps and of
	// IPv4. Loopback has longer segments, but what is measured is for networks.
	tcpSegment, tcpHeaders = 1448, 52
)

// A webSockets is the carrier of clients that have a WebSocket each.
type webSockets struct {
	poll    int // epoll
	clients []wsClient
	dialer  *dialer[wsDialed]
	room    []byte
	dirty   []int // clients with something to write
	arrived []arrival
	events  [socketBatch]unix.EpollEvent
	memory  [socketBatch][wsSlotBytes]byte // what the clients of events have read
	ended   []int                          // clients whose connections ended
	bytes   uint64
}

// A wsClient is the WebSocket of one client.
type wsClient struct {
	fd      int // 0 for none
	dialing bool
	rest    []byte // the begin of a frame that is not complete
	out     []byte
}

// A wsDialed is a new WebSocket, and what came behind the greeting.
type wsDialed struct {
	fd   int
	rest []byte
}

func openWebSockets(clients int, edgeOf func(client int) netip.AddrPort) (*webSockets, error) {
	poll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("epoll_create1", err)
	}
	return &webSockets{poll: poll, clients: make([]wsClient, clients), room: make([]byte, 0, slotBytes), dialer: newDialer(func(client int) (wsDialed, error) {
		return dialWebSocket(client, edgeOf(client))
	})}, nil
}

// Close ends all connections.
func (w *webSockets) Close() {
	for _, d := range w.dialer.end() {
		if d.err == nil {
			_ = unix.Close(d.conn.fd)
		}
	}
	for i := range w.clients {
		w.drop(i)
	}
	_ = unix.Close(w.poll) // an error would change nothing
}

func (w *webSockets) drop(client int) {
	if c := &w.clients[client]; c.fd != 0 {
		_ = unix.Close(c.fd) // which epoll notices
		*c = wsClient{}
		w.ended = append(w.ended, client)
	}
}

func (w *webSockets) overflows() uint32 { return 0 } // an edge that cannot write notices it
func (w *webSockets) received() uint64  { return w.bytes }
func (w *webSockets) failure() error    { return w.dialer.failure() }

// read implements carrier.
func (w *webSockets) read() (int, error) {
	w.arrived = w.arrived[:0]
	for _, d := range w.dialer.take() {
		w.opened(d)
	}
	n, err := unix.EpollWait(w.poll, w.events[:], 0)
	if err != nil && !errors.Is(err, unix.EINTR) {
		return 0, os.NewSyscallError("epoll_wait", err)
	}
	for i := range max(0, n) {
		w.receive(int(w.events[i].Fd), w.memory[i][:])
	}
	for _, client := range w.ended {
		w.arrived = append(w.arrived, arrival{client: client})
	}
	w.ended = w.ended[:0]
	return len(w.arrived), nil
}

func (w *webSockets) datagram(i int) arrival { return w.arrived[i] }

// opened begins to use a new connection. A client that could not connect does so with its next datagram.
func (w *webSockets) opened(d dialed[wsDialed]) {
	c := &w.clients[d.client]
	c.dialing = false
	if d.err != nil {
		return
	}
	c.fd = d.conn.fd
	event := unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(d.client)}
	if unix.EpollCtl(w.poll, unix.EPOLL_CTL_ADD, c.fd, &event) != nil {
		w.drop(d.client)
		return
	}
	w.dirty = append(w.dirty, d.client)
	w.split(d.client, d.conn.rest)
}

// receive reads from the socket of a client, once; epoll tells if there is more.
func (w *webSockets) receive(client int, memory []byte) {
	c := &w.clients[client]
	have := copy(memory, c.rest)
	n, err := unix.Read(c.fd, memory[have:])
	switch {
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.EINTR):
		return
	case err != nil, n == 0: // it ended, or a frame is longer than any
		w.drop(client)
		return
	}
	w.bytes += uint64(n + (n+tcpSegment-1)/tcpSegment*tcpHeaders)
	w.split(client, memory[:have+n])
}

// split handles the frames in what a client has read.
func (w *webSockets) split(client int, rest []byte) {
	c := &w.clients[client]
	for {
		op, payload, next, ok := nextFrame(rest)
		if !ok {
			break
		}
		rest = next
		switch op {
		case wsBinary:
			w.arrived = append(w.arrived, arrival{client: client, data: payload})
		case wsPing:
			w.write(client, wsPong, payload)
		case wsClose:
			w.drop(client)
			return
		}
	}
	c.rest = append(c.rest[:0], rest...)
}

// nextFrame returns the first frame of a server in b, and what is behind it. It reports false if it is not complete.
func nextFrame(b []byte) (op byte, payload, rest []byte, ok bool) {
	if len(b) < 2 {
		return 0, nil, nil, false
	}
	size, head := uint64(b[1]), 2
	switch {
	case size == 126 && len(b) >= 4:
		size, head = uint64(binary.BigEndian.Uint16(b[2:])), 4
	case size == 127 && len(b) >= 10:
		size, head = binary.BigEndian.Uint64(b[2:]), 10
	case size >= 126:
		return 0, nil, nil, false
	}
	if uint64(len(b)-head) < size {
		return 0, nil, nil, false
	}
	end := head + int(size)
	return b[0] &^ wsFinal, b[head:end], b[end:], true
}

// Room implements carrier.
func (w *webSockets) Room() []byte { return w.room[:0] }

func (w *webSockets) send(client int, data []byte) {
	c := &w.clients[client]
	if c.fd == 0 {
		c.out = c.out[:0] // only the latest
		if !c.dialing {
			c.dialing = true
			w.dialer.begin(client)
		}
	}
	w.write(client, wsBinary, data)
}

// write queues a frame. Its mask is 0, which costs an edge as much as any other.
func (w *webSockets) write(client int, op byte, payload []byte) {
	c := &w.clients[client]
	if len(c.out) == 0 && c.fd != 0 {
		w.dirty = append(w.dirty, client)
	}
	c.out = append(c.out, wsFinal|op)
	if len(payload) < 126 {
		c.out = append(c.out, wsMasked|byte(len(payload)))
	} else {
		c.out = binary.BigEndian.AppendUint16(append(c.out, wsMasked|126), uint16(len(payload)))
	}
	c.out = append(append(c.out, 0, 0, 0, 0), payload...)
}

// Flush implements carrier. What a socket does not take is sent with the next Flush.
func (w *webSockets) Flush() {
	again := w.dirty[:0]
	for _, client := range w.dirty {
		c := &w.clients[client]
		if c.fd == 0 || len(c.out) == 0 {
			continue
		}
		n, err := unix.Write(c.fd, c.out)
		if err != nil && !errors.Is(err, unix.EAGAIN) && !errors.Is(err, unix.EINTR) {
			w.drop(client)
			continue
		}
		c.out = c.out[:copy(c.out, c.out[max(0, n):])]
		if len(c.out) > 0 {
			again = append(again, client)
		}
	}
	w.dirty = again
}

// dialWebSocket connects a client from its own address, and waits for the greeting.
func dialWebSocket(client int, edge netip.AddrPort) (d wsDialed, err error) {
	d.fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return d, os.NewSyscallError("socket", err)
	}
	if d.rest, err = upgrade(d.fd, ClientAddress(client), edge); err == nil {
		err = unix.SetNonblock(d.fd, true)
	}
	if err != nil {
		_ = unix.Close(d.fd)
		return d, fmt.Errorf("WebSocket of client %d: %w", client, err)
	}
	return d, nil
}

func upgrade(fd int, from uint32, edge netip.AddrPort) (rest []byte, err error) {
	timeout := unix.NsecToTimeval(int64(wsDialTimeout))
	own := &unix.SockaddrInet4{}
	binary.BigEndian.PutUint32(own.Addr[:], from)
	err = errors.Join(
		unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1), unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1),
		unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &timeout), unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_SNDTIMEO, &timeout),
		unix.Bind(fd, own),
	)
	if err == nil {
		err = unix.Connect(fd, &unix.SockaddrInet4{Port: int(edge.Port()), Addr: edge.Addr().As4()})
	}
	if err == nil {
		_, err = unix.Write(fd, []byte(wsRequest))
	}
	if err != nil {
		return nil, err
	}
	var got []byte
	for buf := make([]byte, 1024); len(got) < wsSlotBytes; {
		n, err := unix.Read(fd, buf)
		if err != nil || n == 0 {
			return nil, fmt.Errorf("no greeting after %d bytes: %w", len(got), errors.Join(err))
		}
		got = append(got, buf[:n]...)
		if head, frames, ok := bytes.Cut(got, []byte("\r\n\r\n")); ok {
			if !bytes.HasPrefix(head, []byte("HTTP/1.1 101 ")) {
				return nil, fmt.Errorf("the edge refuses it: %.200q", head)
			}
			if op, _, rest, ok := nextFrame(frames); ok && op == wsText {
				return rest, nil
			}
		}
	}
	return nil, errors.New("a greeting without end")
}
