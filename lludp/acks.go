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
