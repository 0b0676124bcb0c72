// Package admit judges datagrams from addresses that have no connection, before the
// endpoint stores or answers anything.
//
// A connection request is five bytes that anybody can forge, so its cost has to be
// bounded before it is examined. A [Gate] holds all that an endpoint remembers of
// addresses without connection: token buckets per address and per network, one for all,
// and tombstones of sessions that ended. New allocates all of its memory, at most 448 KiB.
//
//	switch gate.Judge(now, from, admit.Request) {
//	case admit.Pass:      // remember the peer and let it prove its address
//	case admit.Stateless: // answer, but remember nothing: there are too many
//	default:              // ignore it; the verdict says why
//	}
//
// A Gate whose tables are too small fails open: a prefix that was evicted begins again
// with a full bucket. So forged sources, however many, cannot lock anybody out; the
// bucket for all and the stateless mode bound them.
//
// An [Allowance] bounds what is taken in the name of a peer that has a connection.
//
// The package has no clock and no goroutine, and allocates nothing after New. One
// goroutine owns a Gate, so if the kernel spreads the ports of an address over several
// sockets, the address has a bucket in each.
package admit
