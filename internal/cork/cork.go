// Package cork has a connection that collects what is written, so that the messages of a batch leave with one system call although
// the library of WebSockets writes each.
package cork

import (
	"net"
	"sync"
)

const (
	heldMax = 64 << 10 // bytes that wait for Uncork; more are written earlier
	kept    = 4 << 10  // how much room a connection keeps
)

// A Conn collects what is written while it is corked. Frames of the library's own, such as answers to pings, may come from another
// goroutine.
type Conn struct {
	net.Conn

	mu     sync.Mutex // guards the rest; held for a copy or a system call
	corked bool
	held   []byte
}

// Write implements net.Conn.
func (c *Conn) Write(p []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.corked && len(c.held)+len(p) <= heldMax {
		c.held = append(c.held, p...)
		return len(p), nil
	}
	if err := c.release(); err != nil {
		return 0, err
	}
	return c.Conn.Write(p)
}

// Cork has writes wait for Uncork.
func (c *Conn) Cork() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.corked = true
}

// Uncork writes what waits.
func (c *Conn) Uncork() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.corked = false
	return c.release()
}

// release writes what is held. mu is held.
func (c *Conn) release() (err error) {
	if len(c.held) > 0 {
		_, err = c.Conn.Write(c.held)
	}
	if c.held = c.held[:0]; cap(c.held) > kept {
		c.held = nil
	}
	return err
}
