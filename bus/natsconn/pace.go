package natsconn

import (
	"net"
	"time"

	"github.com/nats-io/nats.go"
)

// ReadEvery returns an option that has the client pause for d between reads while messages come in quick succession, for
// programs that hear many small messages and are in no hurry: a read wakes several threads, whatever it brings. A message
// waits for at most d, and one that comes 2d after the one before for no time. After a read that filled the buffer the
// client does not pause, so that large amounts come at full speed. A connection to a server in the same process is as without the option.
func ReadEvery(d time.Duration) nats.Option { return nats.SetCustomDialer(pacer(d)) }

// A pacer dials connections with pauses of this length.
type pacer time.Duration

// Dial implements nats.CustomDialer.
func (p pacer) Dial(network, address string) (net.Conn, error) {
	c, err := net.DialTimeout(network, address, AttemptTimeout)
	if err != nil {
		return nil, err
	}
	return &pacedConn{Conn: c, every: time.Duration(p)}, nil
}

// A pacedConn is a connection with pauses between reads. One goroutine reads.
type pacedConn struct {
	net.Conn
	every time.Duration
	last  time.Time     // when a read ended
	pause time.Duration // before the next one
}

// Read implements net.Conn. A pause does not end when the connection is closed, because it is short.
func (c *pacedConn) Read(p []byte) (int, error) {
	time.Sleep(c.pause)
	n, err := c.Conn.Read(p)
	now := time.Now()
	c.pause = 0
	if n < len(p) && now.Sub(c.last) < 2*c.every {
		c.pause = c.every
	}
	c.last = now
	return n, err
}
