package dnp

import (
	"encoding/binary"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// snapshotVersion is the first byte of a snapshot. Another version is refused.
const snapshotVersion = 1

// AppendSnapshot appends all that Restore needs to go on with this connection
// elsewhere: both windows with what they hold, the link table, and what is being
// repeated. Left out are unreliable messages, values (Restore sends all of them
// again), and offers of the peer that were not answered (Restore takes them down).
// A snapshot does not survive a change of this package's version byte.
func (c *Conn) AppendSnapshot(b []byte) []byte {
	return c.appendSnapshot(b, true)
}

// AppendCheckpoint appends a snapshot without the messages that have no number yet:
// in a log those are not promised to anybody.
func (c *Conn) AppendCheckpoint(b []byte) []byte {
	return c.appendSnapshot(b, false)
}

func (c *Conn) appendSnapshot(b []byte, queue bool) []byte {
	w := snapshotWriter{b: append(b, snapshotVersion, byte(c.e.cfg.Profile))}
	w.bool(c.client)
	w.bool(c.speaksLong)
	w.bool(c.talked)
	w.bool(c.recycled)
	w.recv(&c.recv, &c.long)
	w.links(c)
	w.send(c, queue)
	return w.b
}

// A snapshotWriter appends the fields of a snapshot: integers as varints, byte
// strings behind their length.
type snapshotWriter struct{ b []byte }

func (w *snapshotWriter) uint(v uint64) { w.b = binary.AppendUvarint(w.b, v) }

func (w *snapshotWriter) int(v int) { w.uint(uint64(v)) }

func (w *snapshotWriter) bytes(p []byte) {
	w.int(len(p))
	w.b = append(w.b, p...)
}

func (w *snapshotWriter) bool(v bool) {
	if v {
		w.b = append(w.b, 1)
		return
	}
	w.b = append(w.b, 0)
}

func (w *snapshotWriter) recv(r *recvWindow, l *longReceive) {
	w.uint(r.next)
	w.int(len(r.early))
	for _, e := range r.early {
		w.uint(e.n)
		w.uint(uint64(e.cmd))
		w.bytes(e.buf)
	}
	w.bool(l.open)
	w.bytes(l.buf)
	w.bool(l.linkOpen)
	w.uint(uint64(l.link.Link))
	w.uint(uint64(l.link.Flags))
	w.bytes(l.link.Message)
	w.bytes(l.link.Values)
}

func (w *snapshotWriter) links(c *Conn) {
	w.uint(uint64(c.hello.first))
	w.int(int(c.hello.n))
	w.int(len(c.index))
	w.int(len(c.links.l) - len(c.free))
	for slot := range c.links.l {
		l := &c.links.l[slot]
		if l.phase == 0 {
			continue
		}
		w.uint(uint64(l.id))
		w.uint(uint64(l.phase))
		w.uint(uint64(l.flags & (linkReadOnly | linkByPeer | linkProven)))
		w.bool(l.source != noSource)
		if l.source != noSource {
			w.uint(c.e.sources[l.source].cfg.Ref)
		}
	}
	w.ladder(&c.ups)
	w.ladder(&c.downs)
	w.int(len(c.holds))
	for key, h := range c.holds {
		w.uint(uint64(c.links.l[key>>16].id))
		w.uint(uint64(key & 0xFFFF))
		w.bool(h.open)
		w.bytes(h.value)
	}
}

func (w *snapshotWriter) ladder(l *ladder) {
	w.int(l.n)
	l.each(func(id wire.LinkID) { w.uint(uint64(id)) })
}

func (w *snapshotWriter) send(c *Conn, queue bool) {
	s := &c.send
	w.uint(s.next)
	w.int(len(s.flight))
	for i := range s.flight {
		o := &s.flight[i]
		w.uint(uint64(o.kind))
		w.uint(uint64(o.flags))
		w.bool(o.acked)
		w.bool(o.takeDown)
		w.uint(uint64(o.sends))
		w.uint(uint64(o.link))
		data := o.data
		if o.kind == outLinkState && !o.acked { // for a Restore that does not find the Source
			data = c.appendOffer(nil, 0, int(o.slot))[3:]
		}
		w.bytes(data)
	}
	if !queue {
		w.int(0)
		w.int(0)
		w.message(&message{})
	} else {
		w.int(len(s.queue))
		for i := range s.queue {
			w.message(&s.queue[i])
		}
		w.int(s.partAt)
		w.message(&s.part)
	}
	w.int(len(s.offers))
	for _, slot := range s.offers {
		w.uint(uint64(c.links.l[slot].id))
	}
}

func (w *snapshotWriter) message(m *message) {
	w.bytes(m.data)
	w.uint(m.token)
	w.bool(m.takeDown)
	w.uint(uint64(m.link))
}
