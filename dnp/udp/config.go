package udp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"
)

// Limits and defaults.
const (
	// DatagramMax is the largest UDP datagram over IPv4, in bytes.
	DatagramMax = 65507

	// SocketsMax bounds Config.Sockets.
	SocketsMax = 256

	readSlotsMax     = 1024 // no system call moves more
	readSlotsDefault = 64
	bufferDefault    = 4 << 20
)

// A Config describes the sockets to open. The zero value is one socket on a free port
// for IPv4 and IPv6.
type Config struct {
	// Addr is the local address. Without an IP address, and with the address "::", the
	// socket serves IPv4 and IPv6, or only IPv4 on a system without IPv6. Port 0 is a
	// free port.
	Addr netip.AddrPort

	// Sockets is how many sockets Listen opens on that address, one per worker.
	// 0 means 1. Systems other than Linux cannot distribute the datagrams of a port
	// among sockets; there Listen always opens one. It fails if another process has
	// the port.
	Sockets int

	// Shared lets other processes of the same user have the port, too, if they share it: the kernel
	// distributes clients over the sockets of all of them. Only Linux can do that.
	Shared bool

	// ReadBuffer and WriteBuffer are the sizes of the kernel's buffers in bytes.
	// 0 means 4 MiB. The kernel may grant less (net.core.rmem_max,
	// net.core.wmem_max); Socket.Buffers returns the granted sizes.
	ReadBuffer, WriteBuffer int

	// ReadSlots is how many datagrams one ReadBatch can return. 0 means 64, 1,024 is
	// the maximum. Each reserves DatagramMax bytes of address space.
	ReadSlots int

	// DatagramMax is the largest datagram that can be received, in bytes.
	// Longer ones are dropped and counted. 0 means 65,507, the maximum.
	DatagramMax int
}

// withDefaults returns c with the default of each field that is zero.
func (c Config) withDefaults() Config {
	c.Sockets = cmp.Or(c.Sockets, 1)
	c.ReadBuffer = cmp.Or(c.ReadBuffer, bufferDefault)
	c.WriteBuffer = cmp.Or(c.WriteBuffer, bufferDefault)
	c.ReadSlots = cmp.Or(c.ReadSlots, readSlotsDefault)
	c.DatagramMax = cmp.Or(c.DatagramMax, DatagramMax)
	return c
}

// validate reports all problems at once.
func (c Config) validate() error {
	return errors.Join(
		inRange("Sockets", c.Sockets, SocketsMax),
		inRange("ReadBuffer", c.ReadBuffer, 1<<30),
		inRange("WriteBuffer", c.WriteBuffer, 1<<30),
		inRange("ReadSlots", c.ReadSlots, readSlotsMax),
		inRange("DatagramMax", c.DatagramMax, DatagramMax),
	)
}

func inRange(name string, v, most int) error {
	if v < 1 || v > most {
		return fmt.Errorf("udp: %s is %d, want 1 to %d", name, v, most)
	}
	return nil
}

// wildcard reports whether addr stands for every IPv4 and IPv6 address.
func wildcard(addr netip.Addr) bool { return !addr.IsValid() || addr == netip.IPv6Unspecified() }

// unmapped returns a with an IPv4-mapped address unmapped.
func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}

// Listen opens the sockets of a server on one address. If the address is taken, the
// error says so in one line.
func Listen(cfg Config) ([]*Socket, error) { return openAll(cfg, listen) }

// Open opens one socket, as for a client. With the zero Config it can talk to
// IPv4 and IPv6 servers.
func Open(cfg Config) (*Socket, error) {
	cfg.Sockets = 1
	return first(openAll(cfg, listen))
}

func openAll(cfg Config, open func(Config) ([]*Socket, error)) ([]*Socket, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	cfg.Addr = unmapped(cfg.Addr)
	sockets, err := open(cfg)
	if err != nil {
		return nil, listenError(cfg.Addr, err)
	}
	return sockets, nil
}

// bind opens a UDP socket of the net package. prepare, which may be nil, sees it before it
// gets its address.
func bind(addr netip.AddrPort, prepare func(network, address string, c syscall.RawConn) error) (*net.UDPConn, error) {
	network := "udp6"
	switch {
	case addr.Addr().Is4():
		network = "udp4"
	case wildcard(addr.Addr()):
		network = "udp" // IPv4, too, and only IPv4 on a system without IPv6
	}
	l := net.ListenConfig{Control: prepare}
	conn, err := l.ListenPacket(context.Background(), network, addrText(addr))
	if err != nil {
		return nil, err
	}
	return conn.(*net.UDPConn), nil
}

// localAddr returns the address that a socket is bound to.
func localAddr(conn *net.UDPConn) netip.AddrPort {
	return unmapped(conn.LocalAddr().(*net.UDPAddr).AddrPort())
}

func first(sockets []*Socket, err error) (*Socket, error) {
	if err != nil {
		return nil, err
	}
	return sockets[0], nil
}

func listenError(addr netip.AddrPort, err error) error {
	op := new(net.OpError)
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		err = syscall.EADDRINUSE
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		err = errors.New("this host does not have that address")
	case errors.Is(err, syscall.EACCES):
		err = errors.New("permission denied (ports below 1024 need a privilege)")
	case errors.As(err, &op):
		err = op.Err // which names neither the network nor the address again
	}
	return fmt.Errorf("listen udp %s: %w", addrText(addr), err)
}

// addrText writes an address without an IP as ":port".
func addrText(a netip.AddrPort) string {
	if !a.Addr().IsValid() {
		return ":" + strconv.Itoa(int(a.Port()))
	}
	return a.String()
}
