package dnp

import (
	"encoding/binary"
	"hash/maphash"
	"math/bits"
	"net/netip"
	"time"

	"github.com/dnprelay/dnprelay/dnp/admit"
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

// An unproven is a peer that asked for a connection. It takes 64 bytes.
type unproven struct {
	addr       netip.AddrPort
	created    instant
	prev, next uint32 // slots of those that wait for the same step
	chain      uint32 // next slot in the bucket
	in, out    uint16 // bytes
	hello      wire.LinkID
	number     uint8 // of the hello
	step       uint8 // the next of probeSteps
	acked      bool  // number was acknowledged
	byHello    bool  // the probe is a hello, not a ping
	patient    bool  // its first hello left before it had a slot; the next waits for helloPatience
}

// receive notes that the peer sent so many bytes.
func (u *unproven) receive(bytes int) { u.in = uint16(min(int(u.in)+bytes, unprovenBytes)) }

// An unprovenTable holds a bounded number of unproven peers, in memory that it
// allocates once. All peers that wait for the same step wait equally long, so each step
// has a ring in order of time and nothing is sorted. The first slots are no peers but the
// heads of these rings, so slot 0 can stand for none.
type unprovenTable struct {
	max     int
	slots   []unproven
	free    uint32 // slot, linked by next
	n       int
	buckets []uint32 // slots
	seed    maphash.Seed
	steps   []time.Duration
}

// tableSize returns how many unproven peers need a slot.
func (cfg *Config) tableSize() int {
	if !cfg.Listen || cfg.Login == nil && cfg.Probe == ProbeNone {
		return 0 // they leave no state
	}
	return cfg.UnprovenMax
}

func newUnprovenTable(cfg *Config) unprovenTable {
	steps := []time.Duration{unprovenLife} // of peers that answered a greeting; nothing is sent to them
	if cfg.Login == nil && cfg.Probe != ProbeNone {
		steps = probeSteps[cfg.Probe]
	}
	return newTable(cfg.tableSize(), steps...)
}

// newTable returns a table for size peers that wait for these steps.
func newTable(size int, steps ...time.Duration) unprovenTable {
	t := unprovenTable{max: size, seed: maphash.MakeSeed()}
	if size > 0 {
		t.steps = steps
		t.buckets = make([]uint32, 1<<bits.Len(uint(size-1)))
		t.slots = make([]unproven, len(t.steps), len(t.steps)+size)
		for i := range t.slots {
			t.slots[i].prev, t.slots[i].next = uint32(i), uint32(i)
		}
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
		return &t.slots[i]
	}
	return nil
}

// place returns the slot of the peer with this address, or 0.
func (t *unprovenTable) place(addr netip.AddrPort) (i uint32) {
	if t.n > 0 {
		for i = *t.bucket(addr); i != 0 && t.slots[i].addr != addr; {
			i = t.slots[i].chain
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
		t.free = t.slots[i].next
	} else {
		i = uint32(len(t.slots))
		t.slots = t.slots[:i+1]
	}
	t.n++
	head := t.bucket(addr)
	u = &t.slots[i]
	*u = unproven{addr: addr, created: now, chain: *head}
	*head = i
	t.enlist(i)
	return u, evicted
}

// forget removes the peer with this address, if it is there.
func (t *unprovenTable) forget(addr netip.AddrPort) {
	if u := t.find(addr); u != nil {
		t.remove(u)
	}
}

func (t *unprovenTable) remove(u *unproven) {
	i := t.place(u.addr)
	if i == 0 {
		panic("dnp: an unproven peer is not in its bucket")
	}
	t.delist(i)
	p := t.bucket(u.addr)
	for *p != i {
		p = &t.slots[*p].chain
	}
	*p = u.chain
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

// enlist puts a peer at the end of the ring of its step.
func (t *unprovenTable) enlist(i uint32) {
	u := &t.slots[i]
	head := &t.slots[u.step]
	u.prev, u.next = head.prev, uint32(u.step)
	t.slots[u.prev].next, head.prev = i, i
}

func (t *unprovenTable) delist(i uint32) {
	u := &t.slots[i]
	t.slots[u.prev].next, t.slots[u.next].prev = u.next, u.prev
}

// first returns the slot of the peer that has waited longest for a step, if one waits.
func (t *unprovenTable) first(step int) (i uint32, ok bool) {
	i = t.slots[step].next
	return i, i != uint32(step)
}

// oldest returns the peer whose last request is the oldest. There must be one.
func (t *unprovenTable) oldest() *unproven {
	var oldest *unproven
	for step := range t.steps {
		if i, ok := t.first(step); ok && (oldest == nil || t.slots[i].created < oldest.created) {
			oldest = &t.slots[i]
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
	for step, pause := range t.steps {
		if i, ok := t.first(step); ok {
			at = min(at, t.slots[i].created.add(pause))
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
	for step, pause := range t.steps {
		i, ok := t.first(step)
		if !ok || t.slots[i].created.add(pause) > now {
			continue
		}
		if u = &t.slots[i]; step == len(t.steps)-1 {
			return u, true
		}
		t.delist(i)
		u.step++
		t.enlist(i)
		return u, false
	}
	return nil, false
}

// verdictDrops is the counter for each refusal of the Gate.
var verdictDrops = [admit.NumVerdicts]DropReason{
	admit.LimitedOne: DropAddressRate, admit.LimitedNet: DropNetworkRate, admit.LimitedSite: DropNetworkRate,
	admit.LimitedAll: DropConnectRate, admit.Late: DropLate,
}

// judge asks the Gate and counts a refusal.
func (e *Endpoint) judge(from netip.AddrPort, kind admit.Kind, now instant) admit.Verdict {
	v := e.cfg.Gate.Judge(e.clock.time(now), from, kind)
	if v > admit.Stateless {
		e.drop(verdictDrops[v])
	}
	return v
}

// known reports whether an address needs no proof.
func (e *Endpoint) known(addr netip.AddrPort) bool { return e.cfg.Proven != nil && e.cfg.Proven(addr) }

// believe makes the connection of a peer whose request is proof enough.
func (e *Endpoint) believe(from netip.AddrPort, now instant, out Sender) {
	c := e.add(from, now)
	e.send(from, wire.ConnectionAck{}.Append(out.Datagram(4)), out)
	if e.cfg.Probe == ProbePing {
		c.send.probes = 1 // shows whether the peer understands probes
	}
	e.established(c, now)
}
