package cluster

import (
	"cmp"
	"time"
)

// A LeaseConfig is what a Lease is made with. All durations are measured on this
// node's monotonic clock, and never compared with another node's.
type LeaseConfig struct {
	// Node is the name of this relay; others hand shards over to it.
	Node string

	// ID is different for every start of every process, so that a relay can tell
	// its own records from those of its predecessor.
	ID string

	// Beat is how often a holder renews. 0 means 500 ms.
	Renew time.Duration

	// Wait is how long a challenger must see no change, while the store answers,
	// before it takes a shard. 0 means 3 s. It must be at least twice the sum
	// of Beat and Timeout, or one answer that was lost costs a living holder its
	// shard.
	Wait time.Duration

	// Soft is the silence of the store after which a holder's answers say that
	// they are not durable. 0 means 1.5 s.
	DurableSilence time.Duration

	// Silence is the silence of the store after which a holder stops. 0 means
	// 12 s, which is above the 4 to 9 s of an election in JetStream.
	Silence time.Duration

	// Timeout is the time after which whoever carries out an action reports that
	// its outcome is unknown. 0 means 1 s.
	Timeout time.Duration
}

// Pauses between two tries. The first is for a store that says that another
// write to the same subject is under way, which takes about as long; the second
// for one that cannot be reached, and is arbitrary.
const (
	busyPause  = time.Millisecond
	faultPause = 100 * time.Millisecond
)

// WithDefaults returns c with defaults for what is zero.
func (c LeaseConfig) WithDefaults() LeaseConfig {
	c.Renew = cmp.Or(c.Renew, 500*time.Millisecond)
	c.Wait = cmp.Or(c.Wait, 3*time.Second)
	c.DurableSilence = cmp.Or(c.DurableSilence, 1500*time.Millisecond)
	c.Silence = cmp.Or(c.Silence, 12*time.Second)
	c.Timeout = cmp.Or(c.Timeout, time.Second)
	return c
}

// Validate returns all that is wrong with c, which may have zeros.
func (c LeaseConfig) Validate() (problems []string) {
	if c.Node == "" {
		problems = append(problems, "lease: no node name")
	}
	if c.ID == "" {
		problems = append(problems, "lease: no id of this start")
	}
	if c.Renew < 0 || c.Wait < 0 || c.DurableSilence < 0 || c.Silence < 0 || c.Timeout < 0 {
		return append(problems, "lease: negative duration")
	}
	c = c.WithDefaults()
	if c.Wait < 2*(c.Renew+c.Timeout) {
		problems = append(problems, "lease: a challenger must wait for at least two beats and two timeouts of a write")
	}
	if c.Silence < c.DurableSilence {
		problems = append(problems, "lease: the hard silence is shorter than the soft one")
	}
	return problems
}
