package telemetry

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/dnprelay/dnprelay/internal/version"
	"go.opentelemetry.io/contrib/exporters/autoexport"
	"go.opentelemetry.io/otel/attribute"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
)

// disabled reports whether the environment wants no OpenTelemetry at all.
func disabled() bool { return strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true") }

// wanted reports whether the environment wants a signal to be sent anywhere. Nothing said is
// no, although it is yes by the standard: a program that was just started must
// not look for a collector.
func wanted(variable string) bool {
	switch strings.TrimSpace(os.Getenv(variable)) {
	case "", "none", "prometheus": // /metrics is there anyway
		return false
	}
	return !disabled()
}

// spanExporter returns where spans go, nil for nowhere. An endpoint alone is enough, since
// nobody gives one in vain; metrics have to be asked for, because they can be had
// at /metrics.
func spanExporter(ctx context.Context) (sdktrace.SpanExporter, error) {
	const variable = "OTEL_TRACES_EXPORTER"
	endpoint := os.Getenv(variable) == "" && !disabled() &&
		(os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != "")
	if !endpoint && !wanted(variable) {
		return nil, nil
	}
	e, err := autoexport.NewSpanExporter(ctx)
	return e, described(variable, err)
}

// metricReader returns what sends metrics, nil for nothing.
func metricReader(ctx context.Context) (sdkmetric.Reader, error) {
	const variable = "OTEL_METRICS_EXPORTER"
	if !wanted(variable) {
		return nil, nil
	}
	r, err := autoexport.NewMetricReader(ctx)
	return r, described(variable, err)
}

// logExporter returns where log lines go besides standard error, nil for nowhere.
func logExporter(ctx context.Context) (sdklog.Exporter, error) {
	const variable = "OTEL_LOGS_EXPORTER"
	if !wanted(variable) {
		return nil, nil
	}
	e, err := autoexport.NewLogExporter(ctx)
	return e, described(variable, err)
}

func described(variable string, err error) error {
	if err != nil {
		return fmt.Errorf("%s or the protocol of its exporter: %w", variable, err)
	}
	return nil
}

// newResource says who this process is. OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME
// win over what it finds itself.
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
