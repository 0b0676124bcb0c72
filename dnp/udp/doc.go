// Package udp moves datagrams between sockets and the owner of a DNP endpoint,
// many at a time and without allocating.
//
// [Listen] opens the sockets of a server, one per worker, all on one port: the
// kernel spreads the clients over them by address, so that a worker sees all
// datagrams of its clients and shares nothing. [Open] opens the one socket of a
// client. A worker then turns like this:
//
//	for {
//		s.SetReadDeadline(endpoint.NextTimeout())
//		n, err := s.ReadBatch(batch)     // waits for datagrams, the deadline or Wake
//		// ... feed batch[:n]; look at the inbox, whatever ReadBatch returned
//		w.Flush()                        // one system call for all that was sent
//	}
//
// A [Socket] is read by one goroutine and written by one (usually the same)
// through its [Writer]. Wake, Stats and Close may be called by any goroutine.
//
// # Addresses
//
// Addresses are netip.AddrPort and never IPv4-mapped: a client that reaches a
// dual-stack socket over IPv4 has an IPv4 address here, and an IPv4 address is
// mapped again when it is sent to through such a socket. A mapped address given
// by the caller means the IPv4 address. Zones of link-local addresses are
// interface numbers ("fe80::1%2"), so that one peer has one address.
//
// # Errors
//
// Nothing that a peer or the network does ends a batch. A datagram that the
// kernel refuses is dropped and counted by [DropReason], and those behind it go
// out. Errors of earlier datagrams that the kernel reports late (an ICMP "port
// unreachable") are counted and the read or write is made again. The only
// errors that ReadBatch and Flush return are [ErrWoken],
// os.ErrDeadlineExceeded, net.ErrClosed and failures of the socket itself.
//
// # Runs
//
// On Linux, datagrams of one size that follow each other to one peer, the last of
// which may be shorter, leave as one piece that the kernel cuts (UDP_SEGMENT). That is
// what the values of many states are to one client, and it takes 0.7 of the time of
// as many datagrams (BenchmarkSegments: two full ones and a rest, out and in over
// loopback, 2.9 beside 4.15 µs per datagram). Where the kernel or the device cannot,
// they go out one by one, and [Stats].Uncut counts it.
//
// # Large datagrams
//
// DNP has datagrams of up to 65,507 bytes, and one cannot know which slot of a
// batch the kernel will put them into. So every slot can hold the largest: 64
// slots reserve 4 MiB of address space per socket, of which the kernel only
// touches what it fills, a page or two per slot as long as datagrams are small.
// Slots lie an odd number of cache lines apart, because beginnings at multiples
// of a page would fight for the same lines of the cache. Smaller slots with
// overflow buffers would need a copy, or would lose the second large datagram of
// a batch. Programs with many sockets lower Config.ReadSlots and
// Config.DatagramMax.
//
// # Why not golang.org/x/net
//
// Its ReadBatch makes a net.UDPAddr for every datagram, and its WriteBatch wants
// one: 4 allocations and 104 bytes for a datagram out and in, and 1.07 to 1.3
// times the time (BenchmarkXNet beside BenchmarkSocket, 64 datagrams a batch
// over loopback: 3.4 to 4.1 µs beside 3.1 µs). On Linux this package therefore
// calls recvmmsg and sendmmsg itself, and waits with a timer of the kernel's,
// because deadlines of the runtime's cost three times as much (see descriptor).
// Other systems have [OpenPortable], which moves one datagram per system call.
package udp
