package lludp

import (
	"sort"
	"time"

	"github.com/dnprelay/dnprelay/lludp/wire"
)

// An outgoing is a reliable packet under way.
type outgoing struct {
	seq     wire.Seq
	packet  []byte // without appended acknowledgements; nil once acknowledged or given up
	token   uint64
	due     time.Time // when it is repeated or given up
	resends int
}

// A flight is the reliable packets under way, in the order of sending. The first
// is one that still waits.
type flight struct {
	l     []outgoing
	first int
	bytes int
	due   time.Time // not later than the earliest in l; zero if l is empty
}

func (f *flight) list() []outgoing { return f.l[f.first:] }

// oldest returns the number of the oldest packet that waits.
func (f *flight) oldest() (wire.Seq, bool) {
	if len(f.list()) == 0 {
		return 0, false
	}
	return f.l[f.first].seq, true
}

func (f *flight) add(o outgoing) {
	if f.due.IsZero() || o.due.Before(f.due) {
		f.due = o.due
	}
	f.l = append(f.l, o)
	f.bytes += len(o.packet)
}

// find returns the packet with this number, if it is under way.
func (f *flight) find(s wire.Seq) *outgoing {
	l := f.list()
	if len(l) == 0 {
		return nil
	}
	base := l[0].seq
	i := sort.Search(len(l), func(i int) bool { return l[i].seq.Since(base) >= s.Since(base) })
	if i == len(l) || l[i].seq != s || l[i].packet == nil {
		return nil
	}
	return &l[i]
}

// end says that a packet waits no more. trim takes it out.
func (f *flight) end(o *outgoing) {
	f.bytes -= len(o.packet)
	o.packet = nil
}

// trim takes those out that ended before all others.
func (f *flight) trim() {
	for f.first < len(f.l) && f.l[f.first].packet == nil {
		f.first++
	}
	if f.first == len(f.l) {
		f.l, f.first, f.due = f.l[:0], 0, time.Time{}
	} else if f.first >= 64 && f.first*2 >= len(f.l) {
		n := copy(f.l, f.l[f.first:])
		clear(f.l[n:])
		f.l, f.first = f.l[:n], 0
	}
}

// acknowledged takes the peer's word that a packet came.
func (c *Circuit) acknowledged(s wire.Seq) {
	o := c.flight.find(s)
	if o == nil {
		c.drop(DropUnknownAck)
		return
	}
	token := o.token
	c.flight.end(o)
	c.flight.trim()
	c.stats.Delivered++
	if token != 0 {
		c.events = append(c.events, Event{Kind: EventDelivered, Token: token})
	}
}

// resend repeats what is due, and gives up what was repeated often enough.
func (c *Circuit) resend(now time.Time, out Sender) {
	if c.flight.due.IsZero() || now.Before(c.flight.due) {
		return
	}
	wait := resendAfter(c.cfg.ResendAfter, c.pings.average)
	c.flight.due = time.Time{}
	for i := c.flight.first; i < len(c.flight.l); i++ {
		o := &c.flight.l[i]
		if o.packet == nil {
			continue
		}
		if !now.Before(o.due) && c.cfg.Retries >= 0 && o.resends >= c.cfg.Retries {
			c.lost(o)
			continue
		}
		if !now.Before(o.due) {
			o.resends++
			o.due = now.Add(wait)
			c.repeat(o, out)
		}
		if c.flight.due.IsZero() || o.due.Before(c.flight.due) {
			c.flight.due = o.due
		}
	}
	c.flight.trim()
}

// lost gives a packet up.
func (c *Circuit) lost(o *outgoing) {
	c.flight.end(o)
	c.stats.Lost++
	if o.token != 0 {
		c.events = append(c.events, Event{Kind: EventLost, Token: o.token})
	}
}

// repeat sends a packet again: same number, same bytes, and nothing appended,
// because the references keep what they repeat in that form.
func (c *Circuit) repeat(o *outgoing, out Sender) {
	b := append(out.Datagram(len(o.packet)), o.packet...)
	wire.SetFlags(b, wire.Flags(b[0])|wire.FlagResent)
	c.stats.Resends++
	c.emit(b, out)
}
