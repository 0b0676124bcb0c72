package relay

import (
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/view"
	"github.com/dnprelay/dnprelay/subject"
)

// The store carries in a batch what package telemetry makes.
var _ [view.TraceSize]byte = [telemetry.BlockSize]byte{}

// Signals are what a relay reports to telemetry besides its counters; all may be nil.
type signals struct {
	tracer       *telemetry.Tracer
	subjects     subject.Names
	publishDelay *telemetry.Histogram
	publish      string // template of the subject of publishes
	live         string // and of batches
}

func newSignals(t *telemetry.Telemetry, subjects subject.Names) signals {
	return signals{
		tracer: t.Tracer(), subjects: subjects,
		publishDelay: t.Histogram("dnp.relay.publish.delay",
			"From taking a publish to its batch leaving, once per batch, of the first publish in it."),
		publish: subjects.Publish("{space}", ""),
		live:    subjects.Live("{space}"),
	}
}

// received begins the span of a publish that is sampled; otherwise it returns nil.
func (s *signals) received(m bus.Msg) *telemetry.Span {
	return s.tracer.Receive("publish", m.Header, telemetry.Message{Subject: m.Subject, Template: s.publish, Size: len(m.Data)})
}

// A pending follows the publishes that a store was given until their batch has left.
type pending struct {
	since time.Time       // when the first publish among them was taken; zero if there is none
	span  *telemetry.Span // of the batch, nil if none of them is sampled
}

// applied notes that a publish was given to the store of a space. apply is its span, or nil.
func (p *pending) applied(now time.Time, s *signals, store *replication.Store, space string, apply *telemetry.Span) {
	if !store.Pending() {
		return
	}
	if p.since.IsZero() {
		p.since = now
	}
	switch {
	case apply == nil:
	case p.span != nil:
		p.span.Join(apply)
	default:
		p.span = apply.Send("batch", telemetry.Message{Subject: s.subjects.Live(space), Template: s.live})
		store.Trace(p.span.Block())
	}
}

// left notes that the store has emitted, in so many batches and bytes.
func (p *pending) left(s *signals, store *replication.Store, batches, bytes int) {
	if p.since.IsZero() || store.Pending() {
		return
	}
	if s.publishDelay != nil {
		s.publishDelay.Record(time.Since(p.since), p.span)
	}
	if p.span != nil {
		p.span.Set("dnp.batches", batches)
		p.span.Set("messaging.message.body.size", bytes)
		p.span.End()
	}
	*p = pending{}
}
