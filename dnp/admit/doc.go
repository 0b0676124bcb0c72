// Package admit decides about datagrams from addresses that have no connection,
// before anything is kept or answered.
//
// A connection request is five bytes that anybody can forge, so what one may cost has
// to be known before it is looked at any further. A [Gate] holds all that an endpoint
// remembers of strangers: token buckets per address and per network, one for all, and
// the tombstones of sessions that ended. Its memory is given out when it is made and
// never grows; [Gate.Memory] says how much that is.
//
//	switch gate.Request(now, from) {
//	case admit.Pass:      // remember the peer and let it prove its address
//	case admit.Stateless: // answer, but remember nothing: there are too many
//	default:              // ignore it; the verdict says why, and is counted
//	}
//
// A Gate fails open where its tables are too small: a prefix that was pushed out
// begins again with a full bucket. Forged sources, of which there are always enough,
// thereby cannot lock anybody out; what bounds them is the bucket for all and the
// stateless mode.
//
// The package has no clock and no goroutine, and allocates nothing after New. One
// goroutine owns a Gate, so an address whose ports the kernel spreads over several
// sockets has as many buckets.
package admit
