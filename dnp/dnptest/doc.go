// Package dnptest provides peers for tests of programs that speak DNP.
//
// A [Client] is a model of the deployed implementations: the denetwork
// libraries in C++, Java and Python, the engine's network module, and a client
// written from the published text alone. Each of their habits and bugs is a field of
// [Behaviour], and [Cpp], [Java], [Python], [Engine] and [SpecText] return the
// combinations that exist. The model shares only the packages wire and netstate with
// the relay, so that it does not repeat a mistake of package dnp.
//
// A Client is pure: datagrams and the time go in, datagrams come out:
//
//	c := dnptest.NewClient(dnptest.Config{Behaviour: dnptest.Cpp(), Server: server, Send: send})
//	c.Connect(now)
//	c.Receive(now, from, datagram)
//	c.Advance(now) // when NextTimeout says so
//
// [RunUDP] drives one on a real socket.
package dnptest
