package udp

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strconv"

	"golang.org/x/sys/unix"
)

// A sockaddr is the kernel's sockaddr_in or sockaddr_in6:
//
//	family uint16 (native), port uint16 (big endian), address [4]byte
//	family uint16 (native), port uint16 (big endian), flow uint32, address [16]byte, scope uint32 (native)
type sockaddr [unix.SizeofSockaddrInet6]byte

// zones translates between interface numbers and zones. It remembers the last
// one, so that a host with one link-local network allocates for it once.
type zones struct {
	scope uint32
	zone  string
}

// decode returns the address in s.
func (z *zones) decode(s *sockaddr) (netip.AddrPort, bool) {
	port := binary.BigEndian.Uint16(s[2:])
	switch binary.NativeEndian.Uint16(s[:]) {
	case unix.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(s[4:8])), port), true
	case unix.AF_INET6:
		addr := netip.AddrFrom16([16]byte(s[8:24])).Unmap()
		if scope := binary.NativeEndian.Uint32(s[24:]); scope != 0 {
			addr = addr.WithZone(z.name(scope))
		}
		return netip.AddrPortFrom(addr, port), true
	}
	return netip.AddrPort{}, false
}

// encode puts to into s for a socket of the given family and returns the size.
// It reports false if such a socket cannot reach such an address.
func (z *zones) encode(s *sockaddr, to netip.AddrPort, v4 bool) (size uint32, ok bool) {
	addr := to.Addr().Unmap()
	if !addr.IsValid() || v4 && !addr.Is4() {
		return 0, false
	}
	binary.BigEndian.PutUint16(s[2:], to.Port())
	if v4 {
		binary.NativeEndian.PutUint16(s[:], unix.AF_INET)
		a := addr.As4()
		copy(s[4:], a[:])
		return unix.SizeofSockaddrInet4, true
	}
	binary.NativeEndian.PutUint16(s[:], unix.AF_INET6)
	a := addr.As16()
	copy(s[8:], a[:])
	binary.NativeEndian.PutUint32(s[4:], 0)
	binary.NativeEndian.PutUint32(s[24:], z.number(addr.Zone()))
	return unix.SizeofSockaddrInet6, true
}

func (z *zones) name(scope uint32) string {
	if scope != z.scope {
		z.scope, z.zone = scope, strconv.FormatUint(uint64(scope), 10)
	}
	return z.zone
}

// number returns the interface number of zone, 0 if there is none.
func (z *zones) number(zone string) uint32 {
	if zone == "" {
		return 0
	}
	if zone != z.zone {
		z.scope, z.zone = interfaceNumber(zone), zone
	}
	return z.scope
}

func interfaceNumber(zone string) uint32 {
	if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
		return uint32(n)
	}
	if i, err := net.InterfaceByName(zone); err == nil {
		return uint32(i.Index)
	}
	return 0
}
