// Package lludp is one circuit of LLUDP, the protocol between viewers and
// simulators of Second Life and OpenSimulator: what both ends of it keep, without
// any socket, clock or goroutine. Package wire has the bytes.
//
// A circuit numbers what it sends, acknowledges what comes and wants it, repeats
// what was not acknowledged, passes each packet up once, measures the way by pings
// and ends when nothing is heard. It is a function of the time and of datagrams:
//
//	c, err := lludp.New(now, lludp.Config{})
//	for _, e := range c.Receive(now, datagram, out) { … }
//	for _, e := range c.Advance(now, out) { … }       // when c.NextTimeout() says so
//	err = c.Send(now, lludp.Message{Number: …, Body: …, Reliable: true}, out)
//
// LLUDP has no order and no fragments: packets are passed up as they come, and
// one that does not fit a datagram cannot be sent.
//
// A circuit does not know addresses, who may open one, or what bodies say. A
// listener keeps circuits by address, takes only UseCircuitCode ([wire.Opening])
// from others, and gives that first datagram to the circuit that it makes.
package lludp
