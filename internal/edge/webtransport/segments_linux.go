package webtransport

import (
	"bytes"
	"net"
	"net/netip"
	"sync"
	"unsafe"

	"github.com/dnprelay/dnprelay/internal/turn"
	"golang.org/x/sys/unix"
)

// Bounds of what waits to be sent.
const (
	// messagesMax is how many messages wait at most. Beyond it, a connection that sends waits, too.
	messagesMax = 256

	// messageMax and segmentsMax are how long a message may become in bytes and in packets, less than the kernel takes.
	messageMax  = 60_000
	segmentsMax = 32

	// messageKept is the size up to which the room of a message is kept for the next.
	messageKept = 8 << 10
)

// A segmenting is a UDP socket that sends packets of one size to one client with one system call (UDP_SEGMENT), as the sockets of
// UDP clients do. quic-go does so only with packets of the largest size, which datagrams of DNP never have. Most of the cost of a
// packet is the way of a message through the kernel, which the packets of one message share.
//
// A packet waits until the goroutine in run has sent those before it, and no longer.
type segmenting struct {
	*net.UDPConn
	wake turn.Wake // something waits

	// mu guards the rest: all connections send.
	mu     sync.Mutex
	room   sync.Cond // the queue is empty again, or the socket closed
	queue  []message
	latest map[netip.AddrPort]int // by client: the index in queue of its latest message
	closed bool
	single bool // the device refuses UDP_SEGMENT
}

// A message is what one system call sends.
type message struct {
	to       *net.UDPAddr
	control  []byte // without UDP_SEGMENT
	data     []byte
	size     int // of each packet but the last, which may be shorter
	packets  int
	complete bool
}

// newSocket returns the socket that a Server uses for the one that it was given.
func newSocket(socket net.PacketConn) packetSocket {
	u, ok := socket.(*net.UDPConn)
	if !ok {
		return plain{socket}
	}
	s := &segmenting{UDPConn: u, wake: turn.NewWake(), latest: make(map[netip.AddrPort]int)}
	s.room.L = &s.mu
	return s
}

// WriteMsgUDP implements quic.OOBCapablePacketConn. It reports no failure of a packet: the packet is lost, as on any network.
func (s *segmenting) WriteMsgUDP(b, oob []byte, to *net.UDPAddr) (n, oobn int, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.queue) == messagesMax && !s.closed {
		s.room.Wait()
	}
	if s.closed {
		return 0, 0, net.ErrClosed
	}
	at, end, size := segmentSize(oob)
	client := to.AddrPort()
	i, ok := s.latest[client]
	if !ok || s.single || size == 0 || !s.queue[i].add(b, oob[:at], oob[end:]) {
		s.latest[client] = len(s.queue)
		if len(s.queue) == cap(s.queue) {
			s.queue = append(s.queue, message{})
		} else {
			s.queue = s.queue[:len(s.queue)+1]
		}
		s.queue[len(s.queue)-1].set(b, oob[:at], oob[end:], to, size)
	}
	s.wake.Wake()
	return len(b), len(oob), nil
}

// set makes m a message of what quic-go wants to send: one packet, or several of the given size; 0 is one that is no part of others.
func (m *message) set(b, before, behind []byte, to *net.UDPAddr, size int) {
	m.to, m.control = to, append(append(m.control[:0], before...), behind...)
	m.data = append(m.data[:0], b...)
	m.size, m.packets, m.complete = len(b), 1, size == 0
	if size > 0 && len(b) > size {
		m.size, m.packets, m.complete = size, (len(b)+size-1)/size, len(b)%size != 0
	}
}

// add appends a packet, and reports whether the message can have it.
func (m *message) add(b, before, behind []byte) bool {
	if m.complete || m.packets >= segmentsMax || len(b) > m.size || len(m.data)+len(b) > messageMax || len(b) == 0 ||
		len(m.control) != len(before)+len(behind) || !bytes.HasPrefix(m.control, before) || !bytes.HasSuffix(m.control, behind) {
		return false
	}
	m.data = append(m.data, b...)
	m.packets++
	m.complete = len(b) < m.size
	return true
}

// Close implements net.PacketConn. run ends.
func (s *segmenting) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.room.Broadcast()
	s.wake.Wake()
	return s.UDPConn.Close()
}

// run sends what waits until the socket is closed.
func (s *segmenting) run() {
	var taken []message
	var control []byte
	for {
		<-s.wake
		s.mu.Lock()
		taken, s.queue = s.queue, taken[:0]
		clear(s.latest)
		closed, single := s.closed, s.single
		s.mu.Unlock()
		s.room.Broadcast()
		if closed {
			return
		}
		for i := range taken {
			m := &taken[i]
			if m.packets > 1 && !single {
				control = appendSegmentSize(append(control[:0], m.control...), m.size)
				_, _, err := s.UDPConn.WriteMsgUDP(m.data, control, m.to)
				single = err != nil && s.sendSingly(m)
			} else {
				s.sendSingly(m)
			}
			if cap(m.data) > messageKept {
				m.data = nil
			}
		}
		if single {
			s.mu.Lock()
			s.single = true
			s.mu.Unlock()
		}
	}
}

// sendSingly sends the packets of a message one by one, and reports whether the kernel took one. What it does not take is lost.
func (s *segmenting) sendSingly(m *message) (taken bool) {
	for rest := m.data; len(rest) > 0; {
		n := min(len(rest), m.size)
		_, _, err := s.UDPConn.WriteMsgUDP(rest[:n], m.control, m.to)
		taken = taken || err == nil
		rest = rest[n:]
	}
	return taken
}

// segmentSize returns where in control messages the one of UDP_SEGMENT is, and its value; 0 and nothing if there is none.
func segmentSize(oob []byte) (at, end, size int) {
	for at+unix.SizeofCmsghdr <= len(oob) {
		h := (*unix.Cmsghdr)(unsafe.Pointer(&oob[at]))
		space := unix.CmsgSpace(int(h.Len) - unix.CmsgLen(0))
		if int(h.Len) < unix.CmsgLen(0) || at+space > len(oob) {
			break
		}
		if h.Level == unix.IPPROTO_UDP && h.Type == unix.UDP_SEGMENT && space == unix.CmsgSpace(2) {
			return at, at + space, int(*(*uint16)(unsafe.Pointer(&oob[at+unix.CmsgLen(0)])))
		}
		at += space
	}
	return len(oob), len(oob), 0
}

// appendSegmentSize appends the control message of UDP_SEGMENT.
func appendSegmentSize(oob []byte, size int) []byte {
	at := len(oob)
	oob = append(oob, make([]byte, unix.CmsgSpace(2))...)
	h := (*unix.Cmsghdr)(unsafe.Pointer(&oob[at]))
	h.Level, h.Type = unix.IPPROTO_UDP, unix.UDP_SEGMENT
	h.SetLen(unix.CmsgLen(2))
	*(*uint16)(unsafe.Pointer(&oob[at+unix.CmsgLen(0)])) = uint16(size)
	return oob
}
