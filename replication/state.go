package replication

import (
	"hash/crc32"

	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/replication/view"
)

// A State is a replica's copy of one state. Only Data may be changed by others.
type State struct {
	Number uint64
	Desc   *Description
	Values *netstate.State // a null value holds its substitute
	Nulls  netstate.Mask   // of length 0 if no value is nullable
	Data   any             // the observer's

	schema *schema
	sum    uint32 // CRC-32 of the Describe
	round  uint32 // of the last repair that mentioned it
	hidden bool   // the groups of a client
	dead   bool   // removed
}

// IsNull reports whether value i is null.
func (s *State) IsNull(i int) bool { return len(s.Nulls) > 0 && s.Nulls.Has(i) }

// set changes one value and reports whether it was different. It allocates
// nothing unless a string or data value is longer than ever before.
func (s *State) set(i int, value []byte, null bool) bool {
	if null {
		value = s.schema.defs[i].Substitute()
	}
	changed := s.Values.Set(i, value)
	if len(s.Nulls) == 0 || null == s.Nulls.Has(i) {
		return changed
	}
	if null {
		s.Nulls.Set(i)
	} else {
		s.Nulls.Clear(i)
	}
	return true
}

// crc returns the checksum of one view, using b to encode it.
func (s *State) crc(b []byte, r view.Range) (uint32, []byte) {
	b = view.AppendKeyframe(b[:0], s.Values, s.Nulls, s.schema.fields, r)
	return crc32.ChecksumIEEE(b), b
}
