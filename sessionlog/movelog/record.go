package movelog

import (
	"encoding/binary"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/format"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// A kind is what the last record of a store says of a log.
type kind uint8

// The kinds. Those from data to gone are part of records.
const (
	none  kind = iota // the store has nothing of the log
	data              // the log is here
	moved             // the log leaves with this write, which the other store may not have yet
	gone              // the log is not here
	other             // of another release
)

// A record is what this package adds to a write. In the quorum store each write is a record. In
// the replicated store a record is moved or gone; the writes of a log that is there are as the
// session made them, as programs write and read them that do not know this package.
//
//	format uint8 = 31: such a program leaves the log alone, see ErrFormat
//	version uint8 = 1
//	kind uint8
//	generation uvarint
//	data:  seq uvarint, the write
//	moved: seq, mark uvarint, the write
//	gone:  mark, shift, time uvarint
type record struct {
	kind       kind
	generation uint64 // grows with each move of the log
	seq        uint64 // of the entry as sessions see it. moved: of the entry before
	mark       uint64 // in the quorum store: what the other one has of the log has higher sequences
	shift      uint64 // between sequences of the replicated store and those that sessions see
	time       uint64 // of gone, in seconds of Unix time
	write      []byte // aliases what was decoded
}

const (
	recordFormat  = format.Max
	recordVersion = 1
)

func (r *record) encode() []byte {
	b := make([]byte, 0, 32+len(r.write))
	b = append(b, recordFormat, recordVersion, byte(r.kind))
	b = binary.AppendUvarint(b, r.generation)
	for _, v := range r.fields() {
		b = binary.AppendUvarint(b, *v)
	}
	return append(b, r.write...)
}

func (r *record) fields() []*uint64 {
	switch r.kind {
	case data:
		return []*uint64{&r.seq}
	case moved:
		return []*uint64{&r.seq, &r.mark}
	case gone:
		return []*uint64{&r.mark, &r.shift, &r.time}
	}
	return nil
}

// decode reports false for a write that is no record. A record that this program does not know
// has the kind other.
func decode(p []byte) (r record, ok bool) {
	in := wire.NewReader(p)
	if in.Uint8() != recordFormat {
		return record{}, false
	}
	version := in.Uint8()
	r.kind = kind(in.Uint8())
	r.generation = in.Uvarint(1<<64 - 1)
	for _, v := range r.fields() {
		*v = in.Uvarint(1<<64 - 1)
	}
	if in.Err() != nil || version != recordVersion || r.kind == none || r.kind >= other {
		return record{kind: other}, true
	}
	r.write = in.Rest()
	return r, true
}

// A place is what a store has of a log.
type place struct {
	record                    // the last one. Plain writes have the kind data
	tail   uint64             // its sequence in the store; 0 if there is none
	plain  []sessionlog.Entry // after a read: the writes behind the last record that is moved or gone
}

// placeOf makes a place of the writes that a store has. The entries of plain have sequences as
// sessions see them, but those of the replicated store lack the shift.
func placeOf(s store, stored []sessionlog.Entry) place {
	var p place
	for _, e := range stored {
		r, ok := decode(e.Data)
		switch {
		case !ok && s == inReplicated:
			r = record{kind: data, seq: e.Seq, write: e.Data}
		case !ok, r.kind == data && s == inReplicated:
			r = record{kind: other}
		}
		switch p.record, p.tail = r, e.Seq; r.kind {
		case data:
			p.plain = append(p.plain, sessionlog.Entry{Seq: r.seq, Data: r.write})
		case other:
			p.plain = append(p.plain, e)
		default:
			p.plain = nil
		}
	}
	return p
}

// entries returns the entries of a place as sessions see them.
func (p *place) entries(shift uint64) []sessionlog.Entry {
	if shift == 0 {
		return p.plain
	}
	list := make([]sessionlog.Entry, len(p.plain))
	for i, e := range p.plain {
		list[i] = sessionlog.Entry{Seq: e.Seq + shift, Data: sessionlog.Rebase(e.Data, shift)}
	}
	return list
}
