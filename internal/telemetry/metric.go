package telemetry

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
)

// A Metric is a number, or several, that can be read at any time. Make one with Counter,
// CounterBy, Gauge or GaugeBy. Goroutines of the HTTP server call the read functions,
// several at once; the functions must not block.
type Metric struct {
	name     string
	register func(metric.Meter) error
}

// Counter is a number that only grows. unit is in UCUM: "By", or a noun as in
// "{datagram}".
func Counter(name, unit, help string, read func() uint64) Metric {
	return CounterBy(name, unit, help, "", func(observe func(string, uint64)) { observe("", read()) })
}

// CounterBy is several numbers that only grow, distinguished by the attribute key. read
// calls observe once for each value of the attribute; the values must be few and fixed.
func CounterBy(name, unit, help, key string, read func(observe func(attribute string, value uint64))) Metric {
	return Metric{name, func(meter metric.Meter) error {
		_, err := meter.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(help),
			metric.WithInt64Callback(func(_ context.Context, o metric.Int64Observer) error {
				read(func(value string, n uint64) { o.Observe(int64(n), label(key, value)) })
				return nil
			}))
		return err
	}}
}

// Gauge is a number that goes up and down.
func Gauge(name, unit, help string, read func() float64) Metric {
	return GaugeBy(name, unit, help, "", func(observe func(string, float64)) { observe("", read()) })
}

// GaugeBy is to Gauge what CounterBy is to Counter.
func GaugeBy(name, unit, help, key string, read func(observe func(attribute string, value float64))) Metric {
	return Metric{name, func(meter metric.Meter) error {
		_, err := meter.Float64ObservableGauge(name, metric.WithUnit(unit), metric.WithDescription(help),
			metric.WithFloat64Callback(func(_ context.Context, o metric.Float64Observer) error {
				read(func(value string, n float64) { o.Observe(n, label(key, value)) })
				return nil
			}))
		return err
	}}
}

// A Group makes metrics that read one set of counters. They name fields of All by their addresses:
//
//	of := telemetry.NewGroup("dnp.edge.", edge.counters)
//	of.Counter("events", "{message}", "Events that were published.", &of.All.Events)
type Group[T any] struct {
	prefix string
	read   func() T

	mu  sync.Mutex // for concurrent scrapes
	All T          // as of the last reading
}

// NewGroup returns a group of metrics whose names begin with prefix.
func NewGroup[T any](prefix string, read func() T) *Group[T] {
	return &Group[T]{prefix: prefix, read: read}
}

// fresh reads the counters for a metric, which looks at them meanwhile.
func (g *Group[T]) fresh(look func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.All = g.read()
	look()
}

// Counter is a counter, or the sum of several.
func (g *Group[T]) Counter(name, unit, help string, counters ...*uint64) Metric {
	return Counter(g.prefix+name, unit, help, func() (sum uint64) {
		g.fresh(func() {
			for _, n := range counters {
				sum += *n
			}
		})
		return sum
	})
}

// Parts are counters by the values of an attribute.
type Parts map[string]*uint64

// Named returns counters whose index has a name.
func Named[N interface {
	~uint8
	String() string
}](counters []uint64) Parts {
	p := make(Parts, len(counters))
	for i := range counters {
		p[N(i).String()] = &counters[i]
	}
	return p
}

// CounterBy is several counters, distinguished by the attribute key.
func (g *Group[T]) CounterBy(name, unit, help, key string, parts ...Parts) Metric {
	return CounterBy(g.prefix+name, unit, help, key, func(observe func(string, uint64)) {
		g.fresh(func() {
			for _, p := range parts {
				for value, n := range p {
					observe(value, *n)
				}
			}
		})
	})
}

// InOut is a CounterBy direction.
func (g *Group[T]) InOut(name, unit, help string, in, out *uint64) Metric {
	return g.CounterBy(name, unit, help, "direction", Parts{"in": in, "out": out})
}

// Gauge is a number, to which number points.
func (g *Group[T]) Gauge(name, unit, help string, number any) Metric {
	v := reflect.ValueOf(number).Elem()
	return Gauge(g.prefix+name, unit, help, func() (n float64) {
		g.fresh(func() { n = v.Convert(reflect.TypeFor[float64]()).Float() })
		return n
	})
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
			return fmt.Errorf("metric %s exists twice", m.name)
		}
		seen[m.name] = true
		if err := m.register(meter); err != nil {
			return fmt.Errorf("metric %s: %w", m.name, err)
		}
	}
	return nil
}

// secondsBounds are the buckets of times, in seconds. They suit games, whose frames take 16
// or 33 ms.
var secondsBounds = []float64{.0005, .001, .002, .005, .01, .016, .033, .05, .1, .25, .5, 1, 2.5}

// A Histogram is a distribution of times. A nil Histogram records nothing. Owners record
// once for a batch or a flush, never once for an update, because a record costs 170 ns.
type Histogram struct{ h metric.Float64Histogram }

// Record adds a time. If span is not nil, its trace becomes an exemplar.
func (h *Histogram) Record(d time.Duration, span *Span) {
	if h != nil {
		h.h.Record(span.Context(), d.Seconds())
	}
}

// Histogram returns a new distribution of times, which /metrics shows.
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

// The numbers of a scrape are at most cacheAge old. A scrape waits at most cacheWait for a
// node; then it shows the last numbers.
const (
	cacheAge  = 250 * time.Millisecond
	cacheWait = time.Second
)

// A Cache keeps a node's counters during a scrape, because every metric reads them
// separately and the node has to ask its goroutines. The mutex is for concurrent scrapes.
type Cache[T any] struct {
	// Read returns the counters, or an error if ctx ended before it had them.
	Read func(ctx context.Context) (T, error)

	mu   sync.Mutex
	at   time.Time
	last T
}

// Get returns the counters, at most cacheAge old if the node answers.
func (c *Cache[T]) Get() T {
	c.mu.Lock()
	defer c.mu.Unlock()
	if time.Since(c.at) > cacheAge {
		ctx, cancel := context.WithTimeout(context.Background(), cacheWait)
		defer cancel()
		if stats, err := c.Read(ctx); err == nil {
			c.last = stats
		}
		c.at = time.Now()
	}
	return c.last
}

// Sum adds every counter of src to the same one of dst. Both are structs of integers,
// arrays of integers and such structs: the sets of counters that each goroutine of a node
// keeps. It finds the fields by reflection, so that it cannot miss a new counter.
func Sum[T any](dst, src *T) { sum(reflect.ValueOf(dst).Elem(), reflect.ValueOf(src).Elem()) }

func sum(dst, src reflect.Value) {
	switch dst.Kind() {
	case reflect.Struct:
		for i := range dst.NumField() {
			sum(dst.Field(i), src.Field(i))
		}
	case reflect.Array:
		for i := range dst.Len() {
			sum(dst.Index(i), src.Index(i))
		}
	case reflect.Int, reflect.Int64:
		dst.SetInt(dst.Int() + src.Int())
	case reflect.Uint64:
		dst.SetUint(dst.Uint() + src.Uint())
	default:
		panic("telemetry: a counter is not an integer: " + dst.Kind().String())
	}
}
