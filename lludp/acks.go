package lludp

import (
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/lludp/wire"
)

// An ackList is the acknowledgements that wait for a packet to travel with.
type ackList struct {
	l   []wire.Seq // at most wire.AppendedMax
	due time.Time  // when they must travel alone
}

// add notes that s is to be acknowledged.
func (a *ackList) add(s wire.Seq, due time.Time) {
	if slices.Contains(a.l, s) {
		return
	}
	if len(a.l) == 0 {
		a.due = due
	}
	a.l = append(a.l, s)
}

func (a *ackList) full() bool { return len(a.l) >= wire.AppendedMax }

// took removes the first n.
func (a *ackList) took(n int) { a.l = a.l[:copy(a.l, a.l[n:])] }

// appendAcks adds what fits to a packet that is about to leave.
func (c *Circuit) appendAcks(b []byte) []byte {
	b, n := wire.AppendAcks(b, c.acks.l, c.cfg.DatagramMax)
	c.acks.took(n)
	c.stats.AcksAppended += uint64(n)
	return b
}

// flushAcks sends all that wait in messages of their own, which carry no others.
func (c *Circuit) flushAcks(out Sender) {
	for len(c.acks.l) > 0 {
		n := min(len(c.acks.l), (c.cfg.DatagramMax-wire.HeaderSize-4-1)/4)
		c.transmit(wire.PacketAck, wire.AppendAckList(c.body[:0], c.acks.l[:n]), out)
		c.acks.took(n)
		c.stats.AcksAlone += uint64(n)
	}
}

// receiveAckList takes a PacketAck.
func (c *Circuit) receiveAckList(body []byte) {
	list, err := wire.ParseAckList(body)
	if err != nil {
		c.drop(DropTruncated)
		return
	}
	for i := range list.Len() {
		c.acknowledged(list.At(i))
	}
}

// A recent remembers the last sequence numbers that came. They are of 32 bits, may
// wrap anywhere, and a forged one may lie anywhere, so it is a set of numbers and
// not a window of them.
type recent struct {
	seqs  []wire.Seq // a ring
	next  []uint16   // 1 + the place in the ring of the one before with the same head; 0 = none
	heads []uint16   // 1 + the place of the newest, by the low bits of the number
	at    int        // where the next one goes
	full  bool
}

// add notes s and reports whether it was not remembered. size, a power of 2, is
// how many are.
func (r *recent) add(s wire.Seq, size int) bool {
	if r.seqs == nil {
		r.seqs, r.next, r.heads = make([]wire.Seq, size), make([]uint16, size), make([]uint16, size)
	}
	head := &r.heads[int(s)&(size-1)]
	for i := *head; i != 0; i = r.next[i-1] {
		if r.seqs[i-1] == s {
			return false
		}
	}
	if r.full {
		r.forget()
	}
	r.seqs[r.at], r.next[r.at] = s, *head
	*head = uint16(r.at + 1)
	if r.at++; r.at == size {
		r.at, r.full = 0, true
	}
	return true
}

// forget removes the oldest, which is the last of its chain.
func (r *recent) forget() {
	oldest := uint16(r.at + 1)
	link := &r.heads[int(r.seqs[r.at])&(len(r.seqs)-1)]
	for *link != oldest {
		link = &r.next[*link-1]
	}
	*link = 0
}
