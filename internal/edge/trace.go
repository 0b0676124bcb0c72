package edge

import (
	"time"

	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/replication/view"
	"github.com/dnprelay/dnprelay/subject"
)

// signals are what an edge tells telemetry besides its counters; all may be nil.
type signals struct {
	tracer     *telemetry.Tracer
	flushDelay *telemetry.Histogram
	subjects   subject.Names
	live       string // template of the subject of batches
}

func newSignals(cfg *Config) signals {
	return signals{
		tracer: cfg.Telemetry.Tracer(),
		flushDelay: cfg.Telemetry.Histogram("dnp.edge.flush.delay",
			"From taking a batch to its datagrams being handed to the system, once per flush, of the first batch in it."),
		subjects: cfg.Subjects,
		live:     cfg.Subjects.Live("{space}"),
	}
}

// replicate begins the span of a batch that is sampled, or else returns nil.
func (s *signals) replicate(space string, batch []byte) *telemetry.Span {
	if s.tracer == nil {
		return nil
	}
	block := view.Trace(batch)
	if block == nil {
		return nil
	}
	return s.tracer.Resume("replicate", block, telemetry.Message{Subject: s.subjects.Live(space), Template: s.live, Size: len(batch)})
}

// A pending is what telemetry has to know of the batches that a worker applied and has
// not flushed.
type pending struct {
	since time.Time       // when the first of them was taken; zero if there is none
	first *telemetry.Span // of the sampled ones, nil if there is none
	more  []*telemetry.Span
}

// pendingMax bounds the sampled batches that a flush knows of; others are not in its
// span. The number is that of the links of a span.
const pendingMax = 16

// applied notes a batch. span is nil unless the batch is sampled.
func (p *pending) applied(now time.Time, span *telemetry.Span) {
	if p.since.IsZero() {
		p.since = now
	}
	switch {
	case span == nil:
	case p.first == nil:
		p.first = span
	case len(p.more) < pendingMax:
		p.more = append(p.more, span)
	}
}

// flushing begins the span of a flush that carries all of these batches, nil if none is
// sampled.
func (p *pending) flushing() *telemetry.Span {
	span := p.first.Child("flush")
	for _, s := range p.more {
		span.Join(s)
	}
	return span
}

// forget begins anew.
func (p *pending) forget() {
	if p.since.IsZero() {
		return
	}
	clear(p.more)
	*p = pending{more: p.more[:0]}
}

// A flushed is a flush whose datagrams are not with the system yet.
type flushed struct {
	since time.Time // of pending
	span  *telemetry.Span

	datagrams, updates, deferred uint64 // what the endpoint had counted before
}

// beginFlush notes that a flush begins. A second one in the same turn counts with it.
func (w *Worker) beginFlush() {
	if w.flushed.since.IsZero() {
		w.flushed.since = w.pending.since
	}
	if w.flushed.span == nil && w.pending.first != nil {
		s := w.ep.Stats()
		w.flushed.datagrams, w.flushed.updates, w.flushed.deferred = s.DatagramsOut, s.UpdatesOut, s.Deferred
		w.flushed.span = w.pending.flushing()
	}
	w.pending.forget()
}

// endFlush notes that the datagrams are with the system.
func (w *Worker) endFlush() {
	f := &w.flushed
	if f.since.IsZero() {
		return
	}
	if h := w.edge.signals.flushDelay; h != nil {
		h.Record(time.Since(f.since), f.span)
	}
	if f.span != nil {
		s := w.ep.Stats()
		f.span.Set("dnp.datagrams", int(s.DatagramsOut-f.datagrams))
		f.span.Set("dnp.updates", int(s.UpdatesOut-f.updates))
		f.span.Set("dnp.deferred", int(s.Deferred-f.deferred))
		f.span.End()
	}
	*f = flushed{}
}
