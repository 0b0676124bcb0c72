package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/internal/version"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/contrib/bridges/otelslog"
	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
	"golang.org/x/time/rate"
)

// scope is the name of this program's instruments, beside those of libraries.
const scope = "github.com/dnprelay/dnprelay"

// closeTimeout is how long Close waits for a collector to accept what is left.
const closeTimeout = 3 * time.Second

// errorInterval is the shortest time between two lines about exports that failed.
const errorInterval = time.Minute

// Telemetry has the metrics of one process, and sends traces, metrics and log lines to a
// collector if the standard OTEL_* variables ask for that. A nil Telemetry, for
// simulations, does nothing.
type Telemetry struct {
	registry *prometheus.Registry
	provider meterProvider
	traces   provider               // nil if spans are not exported
	logs     *sdklog.LoggerProvider // nil if log lines are not exported
	queue    *spanQueue
	tracer   *Tracer
}

// Two providers of the SDK are interfaces here, for the compiler: each package that uses Telemetry would compile the methods of all generic
// types of which *sdkmetric.MeterProvider is made, which are 1,300.
type (
	provider interface {
		Shutdown(context.Context) error
	}
	meterProvider interface {
		metric.MeterProvider
		provider
	}
)

// Open reads the environment. service is "edge" or "relay", and node its name. Errors of
// exports in the whole process go to log, at most one a minute; the error returned is one
// line about a variable that is wrong. Telemetry connects when there is something to send,
// and never makes the node wait for that.
func Open(service, node string, log *slog.Logger) (*Telemetry, error) {
	t := &Telemetry{registry: prometheus.NewRegistry()}
	t.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	res, err := newResource(service, node)
	if err == nil {
		err = errors.Join(t.openMetrics(res), t.openTraces(res), t.openLogs(res))
	}
	if err != nil {
		t.Close()
		return nil, fmt.Errorf("OpenTelemetry: %w", err)
	}
	sometimes := rate.Sometimes{Interval: errorInterval}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		sometimes.Do(func() { log.Warn("telemetry does not reach its collector; players are not affected", "error", err) })
	}))
	log.Info("starting", "service", service, "node", node, "version", version.Long())
	return t, nil
}

func (t *Telemetry) openMetrics(res *resource.Resource) error {
	page, err := otelprometheus.New(otelprometheus.WithRegisterer(t.registry), otelprometheus.WithoutScopeInfo())
	if err != nil {
		return err
	}
	options := []sdkmetric.Option{sdkmetric.WithResource(res), sdkmetric.WithReader(page)}
	reader, ok, err := exporter("OTEL_METRICS_EXPORTER", autoexport.NewMetricReader)
	if ok {
		options = append(options, sdkmetric.WithReader(reader))
	}
	t.provider = sdkmetric.NewMeterProvider(options...)
	return err
}

func (t *Telemetry) openTraces(res *resource.Resource) error {
	sample, err := parseSampler(os.Getenv("OTEL_TRACES_SAMPLER"), os.Getenv("OTEL_TRACES_SAMPLER_ARG"))
	if err != nil {
		return err
	}
	spans, ok, err := exporter(tracesVariable, autoexport.NewSpanExporter)
	if !ok {
		return err
	}
	t.queue = newSpanQueue(spans)
	traces := sdktrace.NewTracerProvider(sdktrace.WithResource(res), sdktrace.WithSpanProcessor(t.queue), sdktrace.WithSampler(sdktrace.AlwaysSample()))
	t.traces = traces
	t.tracer = &Tracer{tracer: traces.Tracer(scope), sample: sample, bucket: newBucket()}
	return nil
}

func (t *Telemetry) openLogs(res *resource.Resource) error {
	lines, ok, err := exporter("OTEL_LOGS_EXPORTER", autoexport.NewLogExporter)
	if !ok {
		return err
	}
	t.logs = sdklog.NewLoggerProvider(sdklog.WithResource(res), sdklog.WithProcessor(sdklog.NewBatchProcessor(lines)))
	return nil
}

// Tracer returns the tracer; nil if spans are not exported.
func (t *Telemetry) Tracer() *Tracer {
	if t == nil {
		return nil
	}
	return t.tracer
}

func (t *Telemetry) meter() metric.Meter { return t.provider.Meter(scope) }

// metrics returns the metrics about telemetry itself.
func (t *Telemetry) metrics() []Metric {
	if t.queue == nil {
		return nil
	}
	q := t.queue
	return []Metric{
		CounterBy("dnp.telemetry.spans", "{span}", "Spans, by outcome: exported, failed = the collector did not accept them, dropped = too many waited.",
			"outcome", func(observe func(string, uint64)) {
				observe("exported", q.exported.Load())
				observe("failed", q.failed.Load())
				observe("dropped", q.dropped.Load())
			}),
		Counter("dnp.telemetry.traces.limited", "{trace}", "Updates that were sampled but not traced, because there were too many in that second.",
			t.tracer.refused.Load),
	}
}

// Close sends what is left, for at most closeTimeout, and ends all exports. It does nothing
// for nil.
func (t *Telemetry) Close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	// Errors are ignored: spans are counted, and log lines are on standard error as well.
	if t.traces != nil {
		_ = t.traces.Shutdown(ctx)
	}
	if t.logs != nil {
		_ = t.logs.Shutdown(ctx)
	}
	if t.provider != nil {
		_ = t.provider.Shutdown(ctx)
	}
}

// tracesVariable chooses the exporter of spans.
const tracesVariable = "OTEL_TRACES_EXPORTER"

// wanted reports whether the environment asks for a signal to be exported. An unset
// variable means no, although the standard says yes: a program that was just started must
// not look for a collector. An endpoint alone asks for spans. Metrics need their own
// variable, because /metrics has them.
func wanted(variable string) bool {
	if strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") {
		return false
	}
	switch name := os.Getenv(variable); strings.TrimSpace(name) {
	case "none", "prometheus": // /metrics is always served
		return false
	case "":
		return name == "" && variable == tracesVariable &&
			(os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "")
	}
	return true
}

// exporter returns what sends a signal to the collector. It reports false if the
// environment does not ask for that, or with an error.
func exporter[E, O any](variable string, open func(context.Context, ...O) (E, error)) (e E, ok bool, err error) {
	if !wanted(variable) {
		return e, false, nil
	}
	if e, err = open(context.Background()); err != nil {
		return e, false, fmt.Errorf("%s or the protocol of its exporter: %w", variable, err)
	}
	return e, true, nil
}

// newResource returns the attributes of this process. OTEL_RESOURCE_ATTRIBUTES and
// OTEL_SERVICE_NAME win over the others.
func newResource(service, node string) (*resource.Resource, error) {
	attributes := []attribute.KeyValue{
		attribute.String("service.name", service),
		attribute.String("service.namespace", "dnprelay"),
		attribute.String("service.instance.id", node),
		attribute.String("service.version", version.Short()),
	}
	res, err := resource.New(context.Background(), resource.WithAttributes(attributes...), resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("OTEL_RESOURCE_ATTRIBUTES: %w", err)
	}
	return res, nil
}

// Logger returns log with two additions: lines that belong to a sampled update carry its
// trace_id and span_id, and the collector receives all lines that log writes if
// OTEL_LOGS_EXPORTER asks for that.
func (t *Telemetry) Logger(log *slog.Logger) *slog.Logger {
	if t == nil || t.traces == nil && t.logs == nil {
		return log
	}
	base := log.Handler()
	var h slog.Handler = lineHandler{base, base, true}
	if t.logs != nil {
		h = slog.NewMultiHandler(h, lineHandler{otelslog.NewHandler(scope, otelslog.WithLoggerProvider(t.logs)), base, false})
	}
	return slog.New(h)
}

// A lineHandler takes the lines that level takes. With ids it adds those of the span in the
// context of a line.
type lineHandler struct {
	slog.Handler
	level slog.Handler
	ids   bool
}

func (h lineHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return h.level.Enabled(ctx, l)
}

func (h lineHandler) Handle(ctx context.Context, r slog.Record) error {
	if c := trace.SpanContextFromContext(ctx); h.ids && c.IsValid() {
		r = r.Clone()
		r.AddAttrs(slog.String("trace_id", c.TraceID().String()), slog.String("span_id", c.SpanID().String()))
	}
	return h.Handler.Handle(ctx, r)
}

func (h lineHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return lineHandler{h.Handler.WithAttrs(attrs), h.level, h.ids}
}

func (h lineHandler) WithGroup(name string) slog.Handler {
	return lineHandler{h.Handler.WithGroup(name), h.level, h.ids}
}
