//go:build linux

package nearby

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/testbed/bench"
)

// largeLoad is the default load of the command.
func largeLoad() *Load {
	return &Load{States: 10_000, Clients: 500, Hz: 20, Side: 4000, Bands: []Band{{Within: 100}, {Within: 300, Rate: 5}, {Within: 600, Rate: 1}}, Seed: 1}
}

// BenchmarkTick measures what the publisher does in a tick of the default load: objects move, and messages are written.
func BenchmarkTick(b *testing.B) {
	l := largeLoad()
	w := newWorld(l)
	per := func(name string, tick func()) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				tick()
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*l.States), "ns/change")
		})
	}
	var message []byte
	per("step", w.step)
	per("step and messages", func() {
		w.step()
		for part := range l.parts() {
			first, end := l.span(part)
			message = bench.AppendMessage(message, first, end, func(b []byte, i int) []byte { return appendSet(b, w, i) })
		}
	})
}

// BenchmarkClients measures what the clients of the default load do in a tick besides receiving: they read what an edge sends them of the
// objects in their bands, and their bands are worked out. Objects stand still, but for the tick in their rotation.
func BenchmarkClients(b *testing.B) {
	l := largeLoad()
	w := newWorld(l)
	for i := range w.history {
		w.history[i] = w.history[0]
	}
	v := newWatch(l, w)
	v.begin(newTimeline(l, time.Unix(1000, 0), 1, 0, 0))
	datagrams := edgeDatagrams(l, w, v)
	updates := 0
	tick := func() {
		v.tick++
		now, rotated := v.line.due(v.tick, 0).Add(10*time.Millisecond), rotationOf(v.tick)
		for _, d := range datagrams[v.tick%uint32(l.Hz)] {
			for at := len(d.data) - tickBehind; at >= 0; at -= updateBytes {
				copy(d.data[at:], rotated[:2])
				updates++
			}
			v.Received(now, d.client, d.data)
			v.Updated(now, d.client, d.data[1:])
		}
		v.compare(now, 0, l.Clients)
	}
	for range settled/l.period() + 2*time.Duration(l.Hz) {
		tick()
	}
	v.count(time.Time{}, true)
	updates = 0
	b.ReportAllocs()
	for b.Loop() {
		tick()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(updates), "ns/update")
	b.ReportMetric(float64(updates)/float64(b.N), "updates/op")
	if f := &v.figures; f.latency.Count() == 0 || f.missing > 0 || f.unseen > 0 {
		b.Errorf("%d latencies, %d objects without a link, %d out of sight: want only the first", f.latency.Count(), f.missing, f.unseen)
	}
}

// A sent is a datagram of an edge with updates of a rotation each. The bytes of an update are a LinkId, the number 1, the index of
// the value, and the value, which begins with the tick.
type sent struct {
	client int
	data   []byte
}

const (
	updateBytes = 2 + 1 + 2 + 8
	tickBehind  = 8
	perDatagram = 40
)

// edgeDatagrams links all objects in sight to the clients, and returns what an edge sends in each tick of a second.
func edgeDatagrams(l *Load, w *world, v *watch) [][]sent {
	random := rand.New(rand.NewPCG(1, 1))
	list := make([][]sent, l.Hz)
	for client := range l.Clients {
		v.Linked(v.line.start, client, wire.LinkState{Link: 0x8000, Message: fmt.Append(nil, clientKey, client)})
		id := wire.LinkID(0x8000)
		for _, object := range random.Perm(l.States) {
			band := l.band(beyond, square(w.at(0, client), w.at(0, object)))
			if band == beyond {
				continue
			}
			id++
			v.Linked(v.line.start, client, wire.LinkState{Link: id, Message: fmt.Append(nil, objectKey, object)})
			every := max(1, int(l.fresh(band)))
			for tick := random.IntN(every); tick < l.Hz; tick += every {
				list[tick] = appendUpdate(list[tick], client, id)
			}
		}
	}
	return list
}

// appendUpdate appends an update for a client, to its last datagram unless that is full.
func appendUpdate(list []sent, client int, id wire.LinkID) []sent {
	if n := len(list); n == 0 || list[n-1].client != client || list[n-1].data[1] == perDatagram {
		list = append(list, sent{client, wire.Denetwork.AppendUpdateHead(nil, 0)})
	}
	d := &list[len(list)-1]
	d.data[1]++
	d.data = wire.Denetwork.AppendUpdateLink(d.data, id, 1)
	d.data = wire.Denetwork.AppendUpdateValue(d.data, rotation, valueTypes[rotation], make([]byte, 8))
	return list
}
