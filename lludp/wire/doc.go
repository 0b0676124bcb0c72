// Package wire encodes and decodes the packets of LLUDP, the protocol of the
// virtual worlds of Second Life and OpenSimulator.
//
//	packet = flags uint8, sequence uint32, n uint8, extra [n], number, body, [acks, count uint8]
//
// The header and the message number are big endian; the fields of bodies are
// little endian. What the bodies of most messages have is in a template that
// belongs to a game: here are only those that keep a circuit going.
//
// [Parse] takes a packet apart in the order in which that must happen: appended
// acknowledgements off the end, zero-coding, extra bytes, number. [Packet.Append]
// puts one together, and [AppendAcks] adds acknowledgements to what is ready to go.
//
// Byte slices in results alias the datagram or the [Scratch] that a zero-coded one
// was expanded into. Nothing here allocates, keeps state, or knows what a circuit
// is. What implementations disagree about, and which side this one takes, is in
// lludp/DESIGN.md.
package wire
