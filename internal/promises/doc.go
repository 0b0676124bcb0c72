// Package promises tries what INTERFACES.md guarantees, one test for each sentence, from outside: a game server with package publisher, clients
// with package client, and between client and edge a path with delay, jitter, loss and doubled datagrams.
//
// A test is short in `make test`; `make promises` tries each many times more (-times). -seed repeats the loss of a path, not the scheduling
// of processes. What a simulation can show belongs into internal/systest.
package promises
