package sessionlog

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"fmt"
	"hash/fnv"
	"net/netip"

	"github.com/dnprelay/dnprelay/internal/fence"
)

// A Log stores the logs of sessions. Calls do not block; each answer comes later, exactly once,
// and never before the call returns. After about half a second without an answer of the store
// the verdict is Unknown: a client waits for three. Packages natslog and memlog implement it;
// both pass the conformance suite of package logtest.
type Log interface {
	// Append appends a write to the log that it names. The caller does not change the data
	// afterwards.
	Append(w Write, answer func(Answer))

	// Read returns all writes of a log, oldest first. It asks the leader of the log; an
	// outdated answer costs time but does no harm.
	Read(log string, answer func(Answer))
}

// A Write is to be appended to one log.
type Write struct {
	Log    string // see Key
	Expect uint64 // the sequence of the last write of this log; 0 for none
	Data   []byte
	Rollup bool // once this is stored, the store may delete all writes before it
	Final  bool // the session is over; after some minutes the store may forget the log
}

// An Entry is a stored write.
type Entry struct {
	Seq  uint64
	Data []byte
}

// An Answer is the result of a Write or a read.
type Answer struct {
	Verdict fence.Verdict
	Seq     uint64  // of the write
	Entries []Entry // of a read
}

// Key names the log of the session of a client: a keyed hash of its address and the port that
// it talks to, so that names give nothing away.
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
