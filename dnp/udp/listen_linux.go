package udp

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// listen opens cfg.Sockets sockets that share the port.
//
// With SO_REUSEPORT any process of the same user could join a port by mistake and take
// half of the clients. So the first socket is bound without it, which fails if the port
// is taken, and gets it afterwards, so that the other sockets can join. With cfg.Shared, the caller
// wants to join.
func listen(cfg Config) ([]*Socket, error) {
	var sockets []*Socket
	for i := range cfg.Sockets {
		s, err := openSocket(cfg, i > 0 || cfg.Shared)
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
	var prepare func(string, string, syscall.RawConn) error
	if join {
		prepare = SharePort
	}
	conn, err := bind(cfg.Addr, prepare)
	if err != nil {
		return nil, err
	}
	addr := localAddr(conn)
	if zone := addr.Addr().Zone(); zone != "" {
		number := strconv.FormatUint(uint64(interfaceNumber(zone)), 10)
		addr = netip.AddrPortFrom(addr.Addr().WithZone(number), addr.Port())
	}
	fd, err := detach(conn)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(shareport(fd), denyBroadcast(fd), setBuffers(fd, cfg)); err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	c := new(counters)
	d, err := newDescriptor(fd)
	if err != nil {
		return nil, err
	}
	return newSocket(newMmsgConn(d, addr.Addr().Is4(), cfg, c), addr, c), nil
}

// control calls f with the descriptor of a socket.
func control(c syscall.RawConn, f func(fd int) error) (err error) {
	if closed := c.Control(func(fd uintptr) { err = f(int(fd)) }); closed != nil {
		return closed
	}
	return err
}

// detach takes the socket away from the net package, whose poller would watch it (see
// descriptor).
func detach(conn *net.UDPConn) (fd int, err error) {
	raw, err := conn.SyscallConn()
	if err == nil {
		err = control(raw, func(sock int) (err error) {
			fd, err = unix.FcntlInt(uintptr(sock), unix.F_DUPFD_CLOEXEC, 0)
			return os.NewSyscallError("fcntl F_DUPFD_CLOEXEC", err)
		})
	}
	_ = conn.Close() // only its descriptor; the socket stays open
	return fd, err
}

// SharePort is the Control of a net.ListenConfig whose sockets, of UDP or TCP, share their port with those of other
// processes of the same user: the kernel chooses a socket for each client.
func SharePort(_, _ string, c syscall.RawConn) error { return control(c, shareport) }

func shareport(fd int) error { return setOption(fd, "SO_REUSEPORT", unix.SO_REUSEPORT, 1) }

// denyBroadcast takes back the permission that the net package gives to every UDP socket.
func denyBroadcast(fd int) error { return setOption(fd, "SO_BROADCAST", unix.SO_BROADCAST, 0) }

func setOption(fd int, name string, option, value int) error {
	return os.NewSyscallError("setsockopt "+name, unix.SetsockoptInt(fd, unix.SOL_SOCKET, option, value))
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
	if m.hold() != nil {
		return 0, 0
	}
	defer m.release()
	read, _ = unix.GetsockoptInt(m.sock, unix.SOL_SOCKET, unix.SO_RCVBUF)
	write, _ = unix.GetsockoptInt(m.sock, unix.SOL_SOCKET, unix.SO_SNDBUF)
	return read / 2, write / 2
}

// memInfoDrops is the index of the drop counter in the result of SO_MEMINFO.
const memInfoDrops = 8

// overflows asks the kernel how many datagrams it dropped because the read buffer was
// full.
func (m *mmsgConn) overflows() uint64 {
	if m.hold() != nil {
		return 0
	}
	defer m.release()
	var info [memInfoDrops + 1]uint32
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(m.sock), unix.SOL_SOCKET, unix.SO_MEMINFO,
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
