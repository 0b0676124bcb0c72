package lease

import (
	"encoding/json"

	"github.com/dnprelay/dnprelay/internal/format"
)

// A Record is the lease of a relay in a stream. Each write of the relay stores the next one, on the condition that the last
// one is still the last.
type Record struct {
	Seq    uint64 `json:"-"`                // in the stream; 0 if there is none
	Format uint8  `json:"format,omitempty"` // of the record; 0 stands for the oldest

	// Incarnation is different for each start of a relay, and for each time after its lease was revoked.
	Incarnation string `json:"incarnation"`

	Write   uint64 `json:"write,omitempty"`   // ordinal of the write in this incarnation
	Closed  bool   `json:"closed,omitempty"`  // the relay takes no shards
	Revoked string `json:"revoked,omitempty"` // the relay that revoked the lease: this incarnation never writes again
}

// An Owner is the record that says who holds a shard. Its sequence is the epoch. The zero Owner says that the shard never had
// a holder; one without Node, that the last holder left it to any relay.
type Owner struct {
	Seq    uint64 `json:"-"`
	Format uint8  `json:"format,omitempty"`

	Node        string `json:"node,omitempty"`
	Incarnation string `json:"incarnation,omitempty"`

	// Before is the sequence of the record that this one replaced; 0 for the first.
	Before uint64 `json:"before,omitempty"`
}

// Append appends the record as it is stored.
func (r Record) Append(p []byte) []byte { return appendJSON(p, r) }

// Append appends the record as it is stored.
func (o Owner) Append(p []byte) []byte { return appendJSON(p, o) }

// ParseRecord parses a stored lease. One of another format, or one that cannot be read, still is a sign of life, of an
// incarnation without a name.
func ParseRecord(seq uint64, p []byte) Record {
	var r Record
	if json.Unmarshal(p, &r) != nil || r.Format > format.Newest {
		r = Record{}
	}
	r.Seq = seq
	return r
}

// ParseOwner parses a stored record. One of another format, or one that cannot be read, is that of an unknown holder, and its
// shard is left alone. A record without an incarnation, as releases before the first one wrote it, names no relay that lives.
func ParseOwner(seq uint64, p []byte) Owner {
	var o Owner
	if json.Unmarshal(p, &o) != nil || o.Format > format.Newest {
		return Owner{Seq: seq, Format: format.Max}
	}
	o.Seq = seq
	return o
}

// unknown reports whether the record names a holder that this program cannot read.
func (o *Owner) unknown() bool { return o.Format > format.Newest }

func appendJSON(b []byte, v any) []byte {
	p, err := json.Marshal(v)
	if err != nil {
		panic("lease: a record cannot be encoded: " + err.Error())
	}
	return append(b, p...)
}
