package lludp

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/dnprelay/dnprelay/lludp/wire"
)

// Bounds on which peers rely.
const (
	dedupeReliable   = 1024 // sequence numbers remembered; libomv and Hippolyzer have 1,000
	dedupeUnreliable = 256  // arbitrary; references remember none
	windowMax        = 1000 // below what any receiver remembers
)

// Config says how to make a Circuit. The zero value is usable.
type Config struct {
	// DatagramMax is the most bytes of a sent datagram; 1,200, at most wire.ReceiveMax. A
	// received datagram may have wire.ReceiveMax bytes.
	DatagramMax int

	// Window bounds the reliable packets in flight, counted from the oldest without an
	// acknowledgement; 512, at most 1,000. A receiver remembers its last 1,000 sequence numbers
	// and would accept a repeated packet from before them a second time.
	Window int

	// WindowBytes bounds the bytes of those packets; 256 KiB.
	WindowBytes int

	// AckDelay is how long an acknowledgement waits for a packet to carry it; 100 ms.
	AckDelay time.Duration

	// ResendAfter is the shortest time before a reliable packet is repeated; 1 s. The circuit
	// waits 5 times the measured ping if that is more.
	ResendAfter time.Duration

	// Retries is how often a packet is repeated before it is given up; 3, as in the reference
	// viewer. Below 0 the circuit repeats it until the circuit ends, as OpenSim does.
	Retries int

	// PingInterval is the time between two pings; 5 s.
	PingInterval time.Duration

	// Timeout ends a circuit without a packet of the peer for that long; 60 s.
	Timeout time.Duration

	// Scratch is the buffer in which zero-coded packets are expanded. Circuits with one owner
	// should share it; nil makes one of 8 KiB.
	Scratch *wire.Scratch
}

func (c Config) withDefaults() Config {
	c.DatagramMax = cmp.Or(c.DatagramMax, wire.PacketMax)
	c.Window = cmp.Or(c.Window, 512)
	c.WindowBytes = cmp.Or(c.WindowBytes, 256<<10)
	c.AckDelay = cmp.Or(c.AckDelay, 100*time.Millisecond)
	c.ResendAfter = cmp.Or(c.ResendAfter, time.Second)
	c.Retries = cmp.Or(c.Retries, 3)
	c.PingInterval = cmp.Or(c.PingInterval, 5*time.Second)
	c.Timeout = cmp.Or(c.Timeout, time.Minute)
	if c.Scratch == nil {
		c.Scratch = new(wire.Scratch)
	}
	return c
}

// validate reports all problems of a config to which the defaults have been applied.
func (c *Config) validate() error {
	var problems []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			problems = append(problems, fmt.Errorf("lludp: "+format, args...))
		}
	}
	check(c.DatagramMax >= 64 && c.DatagramMax <= wire.ReceiveMax, "DatagramMax %d, want 64 to %d", c.DatagramMax, wire.ReceiveMax)
	check(c.Window >= 1 && c.Window <= windowMax, "Window %d, want 1 to %d", c.Window, windowMax)
	check(c.WindowBytes >= c.DatagramMax, "WindowBytes %d, want at least DatagramMax", c.WindowBytes)
	check(c.AckDelay >= 0, "AckDelay %v is below 0", c.AckDelay)
	check(c.ResendAfter >= 0, "ResendAfter %v is below 0", c.ResendAfter)
	check(c.PingInterval >= 0, "PingInterval %v is below 0", c.PingInterval)
	check(c.Timeout >= 0, "Timeout %v is below 0", c.Timeout)
	return errors.Join(problems...)
}
