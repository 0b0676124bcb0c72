// Package bench measures a whole deployment: it starts NATS, a relay and edges as
// processes of their own, plays publishers and any number of clients, and says
// what an update cost, how late it was and how many bytes it took.
//
// # Load
//
// Load is open-loop: when tick n is due is fixed before the run, and latencies
// count from there, so a system that falls behind cannot slow its own load down
// and look good. Publishers send JSON "set" ops over NATS, one message for up to
// [opsPerMessage] states, as a game server does. The first component of every value
// tells the tick, so that an update that arrives at a client tells how old it is.
//
// Clients are as lean as they can be: a swarm of them shares one socket, which has
// all of 127.0.0.0/8 for addresses, and one goroutine, which acknowledges, links
// and counts. So what is measured is the edge, not the generator.
//
// # Cost
//
// CPU is what the kernel says that each process used, user and system time, in a
// window whose ends lie between two ticks. On loopback a sender also pays for the
// reception, up to the socket of the receiver, so figures per core are lower than
// over a network card. The baselines beside them pay the same:
//
//   - bare: the same datagrams, in sizes, order and bursts, sent to the same
//     sockets by sendmmsg and nothing else: the physical limit;
//   - raw NATS: the same updates as messages of nats-server to one TCP connection
//     per client, without any state;
//   - naive: one datagram and one system call per update and client.
//
// Windows of ours and of the baselines take turns, and a ratio is the median of the
// rounds. Where other programs use the machine, only ratios mean something.
//
// The package needs Linux, for /proc, sendmmsg and the addresses of loopback.
package bench
