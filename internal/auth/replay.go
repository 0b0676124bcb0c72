package auth

import (
	"container/heap"
	"crypto/sha256"
	"net/netip"
	"time"
)

// ReplayMax is how many tokens an edge remembers, about 150 bytes each.
const ReplayMax = 65_536

// A Replay remembers which tokens were used, until they expire. A token counts once;
// the client that used it may come again with it as long as it is good, from the same
// IPv4 address or IPv6 /64: a client that crashed, or whose port changed. Somebody who
// took the token from elsewhere may not.
//
// When Max tokens are remembered, the one that expires first is forgotten, and
// Forgotten counts it: it could be used again by somebody else. Only who has good
// tokens can bring that about, and to turn players away would be worse.
//
// The zero value is ready. One goroutine at a time may use it.
type Replay struct {
	Max       int // 0 means ReplayMax
	Forgotten uint64

	used map[[16]byte]*use
	next uses
}

// A use is a token that was used.
type use struct {
	id      [16]byte // hash of client and jti
	from    netip.Prefix
	expires time.Time
}

// Use takes note that a client came with a token, and returns Replayed if somebody
// else had come with it before.
func (r *Replay) Use(now time.Time, c *Claims, from netip.Addr) Reason {
	r.expire(now)
	id, network := useID(c), Network(from)
	if u, ok := r.used[id]; ok {
		if u.from != network {
			return Replayed
		}
		return None
	}
	if r.used == nil {
		r.used = make(map[[16]byte]*use)
	}
	sizeMax := r.Max
	if sizeMax == 0 {
		sizeMax = ReplayMax
	}
	if len(r.used) >= sizeMax {
		r.forget()
		r.Forgotten++
	}
	u := &use{id: id, from: network, expires: c.Expires}
	r.used[id] = u
	heap.Push(&r.next, u)
	return None
}

// Len returns how many tokens are remembered.
func (r *Replay) Len() int { return len(r.used) }

func (r *Replay) expire(now time.Time) {
	for len(r.next) > 0 && !r.next[0].expires.After(now) {
		r.forget()
	}
}

func (r *Replay) forget() { delete(r.used, heap.Pop(&r.next).(*use).id) }

func useID(c *Claims) [16]byte {
	sum := sha256.Sum256([]byte(c.Client + "\x00" + c.ID))
	return [16]byte(sum[:16])
}

// Network returns the network that one client has for itself: an IPv4 address, or a /64 of
// IPv6.
func Network(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	bits := 64
	if a.Is4() {
		bits = 32
	}
	p, _ := a.Prefix(bits) // fails only for an invalid address, which has the zero prefix
	return p
}

// uses is a heap of tokens by when they expire.
type uses []*use

func (h uses) Len() int           { return len(h) }
func (h uses) Less(i, j int) bool { return h[i].expires.Before(h[j].expires) }
func (h uses) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *uses) Push(x any)        { *h = append(*h, x.(*use)) }
func (h *uses) Pop() any {
	last := len(*h) - 1
	u := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return u
}
