//go:build linux

package nearby

import (
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/bench"
)

// BenchmarkTick measures what the generator does in a tick of the default load besides receiving: objects move, messages are
// written, and bands are worked out.
func BenchmarkTick(b *testing.B) {
	l := &Load{States: 10_000, Clients: 500, Hz: 20, Side: 4000, Bands: []Band{{Within: 100}, {Within: 300, Rate: 5}, {Within: 600, Rate: 1}}, Seed: 1}
	w := newWorld(l)
	v := newWatch(l, w)
	for i := range v.clients {
		v.clients[i].eye = i
	}
	per := func(name string, tick func()) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				tick()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*l.States), "ns/change")
		})
	}
	per("step", w.step)
	var message []byte
	per("messages", func() {
		for part := range l.parts() {
			first, end := l.span(part)
			message = bench.AppendMessage(message, first, end, func(b []byte, i int) []byte { return appendSet(b, w, i) })
		}
	})
	per("step and compare", func() {
		w.step()
		v.tick = w.tick
		v.compare(time.Time{}, 0, l.Clients)
	})
}
