package webtransport

import "net"

// A packetSocket is the socket of a Server. run returns when it is closed.
type packetSocket interface {
	net.PacketConn
	run()
}

// A plain is a socket that sends each packet at once.
type plain struct{ net.PacketConn }

func (plain) run() {}
