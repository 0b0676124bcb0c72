package telemetry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/internal/version"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/otel"
	otelprometheus "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/metric"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// scope is the name of this program's instruments among those of libraries.
const scope = "github.com/dnprelay/dnprelay"

// closeTimeout is how long Close waits for a collector to take what is left.
const closeTimeout = 3 * time.Second

// complainEvery is the shortest time between two lines about exports that failed.
const complainEvery = time.Minute

// Telemetry is what one process says about itself: metrics, which are always there, and
// traces, metrics and log lines for a collector, which the standard OTEL_*
// variables ask for. A nil Telemetry says nothing; that is for simulations.
type Telemetry struct {
	registry *prometheus.Registry
	provider *sdkmetric.MeterProvider
	traces   *sdktrace.TracerProvider // nil if nobody wants spans
	logs     *sdklog.LoggerProvider   // nil if nobody wants log lines
	queue    *spanQueue
	tracer   *Tracer
}

// Open reads the environment. service is "edge" or "relay", node which one. Errors of
// exports go to log, at most one a minute, and for the whole process; the error returned
// is one line about the variable that contradicts itself. No connection is made before
// there is something to send, and nobody waits for it.
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
	otel.SetErrorHandler(&complaints{log: log})
	log.Info("starting", "service", service, "node", node, "version", version.Long())
	return t, nil
}

func (t *Telemetry) openMetrics(res *resource.Resource) error {
	exporter, err := otelprometheus.New(otelprometheus.WithRegisterer(t.registry), otelprometheus.WithoutScopeInfo())
	if err != nil {
		return err
	}
	options := []sdkmetric.Option{sdkmetric.WithResource(res), sdkmetric.WithReader(exporter)}
	reader, err := metricReader(context.Background())
	if reader != nil && err == nil {
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
	exporter, err := spanExporter(context.Background())
	if exporter == nil || err != nil {
		return err
	}
	t.queue = newSpanQueue(exporter)
	t.traces = sdktrace.NewTracerProvider(sdktrace.WithResource(res), sdktrace.WithSpanProcessor(t.queue), sdktrace.WithSampler(sdktrace.AlwaysSample()))
	t.tracer = &Tracer{tracer: t.traces.Tracer(scope), sample: sample, limit: newLimit(time.Now())}
	return nil
}

func (t *Telemetry) openLogs(res *resource.Resource) error {
	exporter, err := logExporter(context.Background())
	if exporter == nil || err != nil {
		return err
	}
	t.logs = sdklog.NewLoggerProvider(sdklog.WithResource(res), sdklog.WithProcessor(sdklog.NewBatchProcessor(exporter)))
	return nil
}

// Tracer returns what begins traces, nil if nobody wants them.
func (t *Telemetry) Tracer() *Tracer {
	if t == nil {
		return nil
	}
	return t.tracer
}

func (t *Telemetry) meter() metric.Meter { return t.provider.Meter(scope) }

// metrics are those about telemetry itself.
func (t *Telemetry) metrics() []Metric {
	if t.queue == nil {
		return nil
	}
	q, l := t.queue, t.tracer.limit
	return []Metric{
		CounterBy("dnp.telemetry.spans", "{span}", "Spans by what became of them: exported, failed = the collector did not take them, dropped = too many waited.",
			"outcome", func(observe func(string, uint64)) {
				observe("exported", q.exported.Load())
				observe("failed", q.failed.Load())
				observe("dropped", q.dropped.Load())
			}),
		Counter("dnp.telemetry.traces.limited", "{trace}", "Updates that were to be traced, but are not, because there were too many in that second.",
			l.refused.Load),
	}
}

// Close sends what is left, for at most three seconds, and ends everything. It may be
// called for nil.
func (t *Telemetry) Close() {
	if t == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeTimeout)
	defer cancel()
	// What does not get through in time was counted or is on standard error.
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

// complaints are the errors of exports, of which a line a minute is enough.
type complaints struct {
	log  *slog.Logger
	last atomic.Int64 // when the last line was written, Unix nanoseconds
}

// Handle is called by the SDK from any goroutine.
func (c *complaints) Handle(err error) {
	now := time.Now().UnixNano()
	if last := c.last.Load(); now-last >= int64(complainEvery) && c.last.CompareAndSwap(last, now) {
		c.log.Warn("telemetry does not reach its collector; players are not affected", "error", err)
	}
}
