package telemetry

import (
	"context"
	"fmt"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// A Metric is something that can be read at any time. Make one with Counter,
// CounterBy, Gauge or GaugeBy. The read functions are called from goroutines of
// the HTTP server, several at once, and must not block.
type Metric struct {
	name, unit, help string
	register         func(metric.Meter, Metric) error
}

// Counter is a number that only grows. unit is in UCUM: "By", or a noun as in
// "{datagram}".
func Counter(name, unit, help string, read func() uint64) Metric {
	return CounterBy(name, unit, help, "", func(observe func(string, uint64)) { observe("", read()) })
}

// CounterBy is several numbers that only grow, told apart by the attribute key.
// read calls observe once for each value of the attribute, of which there must
// be a fixed, small number.
func CounterBy(name, unit, help, key string, read func(observe func(attribute string, value uint64))) Metric {
	register := func(meter metric.Meter, m Metric) error {
		_, err := meter.Int64ObservableCounter(m.name, metric.WithUnit(m.unit), metric.WithDescription(m.help),
			metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
				read(func(value string, n uint64) { o.Observe(int64(n), label(key, value)) })
				return nil
			}))
		return err
	}
	return Metric{name, unit, help, register}
}

// Gauge is a number that goes up and down.
func Gauge(name, unit, help string, read func() float64) Metric {
	return GaugeBy(name, unit, help, "", func(observe func(string, float64)) { observe("", read()) })
}

// GaugeBy is to Gauge what CounterBy is to Counter.
func GaugeBy(name, unit, help, key string, read func(observe func(attribute string, value float64))) Metric {
	register := func(meter metric.Meter, m Metric) error {
		_, err := meter.Float64ObservableGauge(m.name, metric.WithUnit(m.unit), metric.WithDescription(m.help),
			metric.WithFloat64Callback(func(_ context.Context, o metric.Float64Observer) error {
				read(func(value string, n float64) { o.Observe(n, label(key, value)) })
				return nil
			}))
		return err
	}
	return Metric{name, unit, help, register}
}

func label(key, value string) metric.ObserveOption {
	if key == "" {
		return metric.WithAttributeSet(*attribute.EmptySet())
	}
	return metric.WithAttributeSet(attribute.NewSet(attribute.String(key, value)))
}

func registerAll(meter metric.Meter, list []Metric) error {
	seen := map[string]bool{}
	for _, m := range list {
		if seen[m.name] {
			return fmt.Errorf("metric %s is there twice", m.name)
		}
		seen[m.name] = true
		if err := m.register(meter, m); err != nil {
			return fmt.Errorf("metric %s: %w", m.name, err)
		}
	}
	return nil
}
