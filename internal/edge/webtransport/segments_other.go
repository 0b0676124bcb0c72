//go:build !linux

package webtransport

import "net"

// newSocket returns the socket that a Server uses for the one that it was given.
func newSocket(socket net.PacketConn) packetSocket { return plain{socket} }
