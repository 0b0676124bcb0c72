// Package dnptest holds peers for tests of everything that speaks DNP.
//
// A [Client] is a model of the deployed implementations: the denetwork
// libraries in C++, Java and Python, the engine's network module, and a client
// that somebody wrote from the published text alone. Each of their habits and
// bugs is a field of [Behaviour], and [Cpp], [Java], [Python], [Engine] and
// [SpecText] are the sets of them that exist. The model shares only the packages
// wire and netstate with the relay, so that a mistake in package dnp meets
// code that was written separately.
//
// A Client is pure. It is told datagrams and the time, and hands out datagrams:
//
//	c := dnptest.NewClient(dnptest.Config{Behaviour: dnptest.Cpp(), Server: server, Send: send})
//	c.Connect(now)
//	c.Receive(now, from, datagram)
//	c.Advance(now) // when NextTimeout says so
//
// [RunUDP] drives one on a real socket. A [Transcript] is the other kind of
// peer: a script that says byte by byte what is sent and what must come back,
// with the reason beside it.
package dnptest
