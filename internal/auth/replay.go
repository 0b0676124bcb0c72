package auth

import (
	"cmp"
	"crypto/sha256"
	"net/netip"
	"time"

	"github.com/dnprelay/dnprelay/internal/turn/heap"
)

// ReplayMax is how many tokens an edge remembers, about 150 bytes each.
const ReplayMax = 65_536

// A Replay remembers which tokens were used, until they expire. The client that used a
// token may use it again until it expires, from the same IPv4 address or IPv6 /64, because
// the client may have crashed or changed its port. From another network the token is
// refused: it may be stolen.
//
// Beyond Max tokens the Replay forgets the one that expires first, and counts it in
// Forgotten: another client could use that token again. Only holders of valid tokens can
// cause this, and to refuse players would be worse.
//
// The zero value is ready. One goroutine at a time may use it.
type Replay struct {
	Max       int // 0 means ReplayMax
	Forgotten uint64

	used map[[16]byte]*use
	next *heap.Heap[*use] // the first to expire first
}

// A use is a token that was used.
type use struct {
	id      [16]byte // hash of client and jti
	from    netip.Prefix
	expires time.Time
	place   int // in next
}

// Use notes that a client logs in with a token. It returns Replayed if the token was used
// from another network before.
func (r *Replay) Use(now time.Time, c *Claims, from netip.Addr) Reason {
	r.expire(now)
	id, network := useID(c), HomeNetwork(from)
	if u, ok := r.used[id]; ok {
		if u.from != network {
			return Replayed
		}
		return None
	}
	if r.used == nil {
		r.used = make(map[[16]byte]*use)
		r.next = heap.New(func(a, b *use) bool { return a.expires.Before(b.expires) }, func(u *use) *int { return &u.place })
	}
	if len(r.used) >= cmp.Or(r.Max, ReplayMax) {
		r.forget()
		r.Forgotten++
	}
	u := &use{id: id, from: network, expires: c.Expires}
	r.used[id] = u
	r.next.Set(u)
	return None
}

// Len returns how many tokens r remembers.
func (r *Replay) Len() int { return len(r.used) }

func (r *Replay) expire(now time.Time) {
	for len(r.used) > 0 {
		if u, _ := r.next.First(); u.expires.After(now) {
			return
		}
		r.forget()
	}
}

// forget forgets the token that expires first.
func (r *Replay) forget() { delete(r.used, r.next.Pop().id) }

func useID(c *Claims) [16]byte {
	sum := sha256.Sum256([]byte(c.Client + "\x00" + c.ID))
	return [16]byte(sum[:16])
}
