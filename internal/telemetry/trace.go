package telemetry

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
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

// defaultRatio is the share of publishes without a trace of their own that a node traces by
// default. The standard's default is all, which would cost a relay more than its work.
const defaultRatio = 0.01

// A sampler decides which updates are traced. It decides as the SDK's sampler of the same
// name, but before anything is allocated for a span, which is a hundred times cheaper.
type sampler struct {
	parentBased bool   // the sender decides, if the message has a trace
	bound       uint64 // of 2^63; a trace is sampled if its id is lower
}

// parseSampler reads OTEL_TRACES_SAMPLER and OTEL_TRACES_SAMPLER_ARG. With an error it
// returns the default.
func parseSampler(name, arg string) (sampler, error) {
	usual := sampler{parentBased: true, bound: ratioBound(defaultRatio)}
	name = strings.ToLower(strings.TrimSpace(name))
	if name == "" {
		return usual, nil
	}
	kind, parentBased := strings.CutPrefix(name, "parentbased_")
	ratio := 0.0
	switch kind {
	case "always_on":
		ratio = 1
	case "always_off":
	case "traceidratio":
		var err error
		if ratio, err = parseRatio(arg); err != nil {
			return usual, err
		}
	default:
		return usual, fmt.Errorf("OTEL_TRACES_SAMPLER: %q is not always_on, always_off or traceidratio, with or without parentbased_ before it", name)
	}
	return sampler{parentBased, ratioBound(ratio)}, nil
}

func parseRatio(arg string) (float64, error) {
	arg = strings.TrimSpace(arg)
	if arg == "" {
		return 1, nil
	}
	ratio, err := strconv.ParseFloat(arg, 64)
	if err != nil || !(ratio >= 0 && ratio <= 1) {
		return 0, fmt.Errorf("OTEL_TRACES_SAMPLER_ARG: want a number from 0 to 1, got %q", arg)
	}
	return ratio, nil
}

func ratioBound(ratio float64) uint64 { return uint64(ratio * (1 << 63)) }

// samples reports whether a message with this traceparent, which may be empty, is traced.
// random decides about a message that belongs to no trace.
func (s sampler) samples(parent string, random uint64) bool {
	if parent == "" {
		return random>>1 < s.bound
	}
	id, sampled, ok := peek(parent)
	switch {
	case !ok:
		return random>>1 < s.bound
	case s.parentBased:
		return sampled
	}
	return id>>1 < s.bound
}

// tracesPerSecond is how many traces a process begins or joins in a second, and at once,
// whatever the game servers ask for. The number is arbitrary: a trace costs about 20 µs in
// all, so tracing costs a thousandth of a core.
const tracesPerSecond = 50

// newBucket returns the bound of the traces of a process. Workers of a relay share it.
func newBucket() *rate.Limiter { return rate.NewLimiter(tracesPerSecond, tracesPerSecond) }

// allow reports whether one more update may be traced, and counts one that may not.
func (t *Tracer) allow(now time.Time) bool {
	ok := t.bucket.AllowN(now, 1)
	if !ok {
		t.refused.Add(1)
	}
	return ok
}

// traceParent returns the header traceparent of W3C Trace Context; empty if there is none.
// Programs that write headers as in HTTP use the second spelling.
func traceParent(header map[string]string) string {
	if header == nil { // most messages have none
		return ""
	}
	return cmp.Or(header["traceparent"], header["Traceparent"])
}

// peek returns what sampling needs of a traceparent, 00-<32 hex>-<16 hex>-<2 hex>: the
// second half of the trace id, and whether the sender samples the trace. It allocates
// nothing and does not check the rest.
func peek(parent string) (id uint64, sampled, ok bool) {
	const idAt, flagsAt, size = 3 + 16, 53, 55
	if len(parent) < size {
		return 0, false, false
	}
	id, ok = hexNumber(parent[idAt : idAt+16])
	flags, flagsOK := hexNumber(parent[flagsAt:size])
	return id, flags&uint64(trace.FlagsSampled) != 0, ok && flagsOK
}

// hexNumber reads up to 16 lower-case hex digits. strconv allocates its errors.
func hexNumber(s string) (n uint64, ok bool) {
	for _, c := range []byte(s) {
		switch {
		case c >= '0' && c <= '9':
			n = n<<4 | uint64(c-'0')
		case c >= 'a' && c <= 'f':
			n = n<<4 | uint64(c-'a'+10)
		default:
			return 0, false
		}
	}
	return n, true
}

// remote returns the context of the span that sent a message; invalid if the headers name
// none.
func remote(header map[string]string) trace.SpanContext {
	carrier := propagation.MapCarrier{
		"traceparent": traceParent(header), "tracestate": cmp.Or(header["tracestate"], header["Tracestate"]),
	}
	return trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
}

// BlockSize is the size of a trace block, which carries the context of a span in a batch:
//
//	version uint8 = 1
//	trace   [16]byte
//	span    [8]byte
//	flags   uint8, those of W3C Trace Context
//
// replication/view carries it as opaque bytes.
const BlockSize = 1 + 16 + 8 + 1

const blockVersion = 1

func appendBlock(b []byte, c trace.SpanContext) []byte {
	traceID, spanID := c.TraceID(), c.SpanID()
	b = append(b, blockVersion)
	b = append(b, traceID[:]...)
	b = append(b, spanID[:]...)
	return append(b, byte(c.TraceFlags()))
}

// parseBlock returns the context in a block. It reports false unless the block has a known
// version and a sampled span.
func parseBlock(p []byte) (trace.SpanContext, bool) {
	if len(p) != BlockSize || p[0] != blockVersion {
		return trace.SpanContext{}, false
	}
	c := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID(p[1:17]), SpanID: trace.SpanID(p[17:25]), TraceFlags: trace.TraceFlags(p[25]), Remote: true,
	})
	return c, c.IsValid() && c.IsSampled()
}
