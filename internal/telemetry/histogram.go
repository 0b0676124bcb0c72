package telemetry

import (
	"time"

	"go.opentelemetry.io/otel/metric"
)

// secondsBounds are the buckets of times, in seconds: those of games, whose frames take 16
// or 33 ms.
var secondsBounds = []float64{.0005, .001, .002, .005, .01, .016, .033, .05, .1, .25, .5, 1, 2.5}

// A Histogram is a distribution of times. A nil Histogram is none. It is recorded once for
// a batch or a flush, never once for an update, because that costs 170 ns.
type Histogram struct{ h metric.Float64Histogram }

// Record adds a time. If span is not nil, its trace becomes an example of such a time.
func (h *Histogram) Record(d time.Duration, span *Span) {
	if h != nil {
		h.h.Record(span.Context(), d.Seconds())
	}
}

// Histogram returns a new distribution of times that is shown at /metrics.
func (t *Telemetry) Histogram(name, help string) *Histogram {
	if t == nil {
		return nil
	}
	h, err := t.meter().Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(help), metric.WithExplicitBucketBoundaries(secondsBounds...))
	if err != nil {
		panic("telemetry: histogram " + name + ": " + err.Error())
	}
	return &Histogram{h}
}
