package forward

import (
	"crypto/cipher"
	"net/netip"
	"time"
)

// A Peer is another edge, as the roster has it.
type Peer struct {
	Name string         // of the node
	ID   uint64         // of the process, see Config.ID
	Addr netip.AddrPort // where it takes cluster datagrams
}

// A peer is one process of another edge.
type peer struct {
	Peer
	listed bool          // the roster has it
	heard  time.Duration // when the last datagram of it was accepted, or listening to it began
	watch  bool          // it sends heartbeats to this edge
	beat   bool          // it is sent heartbeats
	told   Liveness      // what Advance returned last

	counter uint64 // of the last datagram that was sealed for it
	window  window // of those that came
	seals   []seal // one for each key of the ring, in that order; made when needed
}

// A seal is the two ciphers that a peer and this process have by one key.
type seal struct {
	name    uint16
	in, out cipher.AEAD
}

// sealed makes the ciphers of p, if that is still to be done.
func (r *Router) sealed(p *peer) []seal {
	if len(p.seals) == 0 {
		for _, k := range r.ring {
			p.seals = append(p.seals, seal{k.name, k.pair(p.ID, r.cfg.ID), k.pair(r.cfg.ID, p.ID)})
		}
	}
	return p.seals
}
