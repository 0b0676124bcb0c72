package telemetry

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// TestSampler compares the decisions about messages with a trace to those of the SDK's
// samplers.
func TestSampler(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for _, c := range []struct {
		name, arg string
		twin      sdktrace.Sampler
	}{
		{"", "", sdktrace.ParentBased(sdktrace.TraceIDRatioBased(0.01))},
		{"always_on", "", sdktrace.AlwaysSample()},
		{"always_off", "", sdktrace.NeverSample()},
		{"traceidratio", "", sdktrace.TraceIDRatioBased(1)},
		{" TraceIDRatio ", "0.25", sdktrace.TraceIDRatioBased(0.25)},
		{"parentbased_always_on", "", sdktrace.ParentBased(sdktrace.AlwaysSample())},
		{"parentbased_always_off", "", sdktrace.ParentBased(sdktrace.NeverSample())},
		{"parentbased_traceidratio", "0.5", sdktrace.ParentBased(sdktrace.TraceIDRatioBased(0.5))},
	} {
		s, err := parseSampler(c.name, c.arg)
		if err != nil {
			t.Fatal(err)
		}
		for range 1000 {
			var cfg trace.SpanContextConfig
			for i := range cfg.TraceID {
				cfg.TraceID[i] = byte(r.Uint32())
			}
			cfg.SpanID[0], cfg.TraceFlags = 1, trace.TraceFlags(r.Uint32N(2))
			parent := trace.NewSpanContext(cfg)
			header := fmt.Sprintf("00-%s-%s-%s", parent.TraceID(), parent.SpanID(), parent.TraceFlags())
			want := c.twin.ShouldSample(sdktrace.SamplingParameters{
				ParentContext: trace.ContextWithRemoteSpanContext(context.Background(), parent), TraceID: cfg.TraceID,
			}).Decision == sdktrace.RecordAndSample
			if got := s.samples(header, r.Uint64()); got != want {
				t.Fatalf("%s %s: %s is sampled: %v, want %v", c.name, c.arg, header, got, want)
			}
		}
	}
}

// TestSamplerWithoutTrace counts how many messages without a trace begin one.
func TestSamplerWithoutTrace(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for _, c := range []struct {
		name, arg string
		want      float64
	}{
		{"", "", 0.01}, {"always_on", "", 1}, {"parentbased_always_on", "", 1}, {"always_off", "", 0}, {"parentbased_always_off", "", 0},
		{"traceidratio", "0.3", 0.3}, {"parentbased_traceidratio", "0", 0}, {"parentbased_traceidratio", "0.3", 0.3},
	} {
		s, err := parseSampler(c.name, c.arg)
		if err != nil {
			t.Fatal(err)
		}
		const n = 100_000
		got := 0
		for range n {
			if s.samples("", r.Uint64()) {
				got++
			}
		}
		if d := float64(got)/n - c.want; d > 0.005 || d < -0.005 {
			t.Errorf("%s %s: %d of %d", c.name, c.arg, got, n)
		}
	}
}

func TestSamplerErrors(t *testing.T) {
	for _, c := range [][2]string{{"parentbased_", ""}, {"jaeger_remote", ""}, {"traceidratio", "2"}, {"traceidratio", "-1"}, {"traceidratio", "NaN"}, {"traceidratio", "x"}} {
		if s, err := parseSampler(c[0], c[1]); err == nil || s.bound != ratioBound(defaultRatio) {
			t.Errorf("%q: %+v, %v", c, s, err)
		}
	}
}

func TestBlock(t *testing.T) {
	c := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1, 15: 2}, SpanID: trace.SpanID{3, 7: 4}, TraceFlags: trace.FlagsSampled, Remote: true})
	b := appendBlock(nil, c)
	if got, ok := parseBlock(b); !ok || !got.Equal(c) {
		t.Errorf("% x is read as %v, %v", b, got, ok)
	}
	for n := range b {
		if _, ok := parseBlock(b[:n]); ok {
			t.Errorf("%d bytes pass", n)
		}
	}
	for _, i := range []int{0, BlockSize - 1} { // another version, not sampled
		bad := append([]byte(nil), b...)
		bad[i] ^= 1
		if _, ok := parseBlock(bad); ok {
			t.Errorf("% x passes", bad)
		}
	}
}

func TestLimit(t *testing.T) {
	now := time.Unix(0, 0)
	l := &Tracer{bucket: newBucket()}
	took := func() (n int) {
		for l.allow(now) {
			n++
		}
		return n
	}
	if n := took(); n != tracesPerSecond {
		t.Errorf("%d at once", n)
	}
	if now = now.Add(100 * time.Millisecond); took() != tracesPerSecond/10 {
		t.Error("a tenth of a second gives a tenth")
	}
	if now = now.Add(time.Hour); took() != tracesPerSecond {
		t.Error("an hour gives no more than a second")
	}
	if l.refused.Load() != 3 {
		t.Errorf("%d refusals are counted, want 3", l.refused.Load())
	}
}
