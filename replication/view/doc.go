// Package view encodes and decodes the records in which states are replicated.
//
// A state is cut into views of at most 128 values. A batch is a [Header] followed by records. A
// short number, its RefId, addresses each record to a view:
//
//	batch  = header record*
//	record = size VLQ, ref uint16, [entity uint64 if ref is 0xFFFF], message uint8, data
//
// The records are those of the views protocol: a RefIdAssign binds a RefId, a keyframe has all
// values of a view, an update some of them, a checksum is the CRC-32 of the keyframe, and a remove
// ends the state. Describe is an addition and says what the state is; package replication defines
// its content.
//
// Everything is little endian except the size. Writers use the shortest form of a size, readers
// accept every form. Readers alias their input, allocate nothing and report malformed input with a
// static error.
package view
