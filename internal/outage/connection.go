package outage

import (
	"sync/atomic"
	"time"
)

// Steady is how long a connection must stay up until it counts as restored. Servers of a cluster that end one after
// the other take each connection several times, and what needs the connection works only when the streams have leaders,
// which servers elect within 4 to 9 s.
const Steady = 10 * time.Second

// A Connection knows when a connection is lost and when it is back, for log lines: a connection that comes back for
// less than Steady is still lost. Many goroutines use it. The zero value is a connection that was never lost.
type Connection struct {
	since atomic.Int64 // Unix nanoseconds at which it came back; 0 if it was never lost, down while it is
	told  atomic.Bool  // somebody was told that it is lost
}

const down = -1

// Lost notes that the connection is lost, and reports whether that is to be told.
func (c *Connection) Lost() bool {
	c.since.Store(down)
	return !c.told.Swap(true)
}

// Restored notes that the connection is up. Back reports later whether it stays.
func (c *Connection) Restored(now time.Time) { c.since.CompareAndSwap(down, now.UnixNano()) }

// Settled reports whether the connection has been up for so long that what fails does not fail for the want of it.
func (c *Connection) Settled(now time.Time) bool {
	since := c.since.Load()
	return since != down && now.UnixNano()-since >= int64(Steady)
}

// Back reports once, after each outage that was told, that the connection is up and stays. It is to be called often.
func (c *Connection) Back(now time.Time) bool {
	return c.told.Load() && c.Settled(now) && c.told.CompareAndSwap(true, false)
}
