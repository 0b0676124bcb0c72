package udp

import (
	"errors"
	"fmt"
	"net/netip"
)

// Limits and defaults.
const (
	// DatagramMax is the largest UDP datagram over IPv4, in bytes.
	DatagramMax = 65507

	// SocketsMax bounds Config.Sockets.
	SocketsMax = 256

	readSlotsMax     = 1024 // more than that no system call moves
	readSlotsDefault = 64
	bufferDefault    = 4 << 20
)

// A Config says what to open. The zero value is a socket on a free port that
// speaks IPv4 and IPv6.
type Config struct {
	// Addr is the local address. Without an IP address, and with the address
	// "::", the socket takes IPv4 and IPv6; without IPv6 in the system only
	// IPv4. Port 0 is a free port.
	Addr netip.AddrPort

	// Sockets is how many sockets Listen opens on that address, one per worker.
	// 0 means 1. Systems other than Linux cannot share the datagrams of a port
	// out and open one, whatever is asked.
	Sockets int

	// Shared lets another process of the same user hold the port too, for a
	// program that is replaced while it runs. Otherwise Listen fails if anybody
	// has the port.
	Shared bool

	// ReadBuffer and WriteBuffer are the sizes of the kernel's buffers in bytes.
	// 0 means 4 MiB. The kernel may grant less (net.core.rmem_max,
	// net.core.wmem_max); Socket.ReadBuffer and Socket.WriteBuffer tell.
	ReadBuffer, WriteBuffer int

	// ReadSlots is how many datagrams one ReadBatch can return. 0 means 64, the
	// most is 1,024. Each reserves DatagramMax bytes of address space.
	ReadSlots int

	// DatagramMax is the largest datagram that can be received, in bytes.
	// Longer ones are dropped and counted. 0 means 65,507, which is the most.
	DatagramMax int
}

// validate fills the defaults in and reports all problems at once.
func (c Config) validate() (Config, error) {
	c.Sockets = orDefault(c.Sockets, 1)
	c.ReadBuffer = orDefault(c.ReadBuffer, bufferDefault)
	c.WriteBuffer = orDefault(c.WriteBuffer, bufferDefault)
	c.ReadSlots = orDefault(c.ReadSlots, readSlotsDefault)
	c.DatagramMax = orDefault(c.DatagramMax, DatagramMax)
	return c, errors.Join(
		inRange("Sockets", c.Sockets, SocketsMax),
		inRange("ReadBuffer", c.ReadBuffer, 1<<30),
		inRange("WriteBuffer", c.WriteBuffer, 1<<30),
		inRange("ReadSlots", c.ReadSlots, readSlotsMax),
		inRange("DatagramMax", c.DatagramMax, DatagramMax),
	)
}

func orDefault(v, def int) int {
	if v == 0 {
		return def
	}
	return v
}

func inRange(name string, v, most int) error {
	if v < 1 || v > most {
		return fmt.Errorf("udp: %s is %d, want 1 to %d", name, v, most)
	}
	return nil
}

// wildcard reports whether addr stands for every IPv4 and IPv6 address.
func wildcard(addr netip.Addr) bool { return !addr.IsValid() || addr == netip.IPv6Unspecified() }

// unmapped returns a without an IPv4-mapped address.
func unmapped(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap(), a.Port())
}
