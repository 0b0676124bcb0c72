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
// both pass the conformance suite in the tests of natslog.
type Log interface {
	// Append appends each write to the log that it names, in one request where the store
	// can do so. Each write succeeds or fails individually. The caller does not change the
	// data afterwards.
	Append(writes []Write, answer func(i int, a Answer))

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

// Bounds of one request. JetStream takes a thousand messages in one atomic batch, and a
// mebibyte in one message.
const (
	batchWrites = 500
	batchBytes  = 512 << 10
)

// Batches collects the writes of many sessions, so that those of one log shard go to the log as
// one request where the log can take them so. Each write still is fenced and answered
// individually. T identifies the receiver of an answer. The zero value is not usable; see
// NewBatches.
type Batches[T any] struct {
	shards []batch[T]
	used   []int // shards with writes, in the order of their first
}

type batch[T any] struct {
	writes []Write
	owners []T
}

// NewBatches returns an empty collection for a number of log shards.
func NewBatches[T any](shards int) *Batches[T] { return &Batches[T]{shards: make([]batch[T], shards)} }

// Add adds the write of an ActionAppend.
func (b *Batches[T]) Add(owner T, w Write) {
	i := Shard(w.Log, len(b.shards))
	t := &b.shards[i]
	if len(t.writes) == 0 {
		b.used = append(b.used, i)
	}
	t.writes, t.owners = append(t.writes, w), append(t.owners, owner)
}

// Flush empties the collection: it calls send for one shard at a time, with no more writes
// than a log takes in one request. The slices belong to send.
func (b *Batches[T]) Flush(send func(shard int, writes []Write, owners []T)) {
	for _, i := range b.used {
		t := b.shards[i]
		b.shards[i] = batch[T]{}
		for from := 0; from < len(t.writes); {
			to, bytes := from, 0
			for to < len(t.writes) && to-from < batchWrites && (to == from || bytes+len(t.writes[to].Data) <= batchBytes) {
				bytes += len(t.writes[to].Data)
				to++
			}
			send(i, t.writes[from:to:to], t.owners[from:to:to])
			from = to
		}
	}
	b.used = b.used[:0]
}
