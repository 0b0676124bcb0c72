package forward

import (
	"encoding/binary"
	"time"

	"github.com/dnprelay/dnprelay/dnp/admit"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// fenceFor is how long the highest epoch of a client counts, since it was last seen. It has
// to be shorter than the log of a session that ended exists (24 h), or the fence would hold
// up a new session of the same address, which counts from 1.
const fenceFor = time.Hour

// A clientKey is a Client without pointers, so that the garbage collector has no work with
// a large fence: address as IPv6, port, listener.
type clientKey [20]byte

func (c Client) key() (k clientKey) {
	ip := c.Addr.Addr().As16()
	copy(k[:], ip[:])
	binary.LittleEndian.PutUint16(k[16:], c.Addr.Port())
	binary.LittleEndian.PutUint16(k[18:], c.Listener)
	return k
}

// A fence remembers the highest epochs of the sessions of clients that other edges serve, and
// what they may still send, for up to max clients; then it forgets the one that was longest not
// used. Entry 0 is the head of a ring in the order of use.
type fence struct {
	max     int
	entries []fenceEntry
	index   map[clientKey]int32
	evicted uint64
}

type fenceEntry struct {
	key                clientKey
	older, next        int32                  // neighbours in the order of use; 0 is the ring's head
	sent, acknowledged wire.Seq               // latest numbers that were returned to the client
	awaited            uint32                 // bit i: the command sent-i awaits its acknowledgement
	offers             [offersMax]wire.LinkID // latest links that were offered to the client, the newest first
	origin             uint64                 // process to whose socket the last Orphan of the client came; 0 for none
	epoch              uint64                 // highest that was seen
	seen               time.Duration          // when that epoch was seen last
	allowance          admit.Allowance        // what may still be forwarded in the name of the client
}

func newFence(most int) fence {
	return fence{max: most, entries: make([]fenceEntry, 1), index: make(map[clientKey]int32)}
}

// touch returns the entry of a client, which it makes if there is none, as the one that
// was used last. The entry is valid until the next touch.
func (f *fence) touch(k clientKey) *fenceEntry {
	i, ok := f.index[k]
	if ok {
		f.unlink(i)
	} else {
		i = f.room()
		f.entries[i] = fenceEntry{key: k}
		f.index[k] = i
	}
	f.link(i)
	return &f.entries[i]
}

// room returns the number of an unused entry.
func (f *fence) room() int32 {
	if len(f.index) < f.max {
		f.entries = append(f.entries, fenceEntry{})
		return int32(len(f.entries) - 1)
	}
	oldest := f.entries[0].next
	f.unlink(oldest)
	delete(f.index, f.entries[oldest].key)
	f.evicted++
	return oldest
}

func (f *fence) unlink(i int32) {
	e := &f.entries[i]
	f.entries[e.older].next = e.next
	f.entries[e.next].older = e.older
}

// link puts i at the end of the ring, where the newest is.
func (f *fence) link(i int32) {
	newest := f.entries[0].older
	f.entries[i].older, f.entries[i].next = newest, 0
	f.entries[newest].next = i
	f.entries[0].older = i
}

// observe notes an epoch of the client, unless a higher one counts.
func (e *fenceEntry) observe(now time.Duration, epoch uint64) {
	if epoch >= e.highest(now) {
		e.epoch, e.seen = epoch, now
	}
}

// highest returns the highest epoch that counts.
func (e *fenceEntry) highest(now time.Duration) uint64 {
	if now-e.seen > fenceFor {
		return 0
	}
	return e.epoch
}
