// Package lludp serves viewers of Second Life and OpenSimulator: it is an adapter, so each of them is a DNP client of this edge.
//
// A viewer logs in by HTTP (XML-RPC), which tells it an address, a code and the ids of its agent and session. With these it opens
// a circuit by UDP. What is said on it is the business of package viewer; this package has the sockets, the
// logins and a goroutine for each viewer.
package lludp
