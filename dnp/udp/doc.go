// Package udp moves datagrams between sockets and the owner of a DNP endpoint,
// many at a time and without allocating.
//
// [Listen] opens the sockets of a server, one per worker, all on one port: the
// kernel distributes the clients over them by address, so that a worker sees all
// datagrams of its clients and shares nothing. [Open] opens the one socket of a
// client. The loop of a worker:
//
//	for {
//		s.SetReadDeadline(endpoint.NextTimeout())
//		n, err := s.ReadBatch(batch)     // waits for datagrams, the deadline or Wake
//		// ... feed batch[:n]; look at the inbox, whatever ReadBatch returned
//		w.Flush()                        // one system call for all datagrams sent
//	}
//
// One goroutine reads a [Socket], and one (usually the same) writes through its
// [Writer]. Other goroutines that write have a Writer each (NewWriter). Any goroutine may call
// Wake, Stats and Close.
//
// # Addresses
//
// Addresses are netip.AddrPort and never IPv4-mapped: a client that reaches a
// dual-stack socket over IPv4 has an IPv4 address here, and an IPv4 address is
// mapped again when such a socket sends to it. A mapped address from the caller means
// the IPv4 address. Zones of link-local addresses are
// interface numbers ("fe80::1%2"), so that one peer has one address.
//
// # Errors
//
// Nothing that a peer or the network does ends a batch. The socket drops a datagram that
// the kernel refuses, counts it by [DropReason], and sends those behind it. It counts
// errors of earlier datagrams that the kernel reports late (an ICMP "port unreachable")
// and repeats the read or write. The only errors that ReadBatch and Flush return are
// [ErrWoken], os.ErrDeadlineExceeded, net.ErrClosed and failures of the socket itself.
//
// # Runs
//
// On Linux, consecutive datagrams of one size to one peer, the last of which may be
// shorter, leave as one piece that the kernel cuts (UDP_SEGMENT). The values of many
// states for one client are such datagrams; sending them this way takes 0.7 of the time
// (BenchmarkSegments). Where the kernel or the device cannot, they leave one by one, and
// [Stats].Uncut counts it.
//
// # Large datagrams
//
// DNP has datagrams of up to 65,507 bytes, and any slot of a batch may receive one. So
// every slot can hold the largest: 64 slots reserve 4 MiB of address space per socket, of
// which the kernel only touches what it fills, a page or two per slot while datagrams
// are small. Slots lie an odd number of cache lines apart, because slots at multiples of
// a page would compete for the same lines of the cache. Smaller slots with overflow
// buffers would need a copy, or would lose the second large datagram of a batch. Programs
// with many sockets lower Config.ReadSlots and Config.DatagramMax.
//
// # Why not golang.org/x/net
//
// Its ReadBatch allocates a net.UDPAddr for every datagram, and its WriteBatch needs
// one: 4 allocations and 104 bytes for a datagram out and in, and 1.07 to 1.3 times the
// time (BenchmarkXNet beside BenchmarkSocket). On Linux this package therefore calls
// recvmmsg and sendmmsg itself, and waits with a kernel timer, because deadlines of the
// runtime cost three times as much (see descriptor). On other systems the net
// package moves one datagram per system call.
package udp
