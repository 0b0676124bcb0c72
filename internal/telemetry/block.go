package telemetry

import (
	"go.opentelemetry.io/otel/trace"
)

// BlockSize is the size of a trace block, in which the context of a span travels
// inside of a batch:
//
//	version uint8 = 1
//	trace   [16]byte
//	span    [8]byte
//	flags   uint8, those of W3C Trace Context
//
// replication/view carries it without looking at it.
const BlockSize = 1 + 16 + 8 + 1

const blockVersion = 1

func appendBlock(b []byte, c trace.SpanContext) []byte {
	traceID, spanID := c.TraceID(), c.SpanID()
	b = append(b, blockVersion)
	b = append(b, traceID[:]...)
	b = append(b, spanID[:]...)
	return append(b, byte(c.TraceFlags()))
}

// parseBlock returns the context in a block. It reports false if there is none of a
// sampled span, or in a version that is not known.
func parseBlock(p []byte) (trace.SpanContext, bool) {
	if len(p) != BlockSize || p[0] != blockVersion {
		return trace.SpanContext{}, false
	}
	c := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: trace.TraceID(p[1:17]), SpanID: trace.SpanID(p[17:25]), TraceFlags: trace.TraceFlags(p[25]), Remote: true,
	})
	return c, c.IsValid() && c.IsSampled()
}
