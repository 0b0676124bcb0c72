package systest

import (
	"time"

	"github.com/dnprelay/dnprelay/internal/edge"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// A keepFrom brings messages to the game, as natsfrom does.
type keepFrom struct {
	e     *keepEdge
	start int
}

func (f keepFrom) Begin(_, client, _ string, delivered func(uint64)) edge.Feed {
	return &keepFeed{f: f, client: client, delivered: delivered}
}

type keepFeed struct {
	f         keepFrom
	client    string
	delivered func(uint64)
	waiting   []sessionlog.Message
	ended     bool
}

func (d *keepFeed) Deliver(m sessionlog.Message) {
	d.waiting = append(d.waiting, m)
	if len(d.waiting) == 1 {
		d.publish()
	}
}

func (d *keepFeed) End() { d.ended, d.waiting = true, nil }

// publish publishes the first message that waits, again if that is lost.
func (d *keepFeed) publish() {
	e, w := d.f.e, d.f.e.w
	if d.ended || len(d.waiting) == 0 || !e.alive || e.start != d.f.start {
		return
	}
	if e.paused {
		e.stopped.feeds = append(e.stopped.feeds, d)
		return
	}
	m := d.waiting[0]
	if w.net.Rand().IntN(20) == 0 && !w.healed || w.unheard == e {
		w.net.Schedule(100*time.Millisecond, d.publish)
		return
	}
	w.net.Schedule(time.Millisecond, func() {
		w.consume(e, d.client, m)
		w.net.Schedule(time.Millisecond, func() {
			if len(d.waiting) == 0 || d.waiting[0].Number != m.Number {
				return
			}
			d.waiting = d.waiting[1:]
			d.delivered(m.Number)
			d.publish()
		})
	})
}
