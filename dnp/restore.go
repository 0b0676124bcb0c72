package dnp

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// Restore makes the connection that a snapshot describes, with the peer at addr.
// resolve finds the Source with a SourceConfig.Ref; nil takes that link down. The
// peer is sent all values of its links anew, and what was in flight; EventConnected
// is not reported. The error is ErrSnapshot, ErrConnected or ErrConns.
func (e *Endpoint) Restore(now time.Time, addr netip.AddrPort, snapshot []byte, resolve func(ref uint64) *Source) (*Conn, error) {
	t := e.clock.advance(now)
	switch {
	case e.byAddr[addr] != nil:
		return nil, ErrConnected
	case e.count >= e.cfg.ConnsMax:
		return nil, ErrConns
	}
	if u := e.unproven.find(addr); u != nil {
		e.unproven.remove(u)
	}
	c := e.add(addr, t)
	if e.cfg.Logged {
		c.log = &logState{}
	}
	r := snapshotReader{b: snapshot, c: c}
	r.all(resolve, t)
	if r.bad || len(r.b) > 0 {
		c.drop()
		return nil, ErrSnapshot
	}
	if c.log != nil {
		c.log.sent, c.log.sentAsked = c.send.next, c.send.next
	}
	c.startScrub(t)
	c.wake()
	c.settle(t)
	return c, nil
}

// drop undoes a connection that was never announced.
func (c *Conn) drop() {
	c.detachAll()
	c.e.remove(c)
}

// A snapshotReader reads the fields of a snapshot into c. The first failure sticks
// and turns all that follows into zeros.
type snapshotReader struct {
	b   []byte
	bad bool
	c   *Conn
}

func (r *snapshotReader) fail() {
	r.bad, r.b = true, nil
}

func (r *snapshotReader) uint(limit uint64) uint64 {
	v, n := binary.Uvarint(r.b)
	if n <= 0 || v > limit {
		r.fail()
		return 0
	}
	r.b = r.b[n:]
	return v
}

// count reads a number of things that take at least a byte each.
func (r *snapshotReader) count() int { return int(r.uint(uint64(len(r.b)))) }

func (r *snapshotReader) id() wire.LinkID { return wire.LinkID(r.uint(0xFFFF)) }

func (r *snapshotReader) bool() bool { return r.uint(1) == 1 }

// bytes returns a copy.
func (r *snapshotReader) bytes() []byte {
	n := r.count()
	if n > len(r.b) {
		r.fail()
		return nil
	}
	p := bytes.Clone(r.b[:n])
	r.b = r.b[n:]
	return p
}

func (r *snapshotReader) all(resolve func(uint64) *Source, now instant) {
	c := r.c
	if r.uint(0xFF) != snapshotVersion || r.uint(0xFF) != uint64(c.e.cfg.Profile) {
		r.fail()
	}
	c.client, c.speaksLong, c.talked, c.recycled = r.bool(), r.bool(), r.bool(), r.bool()
	r.recv(now)
	r.links(resolve, now)
	r.send(now)
}

const uintMax = 1<<63 - 1

func (r *snapshotReader) recv(now instant) {
	w, l := &r.c.recv, &r.c.long
	w.next, w.hole = r.uint(uintMax), now
	for range r.count() {
		e := early{n: r.uint(uintMax), cmd: wire.Command(r.uint(0xFF)), buf: r.bytes(), store: stored}
		_, reason := checkReliable(e.cmd, e.buf)
		if !isReliable(e.cmd) || reason != dropNothing || e.n < w.next || e.n == w.next && r.c.log == nil || e.n >= w.next+recvAhead || w.holds(e.n) {
			r.fail()
			return
		}
		w.early = append(w.early, e)
	}
	l.open, l.buf = r.bool(), r.bytes()
	l.linkOpen = r.bool()
	l.link = wire.LinkStateLong{Link: r.id(), Flags: wire.LinkStateFlags(r.uint(0xFF)), Message: r.bytes(), Values: r.bytes()}
}

func (r *snapshotReader) links(resolve func(uint64) *Source, now instant) {
	c := r.c
	c.hello = helloIDs{first: r.id(), n: uint8(r.uint(helloMax))}
	c.index = make([]uint16, r.uint(uint64(c.ordinals())))
	for range r.count() {
		r.link(resolve, now)
		if r.bad {
			return
		}
	}
	r.ladder(&c.ups, now)
	r.ladder(&c.downs, now)
	for range r.count() {
		id, index, open, value := r.id(), int(r.uint(0xFFFF)), r.bool(), r.bytes()
		c.Hold(id, index, value)
		if !open {
			c.Release(id, index)
		}
	}
}

func (r *snapshotReader) link(resolve func(uint64) *Source, now instant) {
	c := r.c
	l := link{id: r.id(), phase: LinkPhase(r.uint(uint64(LinkUp))), flags: linkFlags(r.uint(uint64(linkReadOnly | linkByPeer | linkProven))), source: noSource}
	var s *Source
	if r.bool() {
		s = resolve(r.uint(1<<64 - 1))
	}
	_, twice := c.slotOf(l.id)
	ordinal, ours := c.ordinal(l.id)
	if r.bad || twice || l.phase == 0 || !l.has(linkByPeer) && (!ours || ordinal >= len(c.index)) {
		r.fail()
		return
	}
	if s == nil || s.removed {
		if l.phase != LinkQueued {
			c.downs.start(climber{link: l.id, start: now})
		}
		return
	}
	if _, linked := c.find(s); linked || l.has(linkByPeer) && l.phase != LinkUp {
		r.fail()
		return
	}
	slot := c.newSlot()
	if l.has(linkByPeer) {
		if c.peer == nil {
			c.peer = make(map[wire.LinkID]peerLink)
		}
		l.sent = s.settled()
		c.peer[l.id] = peerLink{slot: uint16(slot), base: l.sent}
	} else {
		c.index[ordinal] = uint16(slot + 1)
		c.links.ours++
	}
	c.attach(slot, l, s)
	if l.weSend() {
		c.mark(slot)
	}
}

func (r *snapshotReader) ladder(l *ladder, now instant) {
	for range r.count() {
		l.start(climber{link: r.id(), start: now})
	}
}

func (r *snapshotReader) send(now instant) {
	c, w := r.c, &r.c.send
	w.next = r.uint(uintMax)
	for range r.count() {
		o := outgoing{
			kind: outgoingKind(r.uint(uint64(outFrozen))), flags: wire.PartFlags(r.uint(0xFF)),
			acked: r.bool(), takeDown: r.bool(), sends: uint16(r.uint(0xFFFF)), link: r.id(), data: r.bytes(),
			first: now, last: now - instant(c.e.cfg.ReliableResend), // due at once
		}
		if o.sends == 0 && c.log == nil { // only a logged connection numbers before it sends
			r.fail()
			return
		}
		slot, ok := c.slotOf(o.link)
		switch {
		case o.kind != outLinkState || o.acked:
		case ok && !c.links.l[slot].has(linkByPeer):
			o.slot, o.data = uint16(slot), nil
		default:
			o.kind, o.takeDown = outFrozen, true
		}
		w.flight = append(w.flight, o)
	}
	for range r.count() {
		m := r.message()
		w.queue = append(w.queue, m)
		w.bytes += len(m.data)
	}
	w.partAt = int(r.uint(1 << 31))
	w.part = r.message()
	for range r.count() {
		if slot, ok := c.slotOf(r.id()); ok && c.links.l[slot].phase == LinkQueued {
			w.offers = append(w.offers, uint16(slot))
		}
	}
	if uint64(len(w.flight)) > w.next || len(w.flight) > sendWindowMax || w.partAt > 0 && w.partAt >= len(w.part.data) {
		r.fail()
		return
	}
	r.resume(now)
}

// resume waits anew for the answers to offers that were acknowledged.
func (r *snapshotReader) resume(now instant) {
	c := r.c
	unacked := func(slot int) bool {
		for i := range c.send.flight {
			if o := &c.send.flight[i]; o.kind == outLinkState && !o.acked && int(o.slot) == slot {
				return true
			}
		}
		return false
	}
	for slot := range c.links.l {
		if l := &c.links.l[slot]; l.phase == LinkOffered && !l.has(linkByPeer) && !unacked(slot) {
			c.presumed = append(c.presumed, presumption{uint16(slot), l.id, now.add(presumeAfter)})
		}
	}
	c.shift(now)
}

func (r *snapshotReader) message() message {
	return message{data: r.bytes(), token: r.uint(1<<64 - 1), takeDown: r.bool(), link: r.id()}
}
