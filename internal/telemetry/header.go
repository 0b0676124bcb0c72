package telemetry

import (
	"context"

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
	id, ok = hexNumber(parent[idAt : idAt+16])
	flags, flagsOK := hexNumber(parent[flagsAt:size])
	return id, flags&uint64(trace.FlagsSampled) != 0, ok && flagsOK
}

// hexNumber reads up to 16 lower-case hex digits. strconv would allocate an error.
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
