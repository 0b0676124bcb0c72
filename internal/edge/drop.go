package edge

import (
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/replication"
)

// dropsMax bounds the states of a session that its client took back and whose end
// the holder has not acknowledged. When there are more, the oldest is forgotten,
// and counted; the holder ends it when the session leaves.
const dropsMax = 256

// A drop tells the holder that a client took a state of its own back.
type drop struct {
	link   wire.LinkID
	repeat repeater
}

// drop ends a state that the client took back, here and at the holder.
func (s *session) drop(now time.Time, own *ownState) {
	own.forget()
	if len(s.drops) >= dropsMax {
		s.drops = slices.Delete(s.drops, 0, 1)
		s.space.w.counts.DropsForgotten++
	}
	d := &drop{link: own.link}
	d.repeat.want(now)
	s.drops = append(s.drops, d)
}

// forgetDrop stops telling that a state is gone, because the client offers another
// one under its LinkId, which takes its place.
func (s *session) forgetDrop(link wire.LinkID) {
	s.drops = slices.DeleteFunc(s.drops, func(d *drop) bool { return d.link == link })
}

func (d *drop) send(now time.Time, s *session) {
	d.repeat.sent(now)
	w := replication.Write{Kind: replication.WriteDrop, Number: s.nextWrite(), Link: uint16(d.link)}
	s.request(&w, func(_ time.Time, r replication.WriteResult, err error) {
		if !tryAgain(r, err) {
			s.drops = slices.DeleteFunc(s.drops, func(x *drop) bool { return x == d })
		}
	})
}
