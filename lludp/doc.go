// Package lludp is one circuit of LLUDP, the protocol between viewers and simulators of Second
// Life and OpenSimulator: the state of either end, without a socket, clock or goroutine.
// Package wire encodes its packets.
//
// A circuit numbers its packets, acknowledges reliable packets of the peer and repeats its own
// until they are acknowledged, passes each packet to the owner once, measures the round-trip
// time by pings, and ends when the peer is silent. It is a function of time and datagrams:
//
//	c, err := lludp.New(now, lludp.Config{})
//	for _, e := range c.Receive(now, datagram, out) { … }
//	for _, e := range c.Advance(now, out) { … }       // when c.NextTimeout() says so
//	err = c.Send(now, lludp.Message{Number: …, Body: …, Reliable: true}, out)
//
// LLUDP has no order and no fragments: packets are passed to the owner as they arrive, and a
// message that does not fit into a datagram cannot be sent.
//
// A circuit does not know addresses, permissions, or the meaning of bodies. A listener keeps
// circuits by address, accepts only UseCircuitCode ([wire.Opening]) from unknown addresses, and
// gives that first datagram to the circuit that it makes.
package lludp
