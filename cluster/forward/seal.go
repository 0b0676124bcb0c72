package forward

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"slices"
)

// nonceSize is that of GCM.
const nonceSize = 12

// nonce returns the nonce of a datagram: the low half of the sender's id, and the counter.
// The key belongs to the pair of processes, so the counter alone makes the nonce unique.
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

// open returns the sender of p and what was sealed. It decrypts in p. It drops a datagram
// that cannot be new before it deciphers anything.
func (r *Router) open(p []byte) (from *peer, kind Type, body []byte, drop DropReason) {
	h, drop := parseHeader(p)
	from = r.byID[h.sender]
	switch {
	case len(r.ring) == 0:
		drop = DropOff
	case drop != dropNone:
	case from == nil:
		drop = DropUnknownSender
	case !from.window.fresh(h.counter):
		drop = DropReplay
	default:
		if body, drop = r.decipher(from, h, p); drop == dropNone {
			from.window.accept(h.counter)
		}
	}
	return from, h.kind, body, drop
}

// decipher tries each key that has the name of the header. There is more than one only if
// two keys of the ring have the same name; then it copies p, because a failed attempt wipes
// it.
func (r *Router) decipher(from *peer, h header, p []byte) (body []byte, drop DropReason) {
	drop = DropUnknownKey
	seals := r.sealed(from)
	for i := range seals {
		if seals[i].name != h.key {
			continue
		}
		q := p
		if slices.ContainsFunc(seals[i+1:], func(s seal) bool { return s.name == h.key }) {
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

// A seal is the two ciphers of a peer and this process for one key.
type seal struct {
	name    uint16
	in, out cipher.AEAD
}

// sealed returns the ciphers of p, which it makes if there are none.
func (r *Router) sealed(p *peer) []seal {
	if len(p.seals) == 0 {
		for _, k := range r.ring {
			p.seals = append(p.seals, seal{k.name, k.pair(p.ID, r.cfg.ID), k.pair(r.cfg.ID, p.ID)})
		}
	}
	return p.seals
}

// KeysMax bounds the keys of a ring: twice those of a key file, while the file changes.
const KeysMax = 16

// Labels of what is derived from a key (RFC 5869, info). Another version of the datagram
// needs other labels.
const (
	labelName = "dnp-fwd 1 name"
	labelPair = "dnp-fwd 1 pair"
)

// ErrKeys says that a ring has too many keys or one that is too short.
var ErrKeys = errors.New("forward: want at most 16 keys of at least 16 bytes")

// A ringKey is a key of gossip. The router uses only keys that it derives from it.
type ringKey struct {
	secret []byte // of gossip
	name   uint16 // two keys may have the same name
}

func newRing(secrets [][]byte) (ring []ringKey, err error) {
	if len(secrets) > KeysMax {
		return nil, ErrKeys
	}
	for _, s := range secrets {
		if len(s) < 16 {
			return nil, ErrKeys
		}
		name := derive(s, labelName, 2)
		ring = append(ring, ringKey{slices.Clone(s), binary.LittleEndian.Uint16(name)})
	}
	return ring, nil
}

// pair returns the cipher for datagrams from one process to another. Each pair and
// direction has a key of its own, so that no other receiver can open a datagram, nor its
// sender, nor the next process of the same node.
func (k ringKey) pair(from, to uint64) cipher.AEAD {
	info := binary.LittleEndian.AppendUint64([]byte(labelPair), from)
	info = binary.LittleEndian.AppendUint64(info, to)
	return must(cipher.NewGCM(must(aes.NewCipher(derive(k.secret, string(info), 32)))))
}

func derive(secret []byte, info string, size int) []byte {
	return must(hkdf.Key(sha256.New, secret, nil, info, size))
}

// must returns v. HKDF refuses to derive too many bytes, and secrets that are too short in FIPS
// mode; AES refuses keys of other sizes, and GCM other ciphers.
func must[T any](v T, err error) T {
	if err != nil {
		panic("forward: a cipher for a checked key: " + err.Error())
	}
	return v
}

// windowSize is how far a datagram may be behind the newest of its sender, in
// datagrams of that sender for this receiver. It is a power of two.
const windowSize = 1024

// A window remembers which counters of a sender were accepted, as RFC 6479 does: it refuses
// counters far behind the highest, whether they came or not. The zero window has seen
// nothing; counters begin with 1.
type window struct {
	highest uint64
	seen    [windowSize / 64]uint64 // counter mod windowSize
}

// fresh reports whether a counter may be accepted.
func (w *window) fresh(counter uint64) bool {
	if counter > w.highest {
		return true
	}
	if counter == 0 || w.highest-counter >= windowSize {
		return false
	}
	word, bit := place(counter)
	return w.seen[word]&bit == 0
}

// accept notes a fresh counter. It is called only for datagrams that could be opened:
// otherwise a forged datagram could push the window ahead.
func (w *window) accept(counter uint64) {
	if counter > w.highest {
		w.slide(counter)
	}
	word, bit := place(counter)
	w.seen[word] |= bit
}

// slide makes counter the highest, and forgets the counters that fall out of the window.
func (w *window) slide(counter uint64) {
	if counter-w.highest >= windowSize {
		clear(w.seen[:])
	} else {
		for c := w.highest + 1; c != counter+1; c++ {
			word, bit := place(c)
			w.seen[word] &^= bit
		}
	}
	w.highest = counter
}

func place(counter uint64) (word int, bit uint64) {
	i := counter % windowSize
	return int(i / 64), 1 << (i % 64)
}
