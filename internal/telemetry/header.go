package telemetry

import (
	"context"
	"strconv"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// Headers of W3C Trace Context. The second spelling is what programs send that make
// headers as HTTP does.
const (
	headerTraceParent, headerTraceParentHTTP = "traceparent", "Traceparent"
	headerTraceState, headerTraceStateHTTP   = "tracestate", "Tracestate"
)

// traceParent returns the header of a message that says to which trace it belongs,
// empty if there is none.
func traceParent(header map[string]string) string {
	if header == nil {
		return ""
	}
	if p, ok := header[headerTraceParent]; ok {
		return p
	}
	return header[headerTraceParentHTTP]
}

// peek returns what sampling needs of a traceparent, 00-<32 hex>-<16 hex>-<2 hex>: the
// second half of the trace id, and whether the sender samples the trace. It allocates
// nothing and is no judge of validity.
func peek(parent string) (id uint64, sampled, ok bool) {
	const idAt, flagsAt, size = 3 + 16, 53, 55
	if len(parent) < size {
		return 0, false, false
	}
	id, err := strconv.ParseUint(parent[idAt:idAt+16], 16, 64)
	flags, flagsErr := strconv.ParseUint(parent[flagsAt:size], 16, 8)
	return id, flags&uint64(trace.FlagsSampled) != 0, err == nil && flagsErr == nil
}

// remote returns the context of the span that sent a message, invalid if the headers
// name none.
func remote(header map[string]string) trace.SpanContext {
	ctx := propagation.TraceContext{}.Extract(context.Background(), carrier(header))
	return trace.SpanContextFromContext(ctx)
}

// A carrier is the headers of a message, for reading.
type carrier map[string]string

func (c carrier) Get(key string) string {
	switch key {
	case headerTraceParent:
		return traceParent(c)
	case headerTraceState:
		if s, ok := c[headerTraceState]; ok {
			return s
		}
		return c[headerTraceStateHTTP]
	}
	return ""
}

func (carrier) Set(string, string) {}

func (carrier) Keys() []string { return []string{headerTraceParent, headerTraceState} }
