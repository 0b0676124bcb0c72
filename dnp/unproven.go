package dnp

import (
	"encoding/binary"
	"hash/maphash"
	"math/bits"
	"net/netip"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// A request can be forged for 5 bytes, so its effect has to be small: a slot of 64
// bytes, where the newest peer evicts the oldest if all are taken, and at most
// unprovenFactor bytes out per byte in.
const (
	unprovenFactor = 6
	unprovenBytes  = 1 << 13         // bytes in that count, more than all probes cost
	unprovenLife   = 5 * time.Second // a client gives up after the same time
	helloMax       = 6
)

// probeSteps are the times after the request at which the probe is sent. At the last
// the peer is forgotten.
var probeSteps = [...][]time.Duration{
	ProbePing: {0, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 1500 * time.Millisecond,
		2 * time.Second, unprovenLife},
	ProbeHello: {0, 500 * time.Millisecond, 1500 * time.Millisecond, 2500 * time.Millisecond,
		3500 * time.Millisecond, 4500 * time.Millisecond, unprovenLife},
}

// probeStepsMax is the length of the longest of them.
const probeStepsMax = 7

// An unproven is a peer that asked for a connection. It takes 64 bytes.
type unproven struct {
	addr       netip.AddrPort
	created    instant
	prev, next uint32 // among those that wait for the same step; slot+1
	chain      uint32 // in the bucket; slot+1
	in, out    uint16 // bytes
	hello      wire.LinkID
	number     uint8 // of the hello
	step       uint8 // the next of probeSteps
	acked      bool  // number was acknowledged
	byHello    bool  // the probe is a hello, whatever Config.Probe says
}

// receive notes that the peer sent so many bytes.
func (u *unproven) receive(bytes int) { u.in = uint16(min(int(u.in)+bytes, unprovenBytes)) }

// An unprovenTable holds a bounded number of unproven peers, in memory that it
// allocates once. All peers that wait for the same step wait equally long, so each step
// has a list in order of time and nothing is sorted.
type unprovenTable struct {
	max     int
	slots   []unproven
	free    uint32 // slot+1, linked by next
	n       int
	buckets []uint32 // slot+1
	seed    maphash.Seed
	steps   []time.Duration
	lists   [probeStepsMax]struct{ head, tail uint32 }
}

// tableSize returns how many unproven peers need a slot.
func (cfg *Config) tableSize() int {
	if !cfg.Listen || cfg.Login != nil || cfg.Probe == ProbeNone {
		return 0 // they leave no state
	}
	return cfg.UnprovenMax
}

func newUnprovenTable(size int, probe Probe) unprovenTable {
	t := unprovenTable{max: size, seed: maphash.MakeSeed()}
	if size > 0 {
		t.steps = probeSteps[probe]
		t.slots = make([]unproven, 0, size)
		t.buckets = make([]uint32, 1<<bits.Len(uint(size-1)))
	}
	return t
}

func (t *unprovenTable) bucket(addr netip.AddrPort) *uint32 {
	var b [18]byte
	ip := addr.Addr().As16()
	copy(b[:], ip[:])
	binary.LittleEndian.PutUint16(b[16:], addr.Port())
	return &t.buckets[maphash.Bytes(t.seed, b[:])&uint64(len(t.buckets)-1)]
}

// find returns the peer with this address, or nil.
func (t *unprovenTable) find(addr netip.AddrPort) *unproven {
	if i := t.place(addr); i != 0 {
		return &t.slots[i-1]
	}
	return nil
}

// place returns the slot+1 of the peer with this address, or 0.
func (t *unprovenTable) place(addr netip.AddrPort) (i uint32) {
	if t.n > 0 {
		for i = *t.bucket(addr); i != 0 && t.slots[i-1].addr != addr; {
			i = t.slots[i-1].chain
		}
	}
	return i
}

// insert adds a peer and reports whether it evicted the oldest.
func (t *unprovenTable) insert(addr netip.AddrPort, now instant) (u *unproven, evicted bool) {
	if t.n >= t.max {
		t.remove(t.oldest())
		evicted = true
	}
	i := t.free
	if i != 0 {
		t.free = t.slots[i-1].next
	} else {
		t.slots = t.slots[:len(t.slots)+1]
		i = uint32(len(t.slots))
	}
	t.n++
	head := t.bucket(addr)
	u = &t.slots[i-1]
	*u = unproven{addr: addr, created: now, chain: *head}
	*head = i
	t.enlist(i)
	return u, evicted
}

func (t *unprovenTable) remove(u *unproven) {
	i := t.place(u.addr)
	t.delist(i)
	for p := t.bucket(u.addr); ; p = &t.slots[*p-1].chain {
		if *p == i {
			*p = u.chain
			break
		}
	}
	*u = unproven{next: t.free}
	t.free = i
	t.n--
}

// restart makes u wait for the first step again. A peer that repeats its request
// has not seen the ConnectionAck, so it ignored every probe.
func (t *unprovenTable) restart(u *unproven, now instant) {
	i := t.place(u.addr)
	t.delist(i)
	u.created, u.step = now, 0
	t.enlist(i)
}

func (t *unprovenTable) enlist(i uint32) {
	u := &t.slots[i-1]
	l := &t.lists[u.step]
	u.prev, u.next = l.tail, 0
	if l.tail == 0 {
		l.head = i
	} else {
		t.slots[l.tail-1].next = i
	}
	l.tail = i
}

func (t *unprovenTable) delist(i uint32) {
	u := &t.slots[i-1]
	l := &t.lists[u.step]
	if u.prev == 0 {
		l.head = u.next
	} else {
		t.slots[u.prev-1].next = u.next
	}
	if u.next == 0 {
		l.tail = u.prev
	} else {
		t.slots[u.next-1].prev = u.prev
	}
}

// oldest returns the peer whose last request is the oldest. There must be one.
func (t *unprovenTable) oldest() *unproven {
	var oldest *unproven
	for _, l := range t.lists {
		if l.head == 0 {
			continue
		}
		if u := &t.slots[l.head-1]; oldest == nil || u.created < oldest.created {
			oldest = u
		}
	}
	return oldest
}

// nextTimeout returns when the next step is due.
func (t *unprovenTable) nextTimeout() instant {
	at := never
	if t.n == 0 {
		return at
	}
	for step, l := range t.lists[:len(t.steps)] {
		if l.head != 0 {
			at = min(at, t.slots[l.head-1].created.add(t.steps[step]))
		}
	}
	return at
}

// nextDue returns a peer whose step is due, and moves it to the next step. If last, the
// peer has none left, and the caller removes it.
func (t *unprovenTable) nextDue(now instant) (u *unproven, last bool) {
	if t.n == 0 {
		return nil, false
	}
	for step, l := range t.lists[:len(t.steps)] {
		if l.head == 0 || t.slots[l.head-1].created.add(t.steps[step]) > now {
			continue
		}
		u := &t.slots[l.head-1]
		if step == len(t.steps)-1 {
			return u, true
		}
		i := l.head
		t.delist(i)
		u.step++
		t.enlist(i)
		return u, false
	}
	return nil, false
}
