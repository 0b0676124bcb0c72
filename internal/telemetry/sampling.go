package telemetry

import (
	"cmp"
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"
)

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
