// Package bench measures a whole deployment on this machine: it starts NATS, a relay and
// edges as processes, simulates a publisher and any number of clients, and reports the CPU
// time, the latency and the bytes of an update.
//
// # Load
//
// Load is open-loop: the time of each tick is fixed before the run, and latencies count
// from that time, so a system that falls behind cannot slow its own load down. Publishers send JSON "set" ops over NATS, one message for up to
// [opsPerMessage] states, as a game server does. The first component of every value
// encodes the tick, so a client can tell the age of an update.
//
// A swarm of clients shares one socket, with all addresses of 127.0.0.0/8, and one
// goroutine, which acknowledges, links and counts. Clients cost so little that the figures
// are those of the edge and not of the generator.
//
// Clients may come by WebSocket or WebTransport as well. Cases of several carriers are measured side by side: each has
// processes of its own, and their windows take turns.
//
// # Cost
//
// CPU is the user and system time of each process in a window whose ends lie between two
// ticks. On loopback a sender also pays for the reception, up to the socket of the
// receiver, so figures per core are lower than over a network card. The baselines pay the
// same: bare sends datagrams of the same sizes, order and bursts to the same sockets with
// sendmmsg and nothing else, which is the physical limit; raw NATS is nats-server with the
// same updates and one TCP connection per client; naive is one datagram and one system call
// per update and client.
//
// Windows of the deployment and of the baselines alternate, and a ratio is the median of
// the rounds. On a machine that other programs use, only ratios mean something.
//
// The package needs Linux, for /proc, sendmmsg and the addresses of loopback.
package bench
