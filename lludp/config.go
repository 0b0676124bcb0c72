package lludp

import (
	"errors"
	"fmt"
	"time"

	"github.com/dnprelay/dnprelay/lludp/wire"
)

// Bounds that peers rely on.
const (
	dedupeReliable   = 1024 // sequence numbers remembered; libomv and Hippolyzer have 1,000
	dedupeUnreliable = 256  // arbitrary; references remember none
	windowMax        = 1000 // below what any receiver remembers
)

// Config is what a Circuit is made with. The zero value is usable.
type Config struct {
	// DatagramMax is the most bytes of a datagram that is sent; 1,200, at most
	// wire.ReceiveMax. What is read may have wire.ReceiveMax.
	DatagramMax int

	// Window is how many reliable packets may be under way, counted from the
	// oldest that was not acknowledged; 512, at most 1,000. A receiver forgets
	// the sequence numbers from before its last 1,000, and would pass a repeated
	// packet on a second time.
	Window int

	// WindowBytes is how many bytes those may have; 256 KiB.
	WindowBytes int

	// AckDelay is how long an acknowledgement waits for a packet to travel with;
	// 100 ms.
	AckDelay time.Duration

	// ResendAfter is the shortest time after which a reliable packet is repeated;
	// 1 s. It is 5 times the measured ping if that is more.
	ResendAfter time.Duration

	// Retries is how often a packet is repeated until it is given up; 3, as the
	// reference viewer does. Below 0 there is no end but that of the circuit, as
	// OpenSim does.
	Retries int

	// PingInterval is the time between two pings; 5 s.
	PingInterval time.Duration

	// Timeout ends a circuit that nothing was heard from; 60 s.
	Timeout time.Duration

	// Scratch is where zero-coded packets are expanded. Circuits with one owner
	// should share it; nil makes one of 8 KiB.
	Scratch *wire.Scratch
}

func (c Config) withDefaults() Config {
	c.DatagramMax = orInt(c.DatagramMax, wire.PacketMax)
	c.Window = orInt(c.Window, 512)
	c.WindowBytes = orInt(c.WindowBytes, 256<<10)
	c.AckDelay = orDuration(c.AckDelay, 100*time.Millisecond)
	c.ResendAfter = orDuration(c.ResendAfter, time.Second)
	c.Retries = orInt(c.Retries, 3)
	c.PingInterval = orDuration(c.PingInterval, 5*time.Second)
	c.Timeout = orDuration(c.Timeout, time.Minute)
	if c.Scratch == nil {
		c.Scratch = new(wire.Scratch)
	}
	return c
}

func orInt(n, zero int) int {
	if n == 0 {
		return zero
	}
	return n
}

func orDuration(d, zero time.Duration) time.Duration {
	if d == 0 {
		return zero
	}
	return d
}

// validate reports all problems of a config that has its defaults.
func (c *Config) validate() error {
	var problems []error
	if c.DatagramMax < 64 || c.DatagramMax > wire.ReceiveMax {
		problems = append(problems, fmt.Errorf("lludp: DatagramMax %d, want 64 to %d", c.DatagramMax, wire.ReceiveMax))
	}
	if c.Window < 1 || c.Window > windowMax {
		problems = append(problems, fmt.Errorf("lludp: Window %d, want 1 to %d", c.Window, windowMax))
	}
	if c.WindowBytes < c.DatagramMax {
		problems = append(problems, fmt.Errorf("lludp: WindowBytes %d, want at least DatagramMax", c.WindowBytes))
	}
	for _, d := range []struct {
		name string
		d    time.Duration
	}{{"AckDelay", c.AckDelay}, {"ResendAfter", c.ResendAfter}, {"PingInterval", c.PingInterval}, {"Timeout", c.Timeout}} {
		if d.d < 0 {
			problems = append(problems, fmt.Errorf("lludp: %s %v is below 0", d.name, d.d))
		}
	}
	return errors.Join(problems...)
}
