package telemetry_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/internal/telemetry/otlptest"
)

// Traces of game servers, sampled and not.
const (
	traceID   = "0af7651916cd43dd8448eb211c80319c"
	parentID  = "b7ad6b7169203331"
	sampled   = "00-" + traceID + "-" + parentID + "-01"
	unsampled = "00-" + traceID + "-" + parentID + "-00"
)

var message = telemetry.Message{Subject: "dnp.v1.publish.arena", Template: "dnp.v1.publish.{space}", Size: 9}

// tell sets the environment of a node whose spans go to c.
func tell(t *testing.T, c *otlptest.Collector, more ...string) {
	t.Setenv("OTEL_TRACES_EXPORTER", "otlp")
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.Endpoint())
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
	for i := 0; i < len(more); i += 2 {
		t.Setenv(more[i], more[i+1])
	}
}

// TestSilent opens telemetry in environments that ask for no export. goleak checks that no
// goroutine runs on.
func TestSilent(t *testing.T) {
	for _, env := range []map[string]string{
		{},
		{"OTEL_TRACES_EXPORTER": "none", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"},
		{"OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": "otlp", "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1"},
		{"OTEL_METRICS_EXPORTER": "prometheus"},
	} {
		t.Run("", func(t *testing.T) {
			for k, v := range env {
				t.Setenv(k, v)
			}
			tel := open(t)
			if tel.Tracer() != nil {
				t.Errorf("%v: updates are traced", env)
			}
			log := slog.New(slog.DiscardHandler)
			if tel.Logger(log) != log {
				t.Errorf("%v: log lines pass another handler", env)
			}
		})
	}
	var none *telemetry.Telemetry
	none.Histogram("x", "").Record(time.Second, none.Tracer().Receive("publish", map[string]string{"traceparent": sampled}, message))
	none.Close()
}

func TestBadEnvironment(t *testing.T) {
	for variable, value := range map[string]string{
		"OTEL_TRACES_SAMPLER":         "sometimes",
		"OTEL_TRACES_EXPORTER":        "carrier-pigeon",
		"OTEL_EXPORTER_OTLP_PROTOCOL": "smoke",
	} {
		t.Run(variable, func(t *testing.T) {
			t.Setenv("OTEL_TRACES_EXPORTER", "otlp")
			t.Setenv(variable, value)
			_, err := telemetry.Open("edge", "e", slog.New(slog.DiscardHandler))
			if err == nil || !strings.Contains(err.Error(), "OTEL_TRACES") || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want a line that names the variable", err)
			}
		})
	}
}

func TestSpans(t *testing.T) {
	c := otlptest.Start(t)
	tell(t, c, "OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=stage,service.instance.id=mine")
	tel := open(t)
	first := tel.Tracer().Receive("publish", map[string]string{"Traceparent": sampled}, message)
	second := tel.Tracer().Receive("publish", map[string]string{"traceparent": sampled, "tracestate": "a=b"}, message)
	batch := first.Send("batch", telemetry.Message{Subject: "dnp.v1.live.arena", Template: "dnp.v1.live.{space}"})
	for range 20 {
		batch.Join(second)
	}
	replicate := tel.Tracer().Resume("replicate", batch.Block(), message)
	replicate.Fail("bad", "it was")
	for _, s := range []*telemetry.Span{first, second, batch, replicate} {
		s.End()
	}
	c.Until("four spans arrive", func() bool { return len(c.Spans()) == 4 })
	by := map[string][]otlptest.Span{}
	for _, s := range c.Spans() {
		by[s.Name] = append(by[s.Name], s)
		if s.Trace != traceID || s.Service != "edge" || s.ResourceInstance != "mine" || s.ResourceEnvironment != "stage" {
			t.Errorf("a span of the trace of the game server, with what the environment says, got %+v", s)
		}
	}
	publish, sent, got := by["publish"], by["batch"][0], by["replicate"][0]
	if publish[0].Parent != parentID || publish[0].Kind != "SPAN_KIND_CONSUMER" || publish[0].Attributes["messaging.destination.template"] != message.Template {
		t.Errorf("publish is %+v", publish[0])
	}
	if sent.Parent != publish[0].ID || len(sent.Links) != 16 || sent.Links[0] != publish[1].ID || sent.Attributes["messaging.batch.message_count"] != "21" {
		t.Errorf("batch is %+v, want a child of the first, 16 links to the second, and 21 updates", sent)
	}
	if got.Parent != sent.ID || !got.Failed || got.Attributes["error.type"] != "bad" {
		t.Errorf("replicate is %+v", got)
	}
}

// TestUnsampledCostsNothing counts the allocations of an update that is not traced.
func TestUnsampledCostsNothing(t *testing.T) {
	c := otlptest.Start(t)
	tell(t, c, "OTEL_TRACES_SAMPLER", "parentbased_always_off")
	tel := open(t)
	delay := tel.Histogram("dnp.edge.flush.delay", "")
	var off *telemetry.Tracer
	for why, header := range map[string]map[string]string{
		"no headers": nil, "another header": {"Content-Type": "application/json"}, "a trace that is not sampled": {"traceparent": unsampled},
		"nonsense": {"traceparent": strings.Repeat("z", 55)},
	} {
		for _, tracer := range []*telemetry.Tracer{tel.Tracer(), off} {
			n := testing.AllocsPerRun(100, func() {
				span := tracer.Receive("publish", header, message)
				apply := span.Child("apply")
				apply.End()
				apply.Send("batch", message).Join(span)
				tracer.Resume("replicate", span.Block(), message).End()
				delay.Record(time.Millisecond, span)
				span.Set("x", 1)
				span.End()
			})
			if n != 0 {
				t.Errorf("%s: %v allocations", why, n)
			}
		}
	}
	tel.Close()
	if spans := c.Spans(); len(spans) != 0 || c.Requests() != 0 {
		t.Errorf("the collector was sent %+v", spans)
	}
}

// TestHungCollector ends many more spans than the queue holds while the collector hangs.
func TestHungCollector(t *testing.T) {
	c := otlptest.Start(t)
	resume := c.Hang()
	defer resume()
	tell(t, c, "OTEL_BSP_MAX_QUEUE_SIZE", "8", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4")
	n := start(t, telemetry.Config{})
	span := n.tel.Tracer().Receive("publish", map[string]string{"traceparent": sampled}, message)
	span.End()
	c.Until("a request hangs", func() bool { return c.Requests() > 0 })
	for range 100 {
		span.Child("apply").End()
	}
	n.want("spans beyond the queue are counted", "/metrics", 200, `dnp_telemetry_spans_total{outcome="dropped"} 93`, `{outcome="exported"} 0`)
	begin := time.Now()
	n.tel.Close()
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("Close took %v", took) // it waits 3 s
	}
}

// TestQueueEmpties sends more spans than the queue holds, one after the other.
func TestQueueEmpties(t *testing.T) {
	c := otlptest.Start(t)
	tell(t, c, "OTEL_BSP_MAX_QUEUE_SIZE", "4", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "4")
	tel := open(t)
	for i := range 12 {
		tel.Tracer().Receive("publish", map[string]string{"traceparent": sampled}, message).End()
		c.Until("the span arrives", func() bool { return len(c.Spans()) == i+1 })
	}
}

func TestNoCollector(t *testing.T) {
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1") // an endpoint alone asks for traces
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "1")
	var lines bytes.Buffer
	tel, err := telemetry.Open("edge", "e", slog.New(slog.NewTextHandler(&lines, nil)))
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		tel.Tracer().Receive("publish", map[string]string{"traceparent": sampled}, message).End()
	}
	tel.Close()
	if strings.Count(lines.String(), "level=WARN") != 1 || !strings.Contains(lines.String(), "players are not affected") {
		t.Errorf("want one line in the log:\n%s", &lines)
	}
}

func TestTracesAreLimited(t *testing.T) {
	c := otlptest.Start(t)
	tell(t, c, "OTEL_TRACES_SAMPLER", "always_on")
	n := start(t, telemetry.Config{})
	traced := 0
	const asked = 1000
	begin := time.Now()
	for range asked {
		if s := n.tel.Tracer().Receive("publish", nil, message); s != nil {
			traced++
		}
	}
	if most := 51 + int(50*time.Since(begin).Seconds()); traced < 50 || traced > most {
		t.Errorf("%d of %d are traced, want 50 to %d", traced, asked, most)
	}
	if _, body := n.get("/metrics"); !strings.Contains(body, "dnp_telemetry_traces_limited_total ") {
		t.Errorf("the others are not counted:\n%s", body)
	}
}

func TestExemplar(t *testing.T) {
	c := otlptest.Start(t)
	tell(t, c)
	n := start(t, telemetry.Config{})
	h := n.tel.Histogram("dnp.edge.flush.delay", "From batch to datagram.")
	span := n.tel.Tracer().Receive("publish", map[string]string{"traceparent": sampled}, message)
	h.Record(3*time.Millisecond, span)
	h.Record(300*time.Millisecond, nil)
	span.End()
	r, err := http.NewRequest("GET", n.base+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Accept", "application/openmetrics-text; version=1.0.0")
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, _ := io.ReadAll(answer.Body)
	for _, part := range []string{`dnp_edge_flush_delay_seconds_bucket{le="0.005"} 1 # {`, `trace_id="` + traceID + `"`, "dnp_edge_flush_delay_seconds_count 2"} {
		if !strings.Contains(string(body), part) {
			t.Errorf("no %q in\n%s", part, body)
		}
	}
	if strings.Count(string(body), "trace_id=") != 1 {
		t.Error("only a sampled record is an exemplar")
	}
}

func TestOTLPMetrics(t *testing.T) {
	c := otlptest.Start(t)
	t.Setenv("OTEL_METRICS_EXPORTER", "otlp")
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.Endpoint())
	n := start(t, telemetry.Config{Metrics: []telemetry.Metric{telemetry.Counter("dnp.edge.io", "By", "Bytes.", func() uint64 { return 7 })}})
	n.want("/metrics works beside OTLP", "/metrics", 200, "dnp_edge_io_bytes_total 7")
	n.tel.Close() // sends what is there
	if unit, ok := c.Metrics()["dnp.edge.io"]; !ok || unit != "By" {
		t.Errorf("the collector has %v", c.Metrics())
	}
}

func TestLogs(t *testing.T) {
	c := otlptest.Start(t)
	tell(t, c, "OTEL_LOGS_EXPORTER", "otlp")
	tel := open(t)
	var lines bytes.Buffer
	log := tel.Logger(slog.New(slog.NewJSONHandler(&lines, nil))).With("node", "edge-7")
	span := tel.Tracer().Receive("publish", map[string]string{"traceparent": sampled}, message)
	log.DebugContext(span.Context(), "below the level")
	log.InfoContext(span.Context(), "refused")
	log.Info("started")
	span.End()
	tel.Close()
	var line struct {
		TraceID string `json:"trace_id"`
		SpanID  string `json:"span_id"`
		Node    string
	}
	first, _, _ := bytes.Cut(lines.Bytes(), []byte("\n"))
	if err := json.Unmarshal(first, &line); err != nil || line.TraceID != traceID || len(line.SpanID) != 16 || line.Node != "edge-7" {
		t.Errorf("%v: the line is %s", err, first)
	}
	if strings.Count(lines.String(), "trace_id") != 1 {
		t.Errorf("a line without a trace has one: %s", &lines)
	}
	if got := c.Logs(); len(got) != 2 || got[0] != (otlptest.Log{Body: "refused", Trace: traceID}) || got[1].Trace != "" {
		t.Errorf("the collector has %+v", got)
	}
}

func TestContextOfNothing(t *testing.T) {
	var s *telemetry.Span
	if s.Context() != context.Background() || s.Block() != nil || s.Child("x") != nil || s.Send("x", message) != nil {
		t.Error("a nil span is not empty")
	}
}

// BenchmarkDecision measures updates that are not traced, and a record of a histogram.
func BenchmarkDecision(b *testing.B) {
	c := otlptest.Start(b)
	b.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", c.Endpoint())
	tel, err := telemetry.Open("relay", "r", slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	defer tel.Close()
	var off *telemetry.Tracer
	header := map[string]string{"traceparent": unsampled}
	for name, step := range map[string]func(){
		"off":            func() { off.Receive("publish", nil, message).End() },
		"no trace":       func() { tel.Tracer().Receive("publish", nil, message).End() },
		"unsampled":      func() { tel.Tracer().Receive("publish", header, message).End() },
		"unsampled step": func() { tel.Tracer().Resume("replicate", nil, message).Child("flush").End() },
		"histogram": func() func() {
			h := tel.Histogram("dnp.edge.flush.delay", "")
			return func() { h.Record(time.Millisecond, nil) }
		}(),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				step()
			}
		})
	}
}
