package telemetry

import (
	"slices"
	"strings"
	"testing"
)

// TestProblems reads environments. Each wrong variable has a line, and what is not used has none.
func TestProblems(t *testing.T) {
	for _, c := range []struct {
		why, env string
		want     []string // starts of the problems
	}{
		{"nothing is set", "", nil},
		{"all is well", "OTEL_TRACES_EXPORTER=otlp OTEL_EXPORTER_OTLP_ENDPOINT=http://collector:4318 OTEL_EXPORTER_OTLP_PROTOCOL=grpc " +
			"OTEL_EXPORTER_OTLP_TIMEOUT=500 OTEL_EXPORTER_OTLP_HEADERS=a=b,c=d OTEL_BSP_MAX_QUEUE_SIZE=10 OTEL_METRICS_EXPORTER=prometheus OTEL_TRACES_SAMPLER=always_on", nil},
		{"the SDK reads nothing", "OTEL_SDK_DISABLED=TRUE OTEL_TRACES_EXPORTER=x OTEL_TRACES_SAMPLER=y", nil},
		{"no word", "OTEL_SDK_DISABLED=yes", []string{"OTEL_SDK_DISABLED: want true or false"}},
		{"unknown exporters", "OTEL_TRACES_EXPORTER=jaeger OTEL_METRICS_EXPORTER=otpl OTEL_LOGS_EXPORTER=prometheus",
			[]string{"OTEL_TRACES_EXPORTER: want otlp, console or none, got \"jaeger\"", "OTEL_METRICS_EXPORTER: ", "OTEL_LOGS_EXPORTER: "}},
		{"a sampler, a share and attributes", "OTEL_TRACES_SAMPLER=sometimes OTEL_RESOURCE_ATTRIBUTES=x", []string{"OTEL_RESOURCE_ATTRIBUTES: ", "OTEL_TRACES_SAMPLER: "}},
		{"a share above 1", "OTEL_TRACES_SAMPLER=traceidratio OTEL_TRACES_SAMPLER_ARG=2", []string{"OTEL_TRACES_SAMPLER_ARG: want a number from 0 to 1"}},
		{"an endpoint without a scheme asks for spans", "OTEL_EXPORTER_OTLP_ENDPOINT=collector:4317", []string{"OTEL_EXPORTER_OTLP_ENDPOINT: want http://"}},
		{"the variable of the signal wins", "OTEL_TRACES_EXPORTER=otlp OTEL_EXPORTER_OTLP_ENDPOINT=collector OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=https://c:1", nil},
		{"of an exporter that is not used", "OTEL_TRACES_EXPORTER=console OTEL_EXPORTER_OTLP_ENDPOINT=collector OTEL_EXPORTER_OTLP_PROTOCOL=x", nil},
		{"the rest of the exporter", "OTEL_METRICS_EXPORTER=otlp OTEL_EXPORTER_OTLP_PROTOCOL=http/json OTEL_EXPORTER_OTLP_COMPRESSION=zip " +
			"OTEL_EXPORTER_OTLP_TIMEOUT=5s OTEL_EXPORTER_OTLP_HEADERS=secret OTEL_EXPORTER_OTLP_CERTIFICATE=/nonexistent",
			[]string{"OTEL_EXPORTER_OTLP_PROTOCOL: want grpc or http/protobuf", "OTEL_EXPORTER_OTLP_COMPRESSION: ", "OTEL_EXPORTER_OTLP_TIMEOUT: ", "OTEL_EXPORTER_OTLP_HEADERS: want NAME=VALUE",
				"OTEL_EXPORTER_OTLP_CERTIFICATE: open /nonexistent"}},
		{"numbers", "OTEL_BSP_MAX_QUEUE_SIZE=many OTEL_METRIC_EXPORT_INTERVAL=0", []string{"OTEL_BSP_MAX_QUEUE_SIZE: want a whole number above 0", "OTEL_METRIC_EXPORT_INTERVAL: "}},
	} {
		t.Run(c.why, func(t *testing.T) {
			for _, pair := range strings.Fields(c.env) {
				name, value, _ := strings.Cut(pair, "=")
				t.Setenv(name, value)
			}
			var got []string
			Problems(func(variable, problem string) { got = append(got, variable+": "+problem) })
			if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			if strings.Contains(strings.Join(got, ""), "secret") {
				t.Errorf("a header shows: %q", got)
			}
		})
	}
}
