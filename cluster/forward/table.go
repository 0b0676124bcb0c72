package forward

import (
	"encoding/binary"
	"time"
)

// Times of what a table remembers.
const (
	// freshFor is how long it counts that a client is at some edge, since that edge
	// last showed it. The number is a trade: a shorter time asks the claims more often,
	// a longer one sends more datagrams of a client to an edge that is gone.
	freshFor = 2 * time.Second

	// fenceFor is how long the highest epoch of a client counts, since it was last
	// seen. It has to be shorter than what is left of a session that ended (24 h), or a
	// new session of the same address, which starts to count anew, would be fenced.
	fenceFor = time.Hour
)

// A clientKey is a Client without pointers, so that the collector has no work with
// a large table: address as IPv6, port, listener.
type clientKey [20]byte

func (c Client) key() (k clientKey) {
	ip := c.Addr.Addr().As16()
	copy(k[:], ip[:])
	binary.LittleEndian.PutUint16(k[16:], c.Addr.Port())
	binary.LittleEndian.PutUint16(k[18:], c.Listener)
	return k
}

// An entry is what is known of a client that other edges serve.
type entry struct {
	key         clientKey
	older, next int32         // neighbours in the order of use; 0 is the ring's head
	node        uint64        // process that serves the client; 0 if that is not known
	origin      uint64        // process to whose socket a Stray of the client came last; 0 for none
	confirmed   time.Duration // when node was said to, last
	epoch       uint64        // highest that was seen
	seen        time.Duration // when that epoch was seen, last
}

// A table remembers up to max clients; then the one that was longest not spoken of
// is forgotten. Entry 0 is the head of a ring in the order of use.
type table struct {
	max     int
	entries []entry
	index   map[clientKey]int32
	evicted uint64
}

func newTable(most int) table {
	return table{max: most, entries: make([]entry, 1), index: make(map[clientKey]int32)}
}

// find returns the entry of a client, nil if there is none. It is valid until the
// next touch.
func (t *table) find(k clientKey) *entry {
	if i, ok := t.index[k]; ok {
		return &t.entries[i]
	}
	return nil
}

// touch returns the entry of a client, which it makes if there is none, as the one
// that was used last.
func (t *table) touch(k clientKey) *entry {
	i, ok := t.index[k]
	if ok {
		t.unlink(i)
	} else {
		i = t.room()
		t.entries[i] = entry{key: k}
		t.index[k] = i
	}
	t.link(i)
	return &t.entries[i]
}

// room returns the number of an entry that is not used.
func (t *table) room() int32 {
	if len(t.index) < t.max {
		t.entries = append(t.entries, entry{})
		return int32(len(t.entries) - 1)
	}
	oldest := t.entries[0].next
	t.unlink(oldest)
	delete(t.index, t.entries[oldest].key)
	t.evicted++
	return oldest
}

func (t *table) unlink(i int32) {
	e := &t.entries[i]
	t.entries[e.older].next = e.next
	t.entries[e.next].older = e.older
}

// link puts i at the end of the ring, where the newest is.
func (t *table) link(i int32) {
	newest := t.entries[0].older
	t.entries[i].older, t.entries[i].next = newest, 0
	t.entries[newest].next = i
	t.entries[0].older = i
}

// observe notes an epoch of the client. It reports whether no higher one is known.
func (e *entry) observe(now time.Duration, epoch uint64) bool {
	if e.highest(now) > epoch {
		return false
	}
	e.epoch, e.seen = epoch, now
	return true
}

// highest returns the highest epoch that counts.
func (e *entry) highest(now time.Duration) uint64 {
	if now-e.seen > fenceFor {
		return 0
	}
	return e.epoch
}

// route returns the process that serves the client, 0 if that is not known or not
// fresh.
func (e *entry) route(now time.Duration) uint64 {
	if now-e.confirmed >= freshFor {
		return 0
	}
	return e.node
}
