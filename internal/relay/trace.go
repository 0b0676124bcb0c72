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

// signals are what a relay tells telemetry besides its counters; all may be nil.
type signals struct {
	tracer       *telemetry.Tracer
	subjects     subject.Names
	publishDelay *telemetry.Histogram
	publish      string // template of the subject of publishes
	live         string // and of batches
}

func newSignals(cfg *Config) signals {
	return signals{
		tracer: cfg.Telemetry.Tracer(), subjects: cfg.Subjects,
		publishDelay: cfg.Telemetry.Histogram("dnp.relay.publish.delay",
			"From taking a publish to its batch leaving, once per batch, of the first publish in it."),
		publish: cfg.Subjects.Publish("{space}", ""),
		live:    cfg.Subjects.Live("{space}"),
	}
}

// received begins the span of a publish that is sampled; otherwise it returns nil.
func (s *signals) received(m bus.Msg) *telemetry.Span {
	if s.tracer == nil {
		return nil
	}
	return s.tracer.Receive("publish", m.Header, telemetry.Message{Subject: m.Subject, Template: s.publish, Size: len(m.Data)})
}

// tellRefused says in the trace of a sampled publish, and in a log line, that no store accepted
// it. Other refused publishes are not logged, because a publisher could cause many lines.
func (w *Worker) tellRefused(span *telemetry.Span, subject string, err *replication.Error) {
	if span == nil {
		return
	}
	span.Fail(string(err.Code), err.Message)
	w.relay.cfg.Log.InfoContext(span.Context(), "refused a sampled publish", "subject", subject, "code", err.Code, "error", err.Message)
}

// A pending is what telemetry needs to know of the changes of a space that have not left.
type pending struct {
	since time.Time       // when the first publish among them was taken; zero if there is none
	span  *telemetry.Span // of the batch, nil if none of them is sampled
}

// applied notes that a publish was given to the store. apply is its span, or nil.
func (sp *space) applied(now time.Time, s *signals, apply *telemetry.Span) {
	if !sp.store.Pending() {
		return
	}
	if sp.pending.since.IsZero() {
		sp.pending.since = now
	}
	switch {
	case apply == nil:
	case sp.pending.span != nil:
		sp.pending.span.Join(apply)
	default:
		sp.pending.span = apply.Send("batch", telemetry.Message{Subject: s.subjects.Live(sp.name), Template: s.live})
		sp.store.Trace(sp.pending.span.Block())
	}
}

// left notes that all changes left, in so many batches and bytes.
func (sp *space) left(s *signals, batches, bytes int) {
	p := sp.pending
	if p.since.IsZero() || sp.store.Pending() {
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
	sp.pending = pending{}
}
