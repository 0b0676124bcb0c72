package forward

import (
	"encoding/binary"
	"net/netip"
)

// A Type is what a cluster datagram is. A number is part of the wire format.
type Type uint8

// The types.
const (
	TypeIn        Type = 1 // a client's datagram, to the edge that serves the client
	TypeOut       Type = 2 // an answer, to the edge whose address the client knows
	TypeNack      Type = 3 // the receiver of a TypeIn or TypeOut refuses it
	TypeHeartbeat Type = 4 // the sender is alive
)

// Sizes in bytes.
const (
	version    = 1
	headerSize = 20
	tagSize    = 16
	bodyMin    = 1 + 8 + 8 + 4 + 2 + 2 // of a client with an IPv4 address
	bodyMax    = bodyMin + 12          // of one with IPv6

	// OverheadMax is by how much a client's datagram grows. It grows by 12 bytes less if
	// the client has an IPv4 address.
	OverheadMax = headerSize + bodyMax + tagSize

	// DatagramMax is the largest datagram of a client that the router forwards: what UDP
	// over IPv4 carries, less the overhead.
	DatagramMax = 65507 - OverheadMax

	// HopsMax is how often a client's datagram may be forwarded. The second time is for a
	// session that moved while the datagram was under way; a third would be a loop.
	HopsMax = 2
)

// A header is the part of a datagram that is in the clear, but authenticated:
//
//	version uint8 = 1
//	type    uint8
//	key     uint16  name of the key of the ring
//	sender  uint64  of the process; never used twice
//	counter uint64  of the sender for this receiver; never twice
//
// Numbers are little endian.
type header struct {
	kind    Type
	key     uint16
	sender  uint64
	counter uint64
}

func (h header) append(b []byte) []byte {
	b = append(b, version, byte(h.kind))
	b = binary.LittleEndian.AppendUint16(b, h.key)
	b = binary.LittleEndian.AppendUint64(b, h.sender)
	return binary.LittleEndian.AppendUint64(b, h.counter)
}

// parseHeader parses the header that p begins with. A sealed datagram is never shorter than
// header and tag.
func parseHeader(p []byte) (h header, drop DropReason) {
	if len(p) < headerSize+tagSize {
		return h, DropMalformed
	}
	if p[0] != version {
		return h, DropVersion
	}
	h.kind = Type(p[1])
	h.key = binary.LittleEndian.Uint16(p[2:])
	h.sender = binary.LittleEndian.Uint64(p[4:])
	h.counter = binary.LittleEndian.Uint64(p[12:])
	if h.kind < TypeIn || h.kind > TypeHeartbeat {
		return h, DropMalformed
	}
	return h, dropNone
}

// A Client is one end of a session: the address of a client and the port of the
// listener that it speaks to, because an edge may have several.
type Client struct {
	Addr     netip.AddrPort
	Listener uint16
}

// A message is the sealed part of a datagram. A heartbeat has none:
//
//	flags    uint8   bit 0: the client has IPv6; bit 1: of a TypeNack, it refuses a TypeOut;
//	                 bits 2 and 3: how often it was forwarded, 1 or 2 (TypeIn), else 0
//	epoch    uint64  of the session: that of the owner (TypeOut), the highest that the sender knows, or 0
//	origin   uint64  the process by which answers leave (TypeIn); else 0
//	address  4 or 16 bytes
//	port     uint16
//	listener uint16
//	data     the rest; empty in a TypeNack
type message struct {
	refusesOut bool
	hops       uint8
	epoch      uint64
	origin     uint64
	client     Client
	data       []byte
}

const (
	flagIPv6       = 1
	flagRefusesOut = 2
	shiftHops      = 2
)

func (m *message) append(b []byte) []byte {
	flags := m.hops << shiftHops
	ip := m.client.Addr.Addr()
	if ip.Is6() {
		flags |= flagIPv6
	}
	if m.refusesOut {
		flags |= flagRefusesOut
	}
	b = append(b, flags)
	b = binary.LittleEndian.AppendUint64(b, m.epoch)
	b = binary.LittleEndian.AppendUint64(b, m.origin)
	b, _ = ip.AppendBinary(b) // 4 or 16 bytes: a routable address has no zone
	b = binary.LittleEndian.AppendUint16(b, m.client.Addr.Port())
	b = binary.LittleEndian.AppendUint16(b, m.client.Listener)
	return append(b, m.data...)
}

// parseMessage parses the sealed part of a datagram of this kind. data aliases p. There is
// one way to write a message; it refuses any other.
func parseMessage(kind Type, p []byte) (m message, ok bool) {
	if len(p) < bodyMin || p[0]>>(shiftHops+2) != 0 {
		return m, false
	}
	flags, rest := p[0], p[17:]
	m.refusesOut, m.hops = flags&flagRefusesOut != 0, flags>>shiftHops
	m.epoch = binary.LittleEndian.Uint64(p[1:])
	m.origin = binary.LittleEndian.Uint64(p[9:])
	var ip netip.Addr
	if flags&flagIPv6 == 0 {
		ip, rest = netip.AddrFrom4([4]byte(rest)), rest[4:]
	} else if len(p) >= bodyMax {
		ip, rest = netip.AddrFrom16([16]byte(rest)), rest[16:]
	}
	if !ip.IsValid() || ip.Is4In6() {
		return m, false
	}
	m.client.Addr = netip.AddrPortFrom(ip, binary.LittleEndian.Uint16(rest))
	m.client.Listener = binary.LittleEndian.Uint16(rest[2:])
	m.data = rest[4:]
	return m, m.valid(kind)
}

// valid reports whether m has the fields of its kind, and no other.
func (m *message) valid(kind Type) bool {
	switch kind {
	case TypeIn:
		return !m.refusesOut && m.hops > 0 && m.origin != 0 && len(m.data) > 0
	case TypeOut:
		return !m.refusesOut && m.hops == 0 && m.origin == 0 && len(m.data) > 0
	}
	return m.hops == 0 && m.origin == 0 && len(m.data) == 0 // TypeNack
}

// routable reports whether an address means the same to every edge.
func (c Client) routable() bool {
	ip := c.Addr.Addr()
	return ip.IsValid() && ip.Zone() == "" && !ip.Is4In6()
}
