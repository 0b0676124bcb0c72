package telemetry

import (
	"context"
	"math/rand/v2"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
)

// A Tracer begins traces of updates, or joins those of game servers. A nil Tracer
// does neither, at the cost of one branch. Its methods may be called from any goroutine.
type Tracer struct {
	tracer trace.Tracer
	sample sampler
	limit  *limit
}

// A Message is what spans say about a message of the bus.
type Message struct {
	Subject  string // as it was sent
	Template string // the same with placeholders, of which there are few
	Size     int    // bytes of the body
}

// Receive begins the span of a message from a game server with these headers, or
// returns nil, which is what it does for nearly all: without a trace in the headers
// OTEL_TRACES_SAMPLER decides, and so it does about those with one. A decision against
// it allocates nothing.
func (t *Tracer) Receive(name string, header map[string]string, m Message) *Span {
	if t == nil {
		return nil
	}
	parent := traceParent(header)
	if !t.sample.samples(parent, rand.Uint64()) || !t.limit.take(time.Now()) {
		return nil
	}
	ctx := context.Background()
	if parent != "" {
		ctx = trace.ContextWithRemoteSpanContext(ctx, remote(header))
	}
	return t.start(ctx, name, trace.SpanKindConsumer, m.attributes()...)
}

// Resume begins the span of a batch that has this trace block, or returns nil. The block
// was made by another node of the deployment, which decided already.
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
