package sessionlog

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"
)

// A Config is how the sessions of an edge behave. The zero value of each field stands for its
// default.
type Config struct {
	Node string     // name of the edge; required
	Rand *rand.Rand // makes the owner numbers by which a Session knows its own writes; required

	// Format returns the lowest format that all members of the cluster read; see package
	// format. nil stands for the oldest.
	Format func() uint8

	CkptWrites          int           // writes after which a checkpoint is due; default 32
	CkptBytes           int           // their bytes; default 64 KiB
	CkptInterval        time.Duration // age at which a checkpoint is due if there were writes; default 5 s
	WriteDelay          time.Duration // how long a change for which the client does not wait may stay unwritten; default 1 s
	BlockBytes          int           // of commands in one write, which has at least one; default 256 KiB
	LogBytesMax         int           // of a log without its checkpoint; more ends the session; default 4 MiB
	UndeliveredMax      int           // messages that are not delivered; more are not acknowledged; default 1024
	UndeliveredBytesMax int           // their bytes; default 1 MiB
}

// Pauses before the log is asked again.
const (
	busyPause  = time.Millisecond       // after Busy: the other write takes about as long
	tornPause  = 20 * time.Millisecond  // after entries that do not fit together
	faultPause = 100 * time.Millisecond // after no answer
)

// wipedAfter is how long a log must be seen shorter than it was until its writes count as
// lost. A leader that was deposed and does not know it may answer so for that long.
const wipedAfter = 12 * time.Second

// adoptionsMax is how often an adoption that another edge forestalled is tried again.
const adoptionsMax = 5

func (cfg Config) withDefaults() Config {
	cfg.CkptWrites = cmp.Or(cfg.CkptWrites, 32)
	cfg.CkptBytes = cmp.Or(cfg.CkptBytes, 64<<10)
	cfg.CkptInterval = cmp.Or(cfg.CkptInterval, 5*time.Second)
	cfg.WriteDelay = cmp.Or(cfg.WriteDelay, time.Second)
	cfg.BlockBytes = cmp.Or(cfg.BlockBytes, 256<<10)
	cfg.LogBytesMax = cmp.Or(cfg.LogBytesMax, 4<<20)
	cfg.UndeliveredMax = cmp.Or(cfg.UndeliveredMax, 1024)
	cfg.UndeliveredBytesMax = cmp.Or(cfg.UndeliveredBytesMax, 1<<20)
	return cfg
}

// Validate returns everything that is wrong with cfg.
func (cfg Config) Validate() (problems []string) {
	if cfg.Node == "" || strings.ContainsAny(cfg.Node, " .*>") {
		problems = append(problems, fmt.Sprintf("node %q is not a valid name", cfg.Node))
	}
	if cfg.Rand == nil {
		problems = append(problems, "rand is missing")
	}
	for name, v := range map[string]int{
		"checkpoint writes": cfg.CkptWrites, "checkpoint bytes": cfg.CkptBytes, "block bytes": cfg.BlockBytes,
		"log bytes": cfg.LogBytesMax, "undelivered messages": cfg.UndeliveredMax, "undelivered bytes": cfg.UndeliveredBytesMax,
		"checkpoint interval": int(cfg.CkptInterval), "write delay": int(cfg.WriteDelay),
	} {
		if v < 0 {
			problems = append(problems, name+" is negative")
		}
	}
	return problems
}
