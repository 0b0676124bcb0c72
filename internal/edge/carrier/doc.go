// Package carrier brings the datagrams of clients that do not speak UDP to the workers of an edge, and back.
//
// A listener (websocket, webtransport) makes connections; a [Hub] holds them. The workers do not learn of it: they see
// datagrams from an address. Such an address is no real one. It is made from the client's session token, which
// the client presents when it connects again, here or at another edge of the deployment: then a known address
// speaks, and what happens to sessions of UDP clients happens to this one.
//
// No values are queued for a connection that takes nothing: its worker is told that it is not writable, and sends the
// newest values later. Every buffer has a bound.
package carrier
