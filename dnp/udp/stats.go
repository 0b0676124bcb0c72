package udp

import (
	"sync/atomic"
	"syscall"
)

// A DropReason says why a datagram was not sent, or was dropped after it was received.
type DropReason uint8

const (
	DropRefused     DropReason = iota // an earlier datagram reached a closed port (reported late)
	DropTooLarge                      // larger than UDP or the path can carry
	DropUnreachable                   // no route, or not an address of this socket's family
	DropFull                          // the socket or the network card had no room in time
	DropOther                         // any other error of the kernel
	DropTruncated                     // received, but longer than Config.DatagramMax
	NumDropReasons
)

var dropReasonNames = [...]string{"refused", "too_large", "unreachable", "full", "other", "truncated"}

// String returns the name of r in metrics.
func (r DropReason) String() string {
	if int(r) < len(dropReasonNames) {
		return dropReasonNames[r]
	}
	return "drop?"
}

// Stats are the counters of a socket since it was opened.
type Stats struct {
	DatagramsIn, BytesIn, BatchesIn    uint64
	DatagramsOut, BytesOut, BatchesOut uint64

	// Drops counts datagrams by reason. DropRefused counts reports, since the
	// kernel does not say which datagram it was.
	Drops [NumDropReasons]uint64

	// Uncut counts how often datagrams that could have left as one piece had to
	// be sent one by one. If the device cannot cut at all, only the first time counts.
	Uncut uint64

	// WriteWaits counts how often a flush had to wait for the socket.
	WriteWaits uint64

	// Overflows counts datagrams that the kernel dropped because the read
	// buffer was full. It is 0 where the system does not tell.
	Overflows uint64
}

// counters are the counters of a socket. Its owners write them once per batch; any
// goroutine may read them.
type counters struct {
	in, out           traffic
	writeWaits, uncut atomic.Uint64
	drops             [NumDropReasons]atomic.Uint64
}

// A traffic counts one direction.
type traffic struct{ datagrams, bytes, batches atomic.Uint64 }

// add counts a batch.
func (t *traffic) add(datagrams, bytes int) {
	t.batches.Add(1)
	t.datagrams.Add(uint64(datagrams))
	t.bytes.Add(uint64(bytes))
}

func (c *counters) drop(r DropReason, n int) { c.drops[r].Add(uint64(n)) }

func (c *counters) stats() Stats {
	s := Stats{
		DatagramsIn: c.in.datagrams.Load(), BytesIn: c.in.bytes.Load(), BatchesIn: c.in.batches.Load(),
		DatagramsOut: c.out.datagrams.Load(), BytesOut: c.out.bytes.Load(), BatchesOut: c.out.batches.Load(),
		WriteWaits: c.writeWaits.Load(), Uncut: c.uncut.Load(),
	}
	for i := range s.Drops {
		s.Drops[i] = c.drops[i].Load()
	}
	return s
}

// dropReason returns the counter for an error of a datagram.
func dropReason(errno syscall.Errno) DropReason {
	switch errno {
	case syscall.ECONNREFUSED, syscall.ECONNRESET:
		return DropRefused
	case syscall.EMSGSIZE:
		return DropTooLarge
	case syscall.EAGAIN, syscall.ENOBUFS, syscall.ENOMEM:
		return DropFull
	case syscall.ENETUNREACH, syscall.EHOSTUNREACH, syscall.ENETDOWN, syscall.EHOSTDOWN,
		syscall.EADDRNOTAVAIL, syscall.EAFNOSUPPORT:
		return DropUnreachable
	}
	return DropOther
}

// pending reports whether errno can be a late report about an earlier datagram.
func pending(errno syscall.Errno) bool {
	switch errno {
	case syscall.ECONNREFUSED, syscall.ECONNRESET, syscall.EHOSTUNREACH, syscall.ENETUNREACH, syscall.EHOSTDOWN,
		syscall.EPROTO, syscall.ENOPROTOOPT:
		return true
	}
	return false
}

// fatal reports whether errno concerns the socket, not a datagram.
func fatal(errno syscall.Errno) bool {
	switch errno {
	case syscall.EBADF, syscall.ENOTSOCK, syscall.EFAULT, syscall.ENOSYS:
		return true
	}
	return false
}
