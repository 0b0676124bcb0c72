package forward

import (
	"encoding/binary"
	"net/netip"
)

// A Sender takes datagrams. udp.Writer is one.
type Sender interface {
	Datagram(size int) []byte         // empty buffer with capacity >= size, valid until Send
	Send(to netip.AddrPort, b []byte) // b was built in that buffer; it may be transmitted later in a batch
}

// nonceSize is that of GCM.
const nonceSize = 12

// nonce returns the nonce of a datagram: the low half of the sender's id and the
// counter. The key belongs to the pair of processes, so the counter alone makes it
// unique.
func (r *Router) nonce(h header) []byte {
	binary.LittleEndian.PutUint32(r.nonceBytes[:], uint32(h.sender))
	binary.LittleEndian.PutUint64(r.nonceBytes[4:], h.counter)
	return r.nonceBytes[:]
}

// seal sends m to p as kind; m is nil for a heartbeat.
func (r *Router) seal(p *peer, kind Type, m *message, out Sender) {
	s := r.sealed(p)[0]
	p.counter++
	r.counterMax = max(r.counterMax, p.counter)
	size := headerSize + tagSize
	if m != nil {
		size += bodyMax + len(m.data)
	}
	h := header{kind: kind, key: s.name, sender: r.cfg.ID, counter: p.counter}
	b := h.append(out.Datagram(size))
	if m != nil {
		b = m.append(b)
	}
	out.Send(p.Addr, s.out.Seal(b[:headerSize], r.nonce(h), b[headerSize:], b[:headerSize]))
}

// open returns who sent p and what was sealed. It decrypts in p. A datagram that
// cannot be new is dropped before anything is deciphered.
func (r *Router) open(p []byte) (from *peer, kind Type, body []byte, drop DropReason) {
	if len(r.ring) == 0 {
		return nil, 0, nil, DropOff
	}
	h, drop := parseHeader(p)
	if drop != dropNone {
		return nil, 0, nil, drop
	}
	from = r.byID[h.sender]
	if from == nil {
		return nil, 0, nil, DropUnknownSender
	}
	if !from.window.fresh(h.counter) {
		return nil, 0, nil, DropReplay
	}
	if body, drop = r.decipher(from, h, p); drop != dropNone {
		return nil, 0, nil, drop
	}
	from.window.accept(h.counter)
	return from, h.kind, body, dropNone
}

// decipher tries each key that has the name. There is more than one only if two keys
// of the ring have the same name; then p is copied, because a failed attempt wipes it.
func (r *Router) decipher(from *peer, h header, p []byte) (body []byte, drop DropReason) {
	drop = DropUnknownKey
	seals := r.sealed(from)
	for i := range seals {
		if seals[i].name != h.key {
			continue
		}
		q := p
		if nameRepeats(seals[i+1:], h.key) {
			q = append(r.scratch[:0], p...)
			r.scratch = q
		}
		body, err := seals[i].in.Open(q[headerSize:headerSize], r.nonce(h), q[headerSize:], q[:headerSize])
		if err == nil {
			return body, dropNone
		}
		drop = DropBadSeal
	}
	return nil, drop
}

func nameRepeats(seals []seal, name uint16) bool {
	for i := range seals {
		if seals[i].name == name {
			return true
		}
	}
	return false
}
