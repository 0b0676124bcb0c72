package quorumlog

import (
	"fmt"

	"github.com/dnprelay/dnprelay/sessionlog"
)

// SetStateBytes makes the parts of states small.
func (c *Config) SetStateBytes(n int) { c.stateBytes = n }

// SetLedgersMax lets a log remember few logs in each of its shards.
func (c *Config) SetLedgersMax(n int) { c.ledgersMax = n * shards }

// The bounds that tests meet.
const (
	OpsMax       = opsMax
	QueueRecords = queueRecords
	Patience     = patience
	AwayAfter    = awayAfter
	EndWait      = endWait
	Unused       = unused
)

// Last returns the last sequence that a copy has.
func Last(stored []sessionlog.Entry) uint64 {
	c, _ := read(stored)
	return c.end()
}

// History shows the history of a copy, whatever its records are.
func History(stored []sessionlog.Entry) string {
	c, ok := read(stored)
	s := fmt.Sprintf("readable %v torn %v ballot %x:", ok, c.torn, c.data)
	for _, e := range c.entries {
		s += fmt.Sprintf(" %d", e.seq)
	}
	return s
}

// Dump shows what a copy has.
func Dump(stored []sessionlog.Entry) (s string) {
	for _, e := range stored {
		r, ok := parse(e.Data)
		s += fmt.Sprintf("\n  %v kind %d ballot %x part %d/%d:", ok, r.kind, r.ballot, r.part, r.parts)
		for _, e := range r.entries {
			s += fmt.Sprintf(" %d", e.seq)
		}
	}
	return s
}
