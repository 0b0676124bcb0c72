package lludp

import (
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/lludp/wire"
)

// An ackList holds the acknowledgements that wait for a packet to carry them.
type ackList struct {
	l   []wire.Seq // at most wire.AppendedMax
	due time.Time  // when they are sent alone
}

// add queues the acknowledgement of s.
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

// appendAcks adds the acknowledgements that fit to a packet.
func (c *Circuit) appendAcks(b []byte) []byte {
	b, n := wire.AppendAcks(b, c.acks.l, c.cfg.DatagramMax)
	c.acks.took(n)
	return b
}

// flushAcks sends all waiting acknowledgements in PacketAck messages.
func (c *Circuit) flushAcks(out Sender) {
	for len(c.acks.l) > 0 {
		n := min(len(c.acks.l), (c.cfg.DatagramMax-wire.HeaderSize-4-1)/4)
		c.transmit(wire.PacketAck, wire.AppendAckList(c.body[:0], c.acks.l[:n]), out)
		c.acks.took(n)
	}
}

// receiveAckList reads a PacketAck.
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

// A recent remembers the last sequence numbers received. The numbers have 32 bits and may wrap
// anywhere, and a forged one may be anywhere, so it is a set of numbers and not a window.
type recent struct {
	seqs  []wire.Seq // a ring
	next  []uint16   // 1 + the index of the previous number with the same head; 0 = none
	heads []uint16   // 1 + the index of the newest, by the low bits of the number
	at    int        // index of the next number
	full  bool
}

// add remembers s and reports whether it was unknown. size, a power of 2, is the number of
// sequence numbers to remember.
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

// forget removes the oldest number, which is the last of its chain.
func (r *recent) forget() {
	oldest := uint16(r.at + 1)
	link := &r.heads[int(r.seqs[r.at])&(len(r.seqs)-1)]
	for *link != oldest {
		link = &r.next[*link-1]
	}
	*link = 0
}
