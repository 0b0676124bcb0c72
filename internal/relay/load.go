package relay

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/internal/telemetry"
)

// loadsMax is how many spaces a relay names, of those with the most states and of those with the most traffic. Metrics
// have their ranks as labels, and not their names, of which there is any number.
const loadsMax = 10

// loadInterval is the time over which the traffic of a space is measured.
const loadInterval = 10 * time.Second

// A SpaceLoad is what a space costs its relay.
type SpaceLoad struct {
	Space          string `json:"space"`
	Shard          int    `json:"shard"`
	States         uint64 `json:"states"`
	BytesPerSecond uint64 `json:"bytes_per_second"` // of the batches that the relay published, over 10 s
}

// Loads are the spaces that cost the most, in order.
type Loads struct {
	ByStates []SpaceLoad `json:"by_states"`
	ByBytes  []SpaceLoad `json:"by_bytes"`
}

// top returns the first loadsMax loads of list in both orders, and changes the order of list.
func top(list []SpaceLoad) (l Loads) {
	first := func(value func(*SpaceLoad) uint64) []SpaceLoad {
		slices.SortFunc(list, func(a, b SpaceLoad) int {
			return cmp.Or(cmp.Compare(value(&b), value(&a)), strings.Compare(a.Space, b.Space))
		})
		return slices.Clone(list[:min(len(list), loadsMax)])
	}
	l.ByStates = first(func(s *SpaceLoad) uint64 { return s.States })
	l.ByBytes = first(func(s *SpaceLoad) uint64 { return s.BytesPerSecond })
	return l
}

// A meter measures the traffic of a space.
type meter struct {
	at    time.Time // of the newest measurement
	bytes uint64    // published until then
	rate  uint64    // bytes per second before it
}

// measure notes how many bytes were published so far, at most once per loadInterval.
func (m *meter) measure(now time.Time, bytes uint64) {
	passed := now.Sub(m.at)
	switch {
	case m.at.IsZero(): // it may have published anything before
		m.at, m.bytes = now, bytes
	case passed >= loadInterval:
		m.rate = uint64(float64(bytes-m.bytes) / passed.Seconds())
		m.at, m.bytes = now, bytes
	}
}

// measure measures the traffic of the spaces of a worker.
func (w *Worker) measure(now time.Time) {
	for _, sp := range w.spaces {
		sp.meter.measure(now, sp.store.Stats().BatchBytes)
	}
}

// Loads returns the spaces of a worker that cost the most, for a caller that turns it.
func (w *Worker) Loads() Loads {
	list := make([]SpaceLoad, 0, len(w.spaces))
	for _, sp := range w.spaces {
		list = append(list, SpaceLoad{sp.name, sp.owner.shard, sp.store.Stats().States, sp.meter.rate})
	}
	return top(list)
}

// Loads asks every worker for the spaces that cost the most. It fails when ctx ends before all have answered.
func (r *Relay) Loads(ctx context.Context) (Loads, error) {
	answers := make(chan Loads, len(r.workers))
	for _, w := range r.workers {
		w.commands.Put(func(time.Time) { answers <- w.Loads() })
	}
	var all Loads
	for range r.workers {
		select {
		case l := <-answers:
			all.ByStates, all.ByBytes = append(all.ByStates, l.ByStates...), append(all.ByBytes, l.ByBytes...)
		case <-ctx.Done():
			return Loads{}, ctx.Err()
		}
	}
	return Loads{top(all.ByStates).ByStates, top(all.ByBytes).ByBytes}, nil
}

// loadMetrics returns the loads of the spaces that cost the most, by rank.
func (r *Relay) loadMetrics() []telemetry.Metric {
	cache := &telemetry.Cache[Loads]{Read: r.Loads}
	byRank := func(name, unit, help string, list func(*Loads) []SpaceLoad, value func(*SpaceLoad) uint64) telemetry.Metric {
		return telemetry.GaugeBy("dnp.relay.space."+name, unit, help, "rank", func(observe func(string, float64)) {
			loads := cache.Get()
			for i, s := range list(&loads) {
				observe(strconv.Itoa(i+1), float64(value(&s)))
			}
		})
	}
	return []telemetry.Metric{
		byRank("states", "{state}", "States of the ten spaces of this relay that have the most, by rank; /debug/spaces names them.",
			func(l *Loads) []SpaceLoad { return l.ByStates }, func(s *SpaceLoad) uint64 { return s.States }),
		byRank("rate", "By/s", "Bytes of batches that this relay publishes per second for each of the ten spaces with the most, by rank; /debug/spaces names them.",
			func(l *Loads) []SpaceLoad { return l.ByBytes }, func(s *SpaceLoad) uint64 { return s.BytesPerSecond }),
	}
}
