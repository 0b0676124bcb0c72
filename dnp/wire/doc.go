// Package wire encodes and decodes DNP datagrams.
//
// A datagram is one command byte followed by the command's fields. All integers
// are little endian. Every message has its layout in the doc comment, an Append
// method and a Parse function:
//
//	func (m LinkUp) Append(b []byte) []byte
//	func ParseLinkUp(p []byte) (LinkUp, error)
//
// Parse functions take the datagram after the command byte and ignore bytes
// after a complete command, as every implementation does. Byte slices in the
// result alias the datagram. The package does not allocate, keeps no state, and does
// not know what a connection is.
//
// Where the two listener profiles differ, the function takes a [Profile].
package wire
