package telemetry

import (
	"context"
	"os"
	"strconv"
	"sync/atomic"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// A spanQueue passes ended spans on to the SDK's queue as long as there is room, and
// counts what becomes of them. It is the processor before that queue and the exporter
// behind it.
type spanQueue struct {
	sdktrace.SpanProcessor // the SDK's queue
	exporter               sdktrace.SpanExporter

	bound                     int64        // of waiting; that of the SDK's queue, which thus never drops
	waiting                   atomic.Int64 // for the collector, or on their way to it
	exported, failed, dropped atomic.Uint64
}

func newSpanQueue(e sdktrace.SpanExporter) *spanQueue {
	q := &spanQueue{exporter: e, bound: queueBound()}
	q.SpanProcessor = sdktrace.NewBatchSpanProcessor(spanSink{q}, sdktrace.WithMaxQueueSize(int(q.bound)))
	return q
}

// queueBound returns the size of the queue, which the environment may set.
func queueBound() int64 {
	n, err := strconv.ParseInt(os.Getenv("OTEL_BSP_MAX_QUEUE_SIZE"), 10, 32)
	if err != nil || n < 1 {
		return sdktrace.DefaultMaxQueueSize
	}
	return n
}

// OnEnd takes a span that ended. It never blocks.
func (q *spanQueue) OnEnd(s sdktrace.ReadOnlySpan) {
	if !s.SpanContext().IsSampled() {
		return
	}
	if q.waiting.Add(1) > q.bound {
		q.waiting.Add(-1)
		q.dropped.Add(1)
		return
	}
	q.SpanProcessor.OnEnd(s)
}

// A spanSink is the end of a spanQueue where spans leave.
type spanSink struct{ q *spanQueue }

// ExportSpans sends spans and counts whether the collector took them.
func (s spanSink) ExportSpans(ctx context.Context, spans []sdktrace.ReadOnlySpan) error {
	err := s.q.exporter.ExportSpans(ctx, spans)
	n := len(spans)
	s.q.waiting.Add(-int64(n))
	if err != nil {
		s.q.failed.Add(uint64(n))
	} else {
		s.q.exported.Add(uint64(n))
	}
	return err
}

// Shutdown ends the exporter.
func (s spanSink) Shutdown(ctx context.Context) error { return s.q.exporter.Shutdown(ctx) }
