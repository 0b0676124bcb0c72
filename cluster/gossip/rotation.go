package gossip

import (
	"bytes"
	"slices"
	"time"

	"github.com/hashicorp/memberlist"
)

// A rotation decides which keys a node knows and sends with while the key file
// changes. Every node sees a new file at another time, at most delay after the
// first. So a node knows new keys at once, sends with the first delay later, when
// all know it, and forgets the old ones another delay later, when nobody sends
// with them.
type rotation struct {
	delay  time.Duration
	wanted []key     // of the file
	ring   []key     // known; the first is the one to send with
	useAt  time.Time // when to send with wanted[0], unless that is so already
	dropAt time.Time // when to forget what is not in wanted; zero = nothing to forget
}

// newRotation starts with the keys of the file.
func newRotation(keys []key, delay time.Duration) *rotation {
	return &rotation{delay: delay, wanted: keys, ring: slices.Clone(keys)}
}

// read takes the keys of the file and reports whether they are others than before.
func (r *rotation) read(now time.Time, keys []key) (changed bool) {
	if slices.EqualFunc(keys, r.wanted, sameKey) {
		return false
	}
	r.wanted = keys
	for _, k := range keys {
		if !contains(r.ring, k) {
			r.ring = append(r.ring, k)
		}
	}
	r.useAt, r.dropAt = now.Add(r.delay), now.Add(2*r.delay)
	if sameKey(r.ring[0], keys[0]) {
		r.dropAt = r.useAt
	}
	return true
}

// advance does what is due and reports what it did.
func (r *rotation) advance(now time.Time) (switched, dropped bool) {
	if !sameKey(r.ring[0], r.wanted[0]) && !now.Before(r.useAt) {
		r.use(r.wanted[0])
		switched = true
	}
	if !r.dropAt.IsZero() && !now.Before(r.dropAt) {
		r.ring, r.dropAt = slices.Clone(r.wanted), time.Time{}
		dropped = true
	}
	return switched, dropped
}

// useNext sends with the key of the file behind the one that is sent with: one
// that starts in the middle of a rotation finds out which key the others know. It
// reports false when there is none.
func (r *rotation) useNext(now time.Time) bool {
	i := slices.IndexFunc(r.wanted, func(k key) bool { return sameKey(k, r.ring[0]) })
	if i < 0 || i+1 == len(r.wanted) {
		return false
	}
	r.use(r.wanted[i+1])
	r.useAt = now.Add(r.delay)
	return true
}

func (r *rotation) use(k key) {
	ring := []key{k}
	for _, o := range r.ring {
		if !sameKey(o, k) {
			ring = append(ring, o)
		}
	}
	r.ring = ring
}

func sameKey(a, b key) bool { return bytes.Equal(a, b) }

func contains(list []key, k key) bool {
	return slices.ContainsFunc(list, func(o key) bool { return sameKey(o, k) })
}

// install makes a keyring of memberlist equal to ring, while it is in use. A key
// is only ever removed from its end: Keyring.RemoveKey (keyring.go:132) shifts the
// keys behind in place, under the eyes of those who decrypt.
func install(keyring *memberlist.Keyring, ring []key) error {
	add := func() error {
		for _, k := range ring {
			if err := keyring.AddKey(k); err != nil {
				return err
			}
		}
		return nil
	}
	if err := add(); err != nil {
		return err
	}
	if err := keyring.UseKey(ring[0]); err != nil {
		return err
	}
	for {
		keys := keyring.GetKeys()
		if !slices.ContainsFunc(keys, func(k []byte) bool { return !contains(ring, k) }) {
			return add()
		}
		if err := keyring.RemoveKey(keys[len(keys)-1]); err != nil {
			return err
		}
	}
}
