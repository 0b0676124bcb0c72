// Package otlptest is a collector for tests: it accepts spans, metrics and log records over
// OTLP/HTTP on a real connection and keeps them for the test. It can hang, like an overloaded
// collector.
package otlptest

import (
	"encoding/hex"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	logs "go.opentelemetry.io/proto/otlp/collector/logs/v1"
	metrics "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	traces "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	common "go.opentelemetry.io/proto/otlp/common/v1"
	trace "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"
)

// patience bounds every wait. It says nothing about speed.
const patience = 30 * time.Second

// A Span is a span that arrived. Ids are in hex; Parent is empty for the first of a trace.
type Span struct {
	Service, Name       string
	Kind                string
	Trace, ID, Parent   string
	Links               []string // span ids
	Attributes          map[string]string
	Failed              bool
	Begin, End          uint64 // Unix nanoseconds
	ResourceInstance    string
	ResourceEnvironment string // deployment.environment.name
}

// A Log is a log record that arrived.
type Log struct{ Body, Trace string }

// A Collector accepts what nodes send.
type Collector struct {
	t      testing.TB
	server *httptest.Server
	hung   chan struct{} // closed when requests are answered

	mu      sync.Mutex // handlers write, the test reads
	changed chan struct{}
	spans   []Span
	metrics map[string]string // unit by name
	logs    []Log
	asked   int
}

// Start starts a collector that ends with the test.
func Start(t testing.TB) *Collector {
	t.Helper()
	c := &Collector{t: t, hung: make(chan struct{}), changed: make(chan struct{}, 1), metrics: map[string]string{}}
	close(c.hung)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/traces", handle(c, c.addTraces))
	mux.HandleFunc("POST /v1/metrics", handle(c, c.addMetrics))
	mux.HandleFunc("POST /v1/logs", handle(c, c.addLogs))
	c.server = httptest.NewServer(mux)
	t.Cleanup(func() {
		c.Disconnect()
		c.server.Close()
	})
	return c
}

// Endpoint returns the value for OTEL_EXPORTER_OTLP_ENDPOINT.
func (c *Collector) Endpoint() string { return c.server.URL }

// Disconnect closes the connections that nodes left open.
func (c *Collector) Disconnect() { c.server.CloseClientConnections() }

// Hang makes the collector answer no request until resume is called.
func (c *Collector) Hang() (resume func()) {
	c.hung = make(chan struct{})
	return func() { close(c.hung) }
}

// handle serves requests with a body of type M, which add stores. It answers once the
// collector does not hang.
func handle[M any, P interface {
	*M
	proto.Message
}](c *Collector, add func(P)) http.HandlerFunc {
	return func(_ http.ResponseWriter, r *http.Request) {
		m := P(new(M))
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = proto.Unmarshal(body, m)
		}
		if err != nil {
			c.t.Errorf("%s: %v", r.URL, err)
			return
		}
		c.locked(func() { c.asked++ })
		select {
		case <-c.hung:
			c.locked(func() { add(m) })
		case <-r.Context().Done():
		}
	}
}

// locked changes what arrived, and wakes Until.
func (c *Collector) locked(change func()) {
	c.mu.Lock()
	change()
	c.mu.Unlock()
	select {
	case c.changed <- struct{}{}:
	default:
	}
}

func (c *Collector) addTraces(m *traces.ExportTraceServiceRequest) {
	for _, rs := range m.ResourceSpans {
		resource := attributes(rs.Resource.Attributes)
		for _, ss := range rs.ScopeSpans {
			for _, s := range ss.Spans {
				c.spans = append(c.spans, newSpan(s, resource))
			}
		}
	}
}

func (c *Collector) addMetrics(m *metrics.ExportMetricsServiceRequest) {
	for _, rm := range m.ResourceMetrics {
		for _, sm := range rm.ScopeMetrics {
			for _, one := range sm.Metrics {
				c.metrics[one.Name] = one.Unit
			}
		}
	}
}

func (c *Collector) addLogs(m *logs.ExportLogsServiceRequest) {
	for _, rl := range m.ResourceLogs {
		for _, sl := range rl.ScopeLogs {
			for _, one := range sl.LogRecords {
				c.logs = append(c.logs, Log{Body: one.Body.GetStringValue(), Trace: hex.EncodeToString(one.TraceId)})
			}
		}
	}
}

func newSpan(s *trace.Span, resource map[string]string) Span {
	out := Span{
		Service: resource["service.name"], ResourceInstance: resource["service.instance.id"],
		ResourceEnvironment: resource["deployment.environment.name"],
		Name:                s.Name, Kind: s.Kind.String(),
		Trace: hex.EncodeToString(s.TraceId), ID: hex.EncodeToString(s.SpanId), Parent: hex.EncodeToString(s.ParentSpanId),
		Attributes: attributes(s.Attributes), Failed: s.Status.GetCode() == trace.Status_STATUS_CODE_ERROR,
		Begin: s.StartTimeUnixNano, End: s.EndTimeUnixNano,
	}
	for _, l := range s.Links {
		out.Links = append(out.Links, hex.EncodeToString(l.SpanId))
	}
	return out
}

func attributes(list []*common.KeyValue) map[string]string {
	all := map[string]string{}
	for _, a := range list {
		switch v := a.Value.Value.(type) {
		case *common.AnyValue_IntValue:
			all[a.Key] = strconv.FormatInt(v.IntValue, 10)
		default:
			all[a.Key] = a.Value.GetStringValue()
		}
	}
	return all
}

// Spans returns the spans that arrived.
func (c *Collector) Spans() []Span {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Span(nil), c.spans...)
}

// Metrics returns the units of the metrics that arrived, by name.
func (c *Collector) Metrics() map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.metrics)
}

// Logs returns the log records that arrived.
func (c *Collector) Logs() []Log {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]Log(nil), c.logs...)
}

// Requests returns how many requests arrived, answered or not.
func (c *Collector) Requests() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.asked
}

// Until waits until ok is true, which it checks when something arrives, or fails the test.
func (c *Collector) Until(why string, ok func() bool) {
	c.t.Helper()
	timeout := time.NewTimer(patience)
	defer timeout.Stop()
	for !ok() {
		select {
		case <-c.changed:
		case <-timeout.C:
			c.t.Fatalf("%s; the collector has %+v", why, c.Spans())
		}
	}
}
