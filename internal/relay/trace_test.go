package relay

import (
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/internal/telemetry/otlptest"
)

// BenchmarkPublish handles publishes and emits a batch for every ten: without telemetry, with
// telemetry but no traces, with 1 % of the publishes traced, and with as many as the limit
// allows.
func BenchmarkPublish(b *testing.B) {
	for name, ratio := range map[string]string{"none": "", "off": "", "unsampled": "0", "1%": "0.01", "all": "1"} {
		b.Run(name, func(b *testing.B) {
			var tel *telemetry.Telemetry
			if ratio != "" {
				b.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", otlptest.Start(b).Endpoint())
				b.Setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
				b.Setenv("OTEL_TRACES_SAMPLER_ARG", ratio)
			}
			if name != "none" {
				var err error
				if tel, err = telemetry.Open("relay", "r", slog.New(slog.DiscardHandler)); err != nil {
					b.Fatal(err)
				}
				defer tel.Close()
			}
			w, shard := benchWorker(b, tel)
			put := bus.Msg{Subject: "dnp.v1.shard.0.publish.s", Data: []byte(`{"op":"put","key":"k","values":[{"name":"n","type":"uint32","value":0}]}`)}
			w.post(shard, (*Worker).publish, put)
			now := time.Now()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				w.post(shard, (*Worker).publish, bus.Msg{Subject: put.Subject, Data: fmt.Appendf(nil, `{"op":"set","key":"k","values":{"n":%d}}`, i)})
				if i%10 == 9 {
					now = now.Add(time.Second)
					w.Turn(now)
				}
			}
		})
	}
}

// nowhere is a bus that accepts everything and delivers nothing.
type nowhere struct{}

func (nowhere) Publish(bus.Msg) error                                 { return nil }
func (nowhere) Subscribe(string, func(bus.Msg)) (func(), error)       { return func() {}, nil }
func (nowhere) SubscribeShared(string, func(bus.Msg)) (func(), error) { return func() {}, nil }
func (nowhere) Request(bus.Msg, time.Duration, func(bus.Msg, error))  {}
func (nowhere) Connected() bool                                       { return true }
func (nowhere) OnChange(func(bool))                                   {}

// benchWorker returns a worker that owns every shard, and the shard of the space s.
func benchWorker(tb testing.TB, tel *telemetry.Telemetry) (*Worker, int) {
	tb.Helper()
	r, err := New(Config{Node: "r", Bus: nowhere{}, Epoch: 1, Workers: 1, Tick: time.Millisecond, Log: slog.New(slog.DiscardHandler), Telemetry: tel})
	if err != nil {
		tb.Fatal(err)
	}
	if err := r.Start(); err != nil {
		tb.Fatal(err)
	}
	return r.Workers()[0], cluster.Shard("s", r.cfg.Shards)
}

// TestRefusedLine: the first of the sampled publishes that are refused, by a store or before, has a line in the log, and
// later ones when a moment has passed.
func TestRefusedLine(t *testing.T) {
	c := otlptest.Start(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.Endpoint())
	tel, err := telemetry.Open("relay", "r", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer tel.Close()
	w, shard := benchWorker(t, tel)
	var text strings.Builder
	w.relay.cfg.Log = slog.New(slog.NewTextHandler(&text, nil))
	now := time.Now()
	logs := func(why string, after time.Duration, sampled bool, body, want string) {
		t.Helper()
		now = now.Add(after)
		text.Reset()
		flags := map[bool]string{false: "00", true: "01"}[sampled]
		w.post(shard, (*Worker).publish, bus.Msg{Subject: "dnp.v1.shard.0.publish.s", Data: []byte(body), Header: map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-" + flags}})
		w.Turn(now)
		if got := text.String(); !strings.Contains(got, want) || (want == "") != (got == "") {
			t.Errorf("%s: %q, want %q", why, got, want)
		}
	}
	const unknown = `{"atomic":false,"ops":[{"op":"put","key":"k","values":[{"type":"uint8"}]},{"op":"remove","key":"x"}]}`
	logs("it is not sampled", 0, false, unknown, "")
	logs("an op is refused", 0, true, unknown, `msg="refused a sampled publish" subject=dnp.v1.shard.0.publish.s code=unknown_state op=1 error="no state has the key \"x\"" left_out=0`)
	logs("all ops are applied", refusedPause, true, `{"op":"remove","key":"k"}`, "")
	logs("it is no JSON", 0, true, `{`, "code=bad_request")
	logs("another one so soon", refusedPause-1, true, unknown, "")
	logs("after a moment", 1, true, unknown, "left_out=1")
}

// TestUnsampledPublishAllocates wants a publish that is not sampled to allocate no more than one
// of a relay without telemetry. It compares means with their fractions: the race detector
// empties pools at random, and testing.AllocsPerRun would round a mean of nearly 16 to 15 at
// one time and to 16 at another.
func TestUnsampledPublishAllocates(t *testing.T) {
	c := otlptest.Start(t)
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.Endpoint())
	t.Setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
	tel, err := telemetry.Open("relay", "r", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer tel.Close()
	cost := func(tel *telemetry.Telemetry, header map[string]string) float64 {
		w, shard := benchWorker(t, tel)
		w.post(shard, (*Worker).publish, bus.Msg{Subject: "dnp.v1.shard.0.publish.s", Data: []byte(`{"op":"put","key":"k","values":[{"name":"n","type":"uint32","value":0}]}`)})
		now := time.Now()
		w.Turn(now)
		bodies := [][]byte{[]byte(`{"op":"set","key":"k","values":{"n":1}}`), []byte(`{"op":"set","key":"k","values":{"n":2}}`)}
		const publishes = 1000
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for n := range publishes {
			now = now.Add(time.Second)
			w.post(shard, (*Worker).publish, bus.Msg{Subject: "dnp.v1.shard.0.publish.s", Data: bodies[n%2], Header: header})
			w.Turn(now)
		}
		runtime.ReadMemStats(&after)
		return float64(after.Mallocs-before.Mallocs) / publishes
	}
	unsampled := map[string]string{"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"}
	for _, header := range []map[string]string{nil, unsampled} {
		if without, with := cost(nil, header), cost(tel, header); with > without+0.5 {
			t.Errorf("with headers %v: %v allocations, %v without telemetry", header, with, without)
		}
	}
	if len(c.Spans()) > 0 {
		t.Errorf("spans: %+v", c.Spans())
	}
}
