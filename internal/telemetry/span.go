package telemetry

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// linksMax is the most updates that a span of several is linked to. The number is
// arbitrary.
const linksMax = 16

// A Span is one step on the way of a sampled update. A nil Span is none: all methods
// can be called and do nothing, so that callers need not ask. A Span belongs to
// one goroutine.
type Span struct {
	tracer *Tracer
	ctx    context.Context
	span   trace.Span
	joined int // updates beside the first
}

// Child begins the next step inside this process.
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

// Join says that this step is also one of another update. The first 16 are linked, all
// are counted.
func (s *Span) Join(other *Span) {
	if s == nil || other == nil {
		return
	}
	if s.joined++; s.joined <= linksMax {
		s.span.AddLink(trace.Link{SpanContext: other.span.SpanContext()})
	}
}

// Block returns the context of s as it travels inside of a batch, nil for none.
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

// Fail says that the step failed. code is one of a small number.
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
