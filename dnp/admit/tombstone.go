package admit

import (
	"encoding/binary"
	"hash/maphash"
	"net/netip"
	"time"
)

// lateFor is how long datagrams of a session that ended may still arrive, repeats
// included: libraries give a reliable command up after 3 s.
const lateFor = 5 * time.Second

// A tomb marks an address and port. It takes 16 bytes.
type tomb struct {
	tag   uint32 // 0 is unused
	until int64
}

// A graveyard holds the addresses whose sessions ended less than lateFor ago. A new mark in a
// full set replaces the one that would end first.
type graveyard struct {
	slots []tomb
	seed  maphash.Seed
}

const tombWays = 4

func (y *graveyard) set(addr netip.AddrPort) (set []tomb, tag uint32) {
	var key [19]byte
	ip := addr.Addr().As16()
	copy(key[1:], ip[:])
	binary.LittleEndian.PutUint16(key[17:], addr.Port())
	h := maphash.Bytes(y.seed, key[:])
	return y.slots[h%uint64(len(y.slots)/tombWays)*tombWays:][:tombWays], uint32(h>>32) | 1
}

func (y *graveyard) find(now int64, addr netip.AddrPort) *tomb {
	set, tag := y.set(addr)
	for i := range set {
		if set[i].tag == tag && set[i].until > now {
			return &set[i]
		}
	}
	return nil
}

// bury marks an address.
func (y *graveyard) bury(now int64, addr netip.AddrPort) {
	until := now + int64(lateFor)
	if t := y.find(now, addr); t != nil {
		t.until = until
		return
	}
	set, tag := y.set(addr)
	oldest := &set[0]
	for i := range set {
		if set[i].until < oldest.until {
			oldest = &set[i]
		}
	}
	*oldest = tomb{tag: tag, until: until}
}

// judge judges a datagram. A request removes the mark of an ended session, because the
// peer asks for a new one.
func (y *graveyard) judge(now int64, addr netip.AddrPort, request bool) Verdict {
	t := y.find(now, addr)
	switch {
	case t == nil:
		return Pass
	case !request:
		return Late
	}
	*t = tomb{}
	return Pass
}
