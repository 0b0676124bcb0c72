package cluster

import (
	"encoding/json"

	"github.com/dnprelay/dnprelay/internal/format"
)

// A Holder is the record that says who holds a shard. The zero Holder says that the shard never
// had one.
type Holder struct {
	// Seq is the sequence of the record in the store, and the epoch of the lease that it
	// began. It is not part of the record.
	Seq uint64 `json:"-"`

	// Format is the form of the record; 0 stands for the oldest.
	Format uint8 `json:"format,omitempty"`

	// Node and ID are the holder and its start.
	Node string `json:"node,omitempty"`
	ID   string `json:"id,omitempty"`

	// Released says that Node released the shard in favour of To, or of any relay if To is
	// empty.
	Released bool   `json:"released,omitempty"`
	To       string `json:"to,omitempty"`
}

// A Heartbeat is the record with which a holder renews. Every durable write of a holder writes
// it too.
type Heartbeat struct {
	Seq    uint64 `json:"-"`                // in the store; 0 if there is none
	Format uint8  `json:"format,omitempty"` // 0 stands for the oldest

	Epoch uint64 `json:"epoch"`
	Write uint64 `json:"write"` // ordinal of the write in the epoch
}

// Append appends the record as it is stored.
func (h Holder) Append(p []byte) []byte { return appendJSON(p, h) }

// Append appends the record as it is stored.
func (b Heartbeat) Append(p []byte) []byte { return appendJSON(p, b) }

// ParseHolder parses a stored record. Fields that this program does not know are skipped. A
// record of another format, or one that cannot be read, is that of an unknown holder: it is left
// alone for as long as its heartbeats change.
func ParseHolder(seq uint64, p []byte) Holder {
	var h Holder
	if json.Unmarshal(p, &h) != nil || h.Format > format.Newest {
		h = Holder{}
	}
	h.Seq = seq
	return h
}

// ParseHeartbeat parses a stored record. One of another format, or one that cannot be read,
// still is a sign of life.
func ParseHeartbeat(seq uint64, p []byte) Heartbeat {
	var b Heartbeat
	if json.Unmarshal(p, &b) != nil || b.Format > format.Newest {
		b = Heartbeat{}
	}
	b.Seq = seq
	return b
}

// recordFormat returns the format of the records to write, in which 0 stands for the oldest.
func (l *Lease) recordFormat() uint8 {
	if f := format.ToWrite(l.cfg.Format); f > format.Oldest {
		return f
	}
	return 0
}

func appendJSON(b []byte, v any) []byte {
	p, err := json.Marshal(v)
	if err != nil {
		panic("cluster: a record cannot be encoded: " + err.Error())
	}
	return append(b, p...)
}
