// Package wire encodes and decodes the packets of LLUDP, the protocol of the virtual worlds
// Second Life and OpenSimulator.
//
//	packet = flags uint8, sequence uint32, n uint8, extra [n], number, body, [acks, count uint8]
//
// The header and the message number are big endian; the fields of bodies are little endian. A
// template, which belongs to a game, defines the bodies of most messages. This package has only
// those that keep a circuit alive.
//
// [Parse] decodes a packet in the necessary order: appended acknowledgements off the end,
// zero-coding, extra bytes, number. [Packet.Append] encodes one, and [AppendAcks] adds
// acknowledgements to an encoded packet.
//
// Byte slices in results alias the datagram or the [Scratch] into which a zero-coded packet was
// expanded. The package allocates nothing, keeps no state, and does not know circuits.
// lludp/DESIGN.md lists where implementations disagree and which of them this one follows.
package wire
