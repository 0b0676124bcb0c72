// Package promises tries what INTERFACES.md guarantees, one test for each sentence, from outside: a game server with package publisher, clients
// of package client or in TypeScript, and between client and edge a path with delay, jitter, loss and doubled datagrams.
//
// A test states its promise once. A matrix tries it by UDP, WebSocket and WebTransport, over all paths, at one edge and at two, each cell with a deployment
// of its own. `make test` tries the few cells that the test names, `make promises` all of them, many times more (-all, -times), and with PLAYERS=go,ts those
// of the client in TypeScript, too, which have no WebTransport because Node has none. -seed repeats the loss of a path, not the scheduling
// of processes. What a simulation can show belongs into internal/systest.
package promises
