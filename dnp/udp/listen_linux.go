package udp

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"strconv"
	"unsafe"

	"golang.org/x/sys/unix"
)

// listen opens cfg.Sockets sockets that share the port.
//
// With SO_REUSEPORT any process of the same user could join a port by mistake and take
// half of the clients. So the first socket is bound without it, which fails if the port
// is taken, and gets it afterwards, so that the other sockets can join.
func listen(cfg Config) ([]*Socket, error) {
	var sockets []*Socket
	for i := range cfg.Sockets {
		s, err := openSocket(cfg, cfg.Shared || i > 0)
		if err != nil {
			for _, s := range sockets {
				_ = s.Close()
			}
			return nil, err
		}
		sockets = append(sockets, s)
		cfg.Addr = netip.AddrPortFrom(cfg.Addr.Addr(), s.LocalAddr().Port()) // in case port 0 was asked for
	}
	return sockets, nil
}

func openSocket(cfg Config, join bool) (*Socket, error) {
	fd, v4, err := bound(cfg.Addr, join)
	if err != nil {
		return nil, err
	}
	if err := setBuffers(fd, cfg); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	c := new(counters)
	d, err := newDescriptor(fd)
	if err != nil {
		return nil, err
	}
	return newSocket(newMmsgConn(d, v4, cfg, c), c), nil
}

// bound returns a bound socket.
func bound(addr netip.AddrPort, join bool) (fd int, v4 bool, err error) {
	v4 = addr.Addr().Is4()
	fd, err = socket(v4)
	if err != nil && !addr.Addr().IsValid() { // no IPv6 in this system
		v4 = true
		fd, err = socket(v4)
	}
	if err != nil {
		return 0, false, err
	}
	if err := bind(fd, addr, v4, join); err != nil {
		_ = unix.Close(fd)
		return 0, false, err
	}
	return fd, v4, nil
}

func socket(v4 bool) (fd int, err error) {
	family := unix.AF_INET6
	if v4 {
		family = unix.AF_INET
	}
	fd, err = unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	return fd, os.NewSyscallError("socket", err)
}

func bind(fd int, addr netip.AddrPort, v4, join bool) error {
	if join {
		if err := shareport(fd); err != nil {
			return err
		}
	}
	if !v4 {
		only := 1
		if wildcard(addr.Addr()) {
			only = 0
		}
		if err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, only); err != nil {
			return os.NewSyscallError("setsockopt IPV6_V6ONLY", err)
		}
	}
	if err := unix.Bind(fd, bindAddr(addr, v4)); err != nil {
		return os.NewSyscallError("bind", err)
	}
	return shareport(fd)
}

func shareport(fd int) error {
	err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, 1)
	return os.NewSyscallError("setsockopt SO_REUSEPORT", err)
}

func bindAddr(addr netip.AddrPort, v4 bool) unix.Sockaddr {
	a, port := addr.Addr(), int(addr.Port())
	switch {
	case v4 && !a.IsValid():
		return &unix.SockaddrInet4{Port: port}
	case v4:
		return &unix.SockaddrInet4{Port: port, Addr: a.As4()}
	case !a.IsValid():
		return &unix.SockaddrInet6{Port: port}
	}
	var z zones
	return &unix.SockaddrInet6{Port: port, Addr: a.As16(), ZoneId: z.number(a.Zone())}
}

func (m *mmsgConn) boundAddr() netip.AddrPort {
	sa, err := unix.Getsockname(m.descriptor.sock)
	if err != nil {
		return netip.AddrPort{}
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(sa.Addr), uint16(sa.Port))
	case *unix.SockaddrInet6:
		ip := netip.AddrFrom16(sa.Addr)
		if sa.ZoneId != 0 {
			ip = ip.WithZone(m.in.zones.name(sa.ZoneId))
		}
		return netip.AddrPortFrom(ip, uint16(sa.Port))
	}
	return netip.AddrPort{}
}

// setBuffers asks for buffers past the system's limit first, which needs
// CAP_NET_ADMIN, and then for what the limit allows.
func setBuffers(fd int, cfg Config) error {
	return errors.Join(
		setBuffer(fd, unix.SO_RCVBUFFORCE, unix.SO_RCVBUF, cfg.ReadBuffer),
		setBuffer(fd, unix.SO_SNDBUFFORCE, unix.SO_SNDBUF, cfg.WriteBuffer),
	)
}

func setBuffer(fd, force, ask, size int) error {
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, force, size) == nil {
		return nil
	}
	return os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.SOL_SOCKET, ask, size))
}

// buffers returns the granted sizes. The kernel doubles a requested size, to account for
// its own overhead, and reports the double.
func (m *mmsgConn) buffers() (read, write int) {
	if m.descriptor.hold() != nil {
		return 0, 0
	}
	defer m.descriptor.release()
	read, _ = unix.GetsockoptInt(m.descriptor.sock, unix.SOL_SOCKET, unix.SO_RCVBUF)
	write, _ = unix.GetsockoptInt(m.descriptor.sock, unix.SOL_SOCKET, unix.SO_SNDBUF)
	return read / 2, write / 2
}

// memInfoDrops is the index of the drop counter in the result of SO_MEMINFO.
const memInfoDrops = 8

// overflows asks the kernel how many datagrams it dropped because the read buffer was
// full.
func (m *mmsgConn) overflows() uint64 {
	if m.descriptor.hold() != nil {
		return 0
	}
	defer m.descriptor.release()
	var info [memInfoDrops + 1]uint32
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(m.descriptor.sock), unix.SOL_SOCKET, unix.SO_MEMINFO,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return 0
	}
	return uint64(info[memInfoDrops])
}

// A sockaddr is the kernel's sockaddr_in or sockaddr_in6:
//
//	family uint16 (native), port uint16 (big endian), address [4]byte
//	family uint16 (native), port uint16 (big endian), flow uint32, address [16]byte, scope uint32 (native)
type sockaddr [unix.SizeofSockaddrInet6]byte

// zones translates between interface numbers and zones. It remembers the last
// translation, so that a host with one link-local network allocates once.
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
