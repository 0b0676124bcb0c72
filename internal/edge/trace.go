package edge

import (
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/replication/view"
	"github.com/dnprelay/dnprelay/subject"
)

// Signals are what an edge reports to telemetry besides its counters; all may be nil.
type signals struct {
	tracer     *telemetry.Tracer
	flushDelay *telemetry.Histogram
	subjects   subject.Names
	live       string // template of the subject of batches
}

func newSignals(t *telemetry.Telemetry, subjects subject.Names) signals {
	return signals{
		tracer: t.Tracer(),
		flushDelay: t.Histogram("dnp.edge.flush.delay",
			"From taking a batch to its datagrams being handed to the system, once per flush, of the first batch in it."),
		subjects: subjects,
		live:     subjects.Live("{space}"),
	}
}

// replicate begins the span of a batch that is sampled; otherwise it returns nil.
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

// flushBatchesMax bounds the sampled batches that a flush refers to; others are not in its
// span. A span has at most so many links.
const flushBatchesMax = 16

// A flushTrace follows the batches of a worker from where they are applied through the
// flush that carries them, until its datagrams are with the system.
type flushTrace struct {
	*signals

	// Batches that were applied and not flushed.
	since time.Time       // when the first of them was applied; zero if there is none
	first *telemetry.Span // of the sampled ones, nil if there is none
	more  []*telemetry.Span

	// The flushes of this turn.
	begun  time.Time       // since of the first; zero if there is none
	span   *telemetry.Span // nil if none is sampled
	before [3]uint64       // datagrams, updates and deferred links that the endpoint had counted
}

// applied notes a batch. span is nil unless the batch is sampled.
func (t *flushTrace) applied(now time.Time, span *telemetry.Span) {
	if t.since.IsZero() {
		t.since = now
	}
	switch {
	case span == nil:
	case t.first == nil:
		t.first = span
	case len(t.more) < flushBatchesMax:
		t.more = append(t.more, span)
	}
}

func (t *flushTrace) forget() {
	if t.since.IsZero() {
		return
	}
	clear(t.more)
	t.since, t.first, t.more = time.Time{}, nil, t.more[:0]
}

// begin notes that a flush begins, which carries all batches that were applied. A second
// flush in the same turn counts with the first.
func (t *flushTrace) begin(s *dnp.Stats) {
	if t.begun.IsZero() {
		t.begun = t.since
	}
	if t.span == nil && t.first != nil {
		t.before = [...]uint64{s.DatagramsOut, s.UpdatesOut, s.Deferred}
		t.span = t.first.Child("flush")
		for _, span := range t.more {
			t.span.Join(span)
		}
	}
	t.forget()
}

// end notes that the datagrams of the turn are with the system.
func (t *flushTrace) end(s *dnp.Stats) {
	if t.begun.IsZero() {
		return
	}
	if t.flushDelay != nil {
		t.flushDelay.Record(time.Since(t.begun), t.span)
	}
	if t.span != nil {
		t.span.Set("dnp.datagrams", int(s.DatagramsOut-t.before[0]))
		t.span.Set("dnp.updates", int(s.UpdatesOut-t.before[1]))
		t.span.Set("dnp.deferred", int(s.Deferred-t.before[2]))
		t.span.End()
	}
	t.begun, t.span = time.Time{}, nil
}
