package quorumlog

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// A ballot orders the attempts to lead a log. Each attempt has one of its own, also those of
// one node.
type ballot struct {
	counter uint64
	random  uint64
}

func (b ballot) compare(o ballot) int {
	return cmp.Or(cmp.Compare(b.counter, o.counter), cmp.Compare(b.random, o.random))
}

func (b ballot) append(p []byte) []byte {
	return binary.LittleEndian.AppendUint64(binary.AppendUvarint(p, b.counter), b.random)
}

func parseBallot(in *wire.Reader) (b ballot) {
	b.counter, b.random = in.Uvarint(1<<64-1), in.Uint64()
	return b
}

// An entry is a write of the session, as this log numbers it.
type entry struct {
	seq   uint64
	final bool
	data  []byte
}

// A kind is the kind of a record in a copy. The values are part of logs.
type kind uint8

const (
	kindLead  kind = iota + 1 // somebody leads from here on
	kindState                 // the log since its last checkpoint, or a part of that
	kindNext                  // an entry behind the record before
)

// version is the form of records, which their first byte has.
const version = 1

// A record is what one write to a copy has:
//
//	version uint8 = 1
//	kind uint8, first uint8, ballot
//	kindLead: data, a ballot
//	kindState: part, parts uvarint
//	kindNext: previous uvarint, the sequence of the entry before
//	entries: sequence uvarint, final uint8, length uvarint, data
//
// where a ballot is counter uvarint, random uint64.
type record struct {
	kind        kind
	first       bool // nothing precedes it in this copy
	ballot      ballot
	data        ballot // of the entries of a lead
	part, parts uint64
	previous    uint64

	// entries are those of a state or the next one. A lead over the end of a log has what the
	// copy had, because the copy may forget that.
	entries []entry
}

func (r *record) append(b []byte) []byte {
	b = append(b, version, byte(r.kind), flag(r.first))
	b = r.ballot.append(b)
	switch r.kind {
	case kindLead:
		b = r.data.append(b)
	case kindState:
		b = binary.AppendUvarint(binary.AppendUvarint(b, r.part), r.parts)
	case kindNext:
		b = binary.AppendUvarint(b, r.previous)
	}
	for _, e := range r.entries {
		b = append(binary.AppendUvarint(b, e.seq), flag(e.final))
		b = append(binary.AppendUvarint(b, uint64(len(e.data))), e.data...)
	}
	return b
}

func flag(on bool) byte {
	if on {
		return 1
	}
	return 0
}

// parse parses a record, whose data alias p. It reports false for one that is damaged or of
// another form.
func parse(p []byte) (r record, ok bool) {
	in := wire.NewReader(p)
	if in.Uint8() != version {
		return r, false
	}
	r.kind, r.first = kind(in.Uint8()), in.Uint8() != 0
	r.ballot = parseBallot(&in)
	switch r.kind {
	case kindLead:
		r.data = parseBallot(&in)
	case kindState:
		r.part, r.parts = in.Uvarint(1<<32), in.Uvarint(1<<32)
	case kindNext:
		r.previous = in.Uvarint(1<<64 - 1)
	}
	for in.Err() == nil && len(in.Rest()) > 0 {
		r.entries = append(r.entries, entry{in.Uvarint(1<<64 - 1), in.Uint8() != 0, in.Counted()})
	}
	return r, in.Err() == nil && r.kind >= kindLead && r.kind <= kindNext
}

// A content is what a copy has of a log.
type content struct {
	tail uint64 // sequence of the last record in this copy; 0 for none
	last []byte // the last record
	top  ballot // the highest

	// data is the highest ballot of which there are entries, which are the log since a checkpoint.
	data    ballot
	entries []entry

	// torn says that the beginning is missing: it was deleted while the copy was read, or grew
	// too old.
	torn bool
}

// read makes a content of what a copy answered. It reports false for a copy with a record
// that this program cannot read.
func read(stored []sessionlog.Entry) (c content, ok bool) {
	var parts []entry // of a state that is not complete
	var next uint64   // its next part; 0 for none
	begins, gap := false, false
	for i, s := range stored {
		r, ok := parse(s.Data)
		if !ok {
			return c, false
		}
		begins = begins || i == 0 && r.first
		switch {
		case r.kind == kindLead:
			if next = 0; len(r.entries) > 0 {
				c.data, c.entries = r.data, r.entries
			}
		case r.kind == kindState && r.part == 0:
			parts, next = slices.Clone(r.entries), 1
		case r.kind == kindState && r.part == next && r.ballot == c.top:
			parts, next = append(parts, r.entries...), next+1
		case r.kind == kindNext && r.ballot == c.data && r.ballot == c.top && r.previous == c.end():
			c.entries = append(c.entries, r.entries...)
		default:
			gap = true
		}
		if r.kind == kindState && next == r.parts {
			c.data, c.entries, next = r.ballot, parts, 0
		}
		if r.ballot.compare(c.top) < 0 {
			gap = true // the copy forgot a record, and gave its sequence away again
		} else {
			c.top = r.ballot
		}
		c.tail, c.last = s.Seq, s.Data
	}
	c.torn = gap || len(stored) > 0 && len(c.entries) == 0 && !begins
	return c, true
}

// ended reports whether the log has ended, so that the copy may forget what it has.
func (c *content) ended() bool { return len(c.entries) > 0 && c.entries[len(c.entries)-1].final }

// end returns the sequence of the last entry; 0 for none.
func (c *content) end() uint64 {
	if len(c.entries) == 0 {
		return 0
	}
	return c.entries[len(c.entries)-1].seq
}

// has reports whether the last record is this one.
func (c *content) has(p []byte) bool { return bytes.Equal(c.last, p) }

// history returns the content that counts: that with the highest ballot of which there are
// entries, and of those the one that goes on longest. Each content is nil if it is not known.
func history(known []*content) *content {
	best := &content{}
	for _, c := range known {
		if c == nil || len(c.entries) == 0 {
			continue
		}
		if n := cmp.Or(c.data.compare(best.data), cmp.Compare(c.end(), best.end())); n > 0 || len(best.entries) == 0 {
			best = c
		}
	}
	return best
}

// settled reports whether a later history certainly contains best: two copies have its last
// entry under one ballot. A log that is empty in two copies is settled, too.
func settled(known []*content, best *content) bool {
	n := 0
	for _, c := range known {
		if c != nil && (len(best.entries) == 0 || len(c.entries) > 0 && c.data == best.data && c.end() == best.end()) {
			n++
		}
	}
	return n >= quorum
}
