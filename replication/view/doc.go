// Package view encodes and decodes the records in which states are replicated.
//
// A state is cut into views of at most 128 values. A batch is a [Header] and
// then records, each addressed to a view by a short number, its RefId:
//
//	batch  = header record*
//	record = size VLQ, ref uint16, [entity uint64 if ref is 0xFFFF], message uint8, data
//
// The records are those of the views protocol: a RefIdAssign binds a RefId, a
// keyframe has all values of a view, an update some of them, a checksum is the
// CRC-32 of the keyframe, and a remove ends the state. Describe is our own and
// says what the state is; its content belongs to package replication.
//
// Everything is little endian except the size, and a size is written in the
// shortest form although readers accept both. Readers alias their input,
// allocate nothing and report malformed input with a static error.
package view
