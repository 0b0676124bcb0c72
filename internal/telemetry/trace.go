package telemetry

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"
)

// A Tracer begins traces of updates, or joins those of game servers. A nil Tracer does
// neither, at the cost of one branch. Its methods may be called from any goroutine.
type Tracer struct {
	tracer  trace.Tracer
	sample  sampler
	bucket  *rate.Limiter // of traces
	refused atomic.Uint64 // sampled updates that the bucket did not allow
}

// A Message describes a message of the bus, for spans.
type Message struct {
	Subject  string
	Template string // the subject with placeholders; templates are few
	Size     int    // bytes of the body
}

// Receive begins the span of a message from a game server, or returns nil for a message
// that is not sampled, as most are. OTEL_TRACES_SAMPLER decides, with or without a trace in
// the headers. Receive allocates nothing when it returns nil.
func (t *Tracer) Receive(name string, header map[string]string, m Message) *Span {
	if t == nil {
		return nil
	}
	parent := traceParent(header)
	if !t.sample.samples(parent, rand.Uint64()) || !t.allow(time.Now()) {
		return nil
	}
	ctx := context.Background()
	if parent != "" {
		ctx = trace.ContextWithRemoteSpanContext(ctx, remote(header))
	}
	return t.start(ctx, name, trace.SpanKindConsumer, m.attributes()...)
}

// Resume begins the span of a batch with this trace block, or returns nil. Another node of
// the deployment made the block, and has decided about sampling.
func (t *Tracer) Resume(name string, block []byte, m Message) *Span {
	if t == nil || len(block) == 0 {
		return nil
	}
	c, ok := parseBlock(block)
	if !ok || t.sample.bound == 0 && !t.sample.parentBased {
		return nil
	}
	return t.start(trace.ContextWithRemoteSpanContext(context.Background(), c), name, trace.SpanKindConsumer, m.attributes()...)
}

func (t *Tracer) start(ctx context.Context, name string, kind trace.SpanKind, attributes ...attribute.KeyValue) *Span {
	ctx, span := t.tracer.Start(ctx, name, trace.WithSpanKind(kind), trace.WithAttributes(attributes...))
	return &Span{tracer: t, ctx: ctx, span: span}
}

func (m Message) attributes() []attribute.KeyValue {
	return []attribute.KeyValue{
		attribute.String("messaging.system", "nats"),
		attribute.String("messaging.operation.type", "process"),
		attribute.String("messaging.destination.name", m.Subject),
		attribute.String("messaging.destination.template", m.Template),
		attribute.Int("messaging.message.body.size", m.Size),
	}
}

// linksMax is how many updates a span of several links to. The number is arbitrary.
const linksMax = 16

// A Span is one step of a sampled update. All methods of a nil Span do nothing, so that
// callers need not ask. A Span belongs to one goroutine.
type Span struct {
	tracer *Tracer
	ctx    context.Context
	span   trace.Span
	joined int // updates besides the first
}

// Child begins the next step in this process.
func (s *Span) Child(name string) *Span {
	if s == nil {
		return nil
	}
	return s.tracer.start(s.ctx, name, trace.SpanKindInternal)
}

// Send begins a step that ends with a message to other nodes.
func (s *Span) Send(name string, m Message) *Span {
	if s == nil {
		return nil
	}
	return s.tracer.start(s.ctx, name, trace.SpanKindProducer,
		attribute.String("messaging.system", "nats"),
		attribute.String("messaging.operation.type", "send"),
		attribute.String("messaging.destination.name", m.Subject),
		attribute.String("messaging.destination.template", m.Template))
}

// Join notes that this step also belongs to another update. It links the first linksMax and
// counts all.
func (s *Span) Join(other *Span) {
	if s == nil || other == nil {
		return
	}
	if s.joined++; s.joined <= linksMax {
		s.span.AddLink(trace.Link{SpanContext: other.span.SpanContext()})
	}
}

// Block returns the trace block of s for a batch; nil if s is nil.
func (s *Span) Block() []byte {
	if s == nil {
		return nil
	}
	return appendBlock(make([]byte, 0, BlockSize), s.span.SpanContext())
}

// Context returns a context with the span, for log lines and histograms.
func (s *Span) Context() context.Context {
	if s == nil {
		return context.Background()
	}
	return s.ctx
}

// Set adds a number that describes the step.
func (s *Span) Set(key string, n int) {
	if s != nil {
		s.span.SetAttributes(attribute.Int(key, n))
	}
}

// Fail notes that the step failed. Codes must be few.
func (s *Span) Fail(code, message string) {
	if s != nil {
		s.span.SetAttributes(attribute.String("error.type", code))
		s.span.SetStatus(codes.Error, message)
	}
}

// End ends the step. Further calls of any method do nothing.
func (s *Span) End() {
	if s == nil {
		return
	}
	if s.joined > 0 {
		s.span.SetAttributes(attribute.Int("messaging.batch.message_count", 1+s.joined))
	}
	s.span.End()
}

// A spanQueue passes ended spans to the SDK's queue while there is room, and counts their
// outcomes. It is the processor before that queue and the exporter behind it.
type spanQueue struct {
	sdktrace.SpanProcessor // the SDK's queue
	exporter               sdktrace.SpanExporter

	bound                     int64        // of waiting; equals that of the SDK's queue, so that the SDK never drops
	waiting                   atomic.Int64 // spans that wait for the collector, or are on their way to it
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

// OnEnd queues a span that ended. It never blocks.
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

// A spanSink is the exporter behind a spanQueue.
type spanSink struct{ q *spanQueue }

// ExportSpans sends spans and counts whether the collector accepted them.
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
