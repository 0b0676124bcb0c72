package sessionlog

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"net/netip"
	"strings"
	"time"
)

// A Config is how the sessions of an edge behave. The zero value of each field stands
// for its default.
type Config struct {
	Node string     // name of the edge; required
	Rand *rand.Rand // makes the marks by which an edge knows its own writes; required

	CkptWrites   int           // writes after which a checkpoint is due; default 32
	CkptBytes    int           // their bytes; default 64 KiB
	CkptInterval time.Duration // age at which one is due if there were writes; default 5 s
	WriteDelay         time.Duration // how long what nobody waits for may wait; default 1 s
	BlockBytes   int           // of commands in one write, one command at least; default 256 KiB
	LogBytesMax  int           // of a log without its checkpoint; more ends the session; default 4 MiB
	UndeliveredMax      int           // messages that are not delivered; more are not accepted from the client; default 1024
	UndeliveredBytesMax int           // their bytes; default 1 MiB
}

// Pauses before the log is asked again.
const (
	busyPause  = time.Millisecond       // after Busy: the other write is done in about that
	tornPause  = 20 * time.Millisecond  // after entries that do not fit together
	faultPause = 100 * time.Millisecond // after no answer
)

// wipedAfter is for how long a log has to be seen shorter than it was before it is
// believed to be lost. A leader that was deposed and does not know it answers so for
// as long.
const wipedAfter = 12 * time.Second

// adoptionsMax is how often an adoption that another edge came before tries again.
const adoptionsMax = 5

func (cfg Config) withDefaults() Config {
	def(&cfg.CkptWrites, 32)
	def(&cfg.CkptBytes, 64<<10)
	def(&cfg.CkptInterval, 5*time.Second)
	def(&cfg.WriteDelay, time.Second)
	def(&cfg.BlockBytes, 256<<10)
	def(&cfg.LogBytesMax, 4<<20)
	def(&cfg.UndeliveredMax, 1024)
	def(&cfg.UndeliveredBytesMax, 1<<20)
	return cfg
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Validate returns everything that is wrong.
func (cfg Config) Validate() (problems []string) {
	cfg = cfg.withDefaults()
	if cfg.Node == "" || strings.ContainsAny(cfg.Node, " .*>") {
		problems = append(problems, fmt.Sprintf("node %q is no name", cfg.Node))
	}
	if cfg.Rand == nil {
		problems = append(problems, "rand is missing")
	}
	for name, v := range map[string]int{
		"checkpoint writes": cfg.CkptWrites, "checkpoint bytes": cfg.CkptBytes, "block bytes": cfg.BlockBytes,
		"log bytes": cfg.LogBytesMax, "kept messages": cfg.UndeliveredMax, "kept bytes": cfg.UndeliveredBytesMax,
		"checkpoint interval": int(cfg.CkptInterval), "soon": int(cfg.WriteDelay),
	} {
		if v < 0 {
			problems = append(problems, name+" is negative")
		}
	}
	return problems
}

// Key names the log of the session of a client: a keyed hash of its address and the
// port that it talks to, so that the names give nothing away.
func Key(secret []byte, client netip.AddrPort, port uint16) string {
	h := hmac.New(sha256.New, secret)
	fmt.Fprintf(h, "%v|%d", client, port)
	return base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(h.Sum(nil)[:10])
}

// Shard returns which of n log shards a log is in.
func Shard(log string, n int) int {
	h := fnv.New32a()
	h.Write([]byte(log))
	return int(h.Sum32() % uint32(n))
}
