//go:build linux

package nearby

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
	"github.com/x448/float16"
)

// TestOps checks that the relay takes what the publisher says, and reads the places and ticks that it means.
func TestOps(t *testing.T) {
	l := testLoad()
	w := newWorld(l)
	parse := func(op []byte) *replication.Op {
		p, refused := payload.JSON.Parse(op, "")
		if refused != nil || p.Ops[0].Err != nil {
			t.Fatalf("%s: %v %v", op, refused, p.Ops[0].Err)
		}
		return &p.Ops[0]
	}
	if op := parse(appendInterest(nil, l)); op.Kind != replication.OpInterest {
		t.Errorf("the op of the interest is %v", op.Kind)
	}
	if op := parse(appendPut(nil, w, 3, true)); op.Key != "s3" || len(op.Values) != 2 || op.HasAudience || op.InterestName != interestName {
		t.Errorf("the put of an object says %+v", op)
	}
	if op := parse(appendPut(nil, w, 3, false)); op.HasInterest || !op.HasAudience || op.Audience.Includes("c", nil) {
		t.Error("the put of an object without interest has an audience or an interest")
	}
	ops := append(append([]byte(`{"ops":[`), appendPlayer(nil, "c1", 2)...), `]}`...)
	if p, refused := payload.JSON.Parse(ops, ""); refused != nil || len(p.Ops) != 2 || p.Ops[0].Err != nil || p.Ops[1].Err != nil {
		t.Errorf("%s: %v", ops, refused)
	}
	for range 3 * cycle {
		w.step()
	}
	op := parse(appendSet(nil, w, 7))
	place, _, err := op.Sets[0].Value.AppendValue(nil, valueTypes[0])
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []float32{w.at(w.tick, 7).x, 0, w.at(w.tick, 7).z} {
		if got := float16.Frombits(uint16(place[2*i]) | uint16(place[2*i+1])<<8).Float32(); got != want {
			t.Errorf("component %d of a place is %v, want %v", i, got, want)
		}
	}
	turned, _, err := op.Sets[1].Value.AppendValue(nil, valueTypes[rotation])
	if err != nil {
		t.Fatal(err)
	}
	for _, last := range []uint32{w.tick, w.tick + 1, w.tick + cycle - 1} {
		if n, ok := tickOf(turned, last); !ok || n != w.tick {
			t.Errorf("in tick %d a value of tick %d is of %d, %v", last, w.tick, n, ok)
		}
	}
}

// A transcript is a watch whose clients receive what a test says, while everything stands still until the test moves it.
type transcript struct {
	t   *testing.T
	v   *watch
	now time.Time
}

func newTranscript(t *testing.T) *transcript {
	l := testLoad()
	w := newWorld(l)
	s := &transcript{t, newWatch(l, w), time.Unix(1000, 0)}
	for i := range w.walkers {
		w.walkers[i] = walker{x: -190, z: -190} // all but those that a test places are far away
	}
	s.v.line = newTimeline(l, s.now, 1, 0, 0)
	s.v.world.walkers[0] = walker{x: -100, z: 100}
	s.v.Linked(s.now, 0, wire.LinkState{Link: 0x8000, Message: []byte("me0")})
	return s
}

// to places an object so far from the first client. Objects of a run do not jump, so the client looks at all again.
func (s *transcript) to(object int, distance float64) {
	s.v.world.walkers[object] = walker{x: -100 + distance, z: 100}
	c := &s.v.clients[0]
	c.searchAt = 0
	for i := range c.around {
		c.around[i].due = 0
	}
}

// ticks lets ticks pass.
func (s *transcript) ticks(n int) {
	for range n {
		s.v.world.step()
		s.v.tick = s.v.world.tick
		s.now = s.v.line.due(s.v.tick, 0)
		s.v.compare(s.now, 0, len(s.v.clients))
	}
}

// link offers the first client a link to an object, with the values of a tick.
func (s *transcript) link(id wire.LinkID, object int, tick uint32) {
	b := wire.AppendLinkStateHead(nil, wire.LinkState{Link: id, Message: fmt.Append(nil, objectKey, object)}, 2)
	b = wire.AppendTypedValue(b, valueTypes[0], make([]byte, 6))
	b = wire.AppendTypedValue(b, valueTypes[1], rotationOf(tick))
	m, err := wire.ParseLinkState(b[1:])
	if err != nil {
		s.t.Fatal(err)
	}
	s.v.Linked(s.now, 0, m)
}

func rotationOf(tick uint32) []byte {
	bits := uint16(float16.Fromfloat32(float32(tick % cycle)))
	return []byte{byte(bits), byte(bits >> 8), 0, 0, 0, 0, 0, 0}
}

// update sends the first client values of a tick, so much after the tick.
func (s *transcript) update(id wire.LinkID, tick uint32, after time.Duration) {
	b := wire.Denetwork.AppendUpdateHead(nil, 1)
	b = wire.Denetwork.AppendUpdateLink(b, id, 1)
	b = wire.Denetwork.AppendUpdateValue(b, rotation, valueTypes[rotation], rotationOf(tick))
	now := s.v.line.due(tick, 0).Add(after)
	s.v.Received(now, 0, b)
	s.v.Updated(now, 0, b[1:])
}

func (s *transcript) want(what string, got, want any) {
	s.t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		s.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// The object of these transcripts is of the first part of a tick, as the eye is.
const object = 1

// TestWatchBands compares the bands of a watch, which looks at few pairs, with those of a twin that looks at all in each tick.
func TestWatchBands(t *testing.T) {
	l := testLoad()
	l.States, l.Clients, l.Side = 150, 5, 300
	w := newWorld(l)
	v := newWatch(l, w)
	twin := make([]uint8, l.Clients*l.States)
	for i := range twin {
		twin[i] = beyond
	}
	for i := range v.clients {
		v.clients[i].eye = i
	}
	looked, crossings := 0, 0
	for range 4000 {
		w.step()
		v.tick = w.tick
		for i := range v.clients {
			for _, a := range v.clients[i].around {
				if a.due <= v.tick {
					looked++
				}
			}
		}
		v.compare(time.Time{}, 0, l.Clients)
		for i := range v.clients {
			eye := w.at(w.tick, v.clients[i].eye)
			for object := range l.States {
				at := i*l.States + object
				was := twin[at]
				if twin[at] = l.band(was, square(eye, w.at(w.tick, object))); twin[at] != was {
					crossings++
				}
				p := v.pair(i, object)
				if p.band != twin[at] {
					t.Fatalf("tick %d: client %d has object %d in band %d, want %d", w.tick, i, object, p.band, twin[at])
				}
				p.crossed = 0 // each tick looks at crossings that no client shows yet
			}
		}
	}
	if all := 4000 * len(twin); looked > all/5 || crossings < 1000 {
		t.Errorf("%d of %d pairs were looked at because their time had come, with %d crossings: want at most a fifth, or nothing is spared, and many crossings", looked, all, crossings)
	}
}

func TestWatchLatency(t *testing.T) {
	s := newTranscript(t)
	s.to(object, 10)
	s.link(0x8001, object, 0)
	s.ticks(20)
	s.v.count(s.now, true)
	s.ticks(1)
	s.update(0x8001, 21, 7*time.Millisecond)
	s.update(0x8001, 21, 9*time.Millisecond)
	f := &s.v.figures
	s.want("updates that are newer", f.updates, 1)
	s.want("repeats", f.repeats, 1)
	s.want("latencies", f.latency.Count(), 1)
	s.want("the latency", f.latency.Quantile(1), 7*time.Millisecond)
	s.want("bytes", f.bytes, 2*(1+1+2+1+2+8+udpHeaders))
	s.want("bytes of the client", s.v.clients[0].bytes, f.bytes)
	s.want("bytes of the repeat", f.again, f.bytes/2)
	s.v.Received(s.now, 0, []byte{byte(wire.CommandReliableLinkState), 0})
	s.v.Received(s.now, 0, []byte{byte(wire.CommandReliableAck), 0, 0})
	s.want("bytes of offers", f.offers, 2+udpHeaders)
	s.want("bytes of the rest", f.rest, 3+udpHeaders)
}

func TestWatchCrossings(t *testing.T) {
	s := newTranscript(t)
	s.ticks(1)
	s.v.pair(0, 0).crossed = 0 // that of its own object does not count
	s.v.count(s.now, true)
	s.to(object, 110)
	s.ticks(1)
	s.now = s.v.line.due(2, 0).Add(80 * time.Millisecond)
	s.link(0x8001, object, 2)
	s.want("time until a link to an object shows that came into sight", s.v.figures.crossings[2].Quantile(1), 80*time.Millisecond)
	s.ticks(5)
	s.to(object, 50)
	s.ticks(1)
	s.update(0x8001, 3, 60*time.Millisecond)
	s.want("crossings that a value shows which is older than the rate of the band", s.v.figures.crossings[1].Count(), 0)
	s.update(0x8001, 8, 90*time.Millisecond)
	s.want("time until a crossing shows", s.v.figures.crossings[1].Quantile(1), 90*time.Millisecond)
	s.to(object, 10)
	s.ticks(10)
	s.v.count(s.now, false)
	s.want("age of a crossing that did not show by the end", s.v.figures.crossings[0].Quantile(1), 9*50*time.Millisecond)
}

// TestWatchWithdraws has an object come inside of a border for a tick, and stay in the gap behind it: that it does not show is no
// failure before it is inside again.
func TestWatchWithdraws(t *testing.T) {
	s := newTranscript(t)
	s.ticks(1)
	s.v.pair(0, 0).crossed = 0 // that of its own object does not count
	s.v.count(s.now, true)
	at := func(distance float64, ticks int) { // without the looks that jumps of a test need
		s.v.world.walkers[object] = walker{x: -100 + distance, z: 100}
		s.ticks(ticks)
	}
	s.to(object, 119.5)
	s.ticks(1)
	at(120.5, 20)
	s.want("the band of an object in the gap", s.v.pair(0, object).band, 2)
	at(119.5, 4)
	s.v.count(s.now.Add(150*time.Millisecond), false)
	s.want("an object that has been inside for 300 ms is not late", s.v.figures.crossings[2].Count(), 0)
	s.v.count(s.now, true)
	s.v.line.counted = 1
	s.link(0x8001, object, s.v.tick)
	s.want("how long it has been inside again when it shows", s.v.figures.crossings[2].Quantile(1), 3*50*time.Millisecond)
	at(120.5, 1)
	s.want("what shows is not pending", s.v.pair(0, object).crossed, 0)
}

func TestWatchAgesAndLinks(t *testing.T) {
	s := newTranscript(t)
	s.to(object, 10)
	s.to(object+1, 10)
	s.link(0x8001, object, 0)
	s.ticks(100)
	s.update(0x8001, 96, 0)
	s.v.count(s.now, true)
	s.ticks(sampleTicks)
	f := &s.v.figures
	s.want("pairs that were looked at", f.samples, 3) // its own object, too
	s.want("of these without a link", f.missing, 2)
	s.want("objects in sight without a link, and all", fmt.Sprint(s.v.lacks()), "2 3")
	if age := f.ages[0].Quantile(0); age < 4*50*time.Millisecond || age > 15*50*time.Millisecond {
		t.Errorf("the value of tick 96 is %v old in ticks 101 to 110", age)
	}
	s.link(0x8001, object, 0)
	s.want("LinkIds after an offer was repeated", s.v.ids-s.v.offered, 0)
	s.v.Received(s.now, 0, wire.LinkDown{Link: 0x8001}.Append(nil))
	s.link(0x8002, object, 0)
	s.want("LinkIds that were used again for the same object", s.v.ids-s.v.offered, 1)
	s.to(object, 200)
	s.ticks(100)
	s.update(0x8002, s.v.tick, 0)
	s.want("updates of objects out of sight", f.unseen, 1)
}

// TestDoubt checks that figures of a system that does nothing are refused, and that bars notice what they are about.
func TestDoubt(t *testing.T) {
	good := func() *Figures {
		return &Figures{
			Updates: 1, LatencyP99: 20, LatencyMax: 30, NATSBytes: 1, NATSRatio: 1, RelayRatio: 1, KiBP95: 50, EdgeCores: 1, CrossingP99: 200, LinkIDs: 9, Pairs: 9,
			Bands: []Band{{Within: 1}}, Crossings: []Crossing{{Count: 1, P99: 200, AgeP99: 50, AgeMax: 75}},
		}
	}
	if err := good().doubt(); err != nil {
		t.Error(err)
	}
	for why, change := range map[string]func(*Figures){
		"received no updates":   func(f *Figures) { f.Updates = 0 },
		"within the inner band": func(f *Figures) { f.LatencyMax = 0 },
		"over NATS":             func(f *Figures) { f.NATSBytes = 0 },
		"closed 3":              func(f *Figures) { f.Closed = 3 },
		"in band 0":             func(f *Figures) { f.Crossings[0].AgeP99 = 0 },
	} {
		f := good()
		change(f)
		if err := f.doubt(); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%v, want an error that says %q", err, why)
		}
	}
	for what, change := range map[string]func(*Figures){
		"KiB/s per client": func(f *Figures) { f.KiBP95 = 97 },
		"edge CPU":         func(f *Figures) { f.EdgeCores = 2.1 },
		"latency":          func(f *Figures) { f.LatencyP99 = 26 },
		"crossing":         func(f *Figures) { f.CrossingP99 = 301 },
		"age":              func(f *Figures) { f.Crossings[0].AgeP99 = 76 },
		"LinkIds":          func(f *Figures) { f.LinkIDs = 10 },
		"objects in sight": func(f *Figures) { f.Missing = 0.01 },
		"updates of":       func(f *Figures) { f.Unseen = 0.01 },
		"NATS":             func(f *Figures) { f.NATSRatio = 1.02 },
		"relay":            func(f *Figures) { f.RelayRatio = 0.98 },
		"":                 func(f *Figures) {},
	} {
		f := good()
		change(f)
		for _, b := range f.bars() {
			if missed := what != "" && strings.HasPrefix(b.what, what); b.met == missed {
				t.Errorf("%s changed: the bar %q is met: %v", what, b.what, b.met)
			}
		}
	}
}

// TestWrite checks that the table names the bars that are missed, and says when the machine was saturated.
func TestWrite(t *testing.T) {
	f := &Figures{
		Updates: 1, LatencyP99: 20, LatencyMax: 30, NATSBytes: 1, NATSRatio: 1, RelayRatio: 1, KiBP95: 50, EdgeCores: 1, CrossingP99: 200, LinkIDs: 9, Pairs: 9,
		Bands: []Band{{Within: 1}}, Crossings: []Crossing{{Count: 1, P99: 200, AgeP99: 50, AgeMax: 75}}, Cores: 2, IdleCores: 0.3,
	}
	for _, c := range []struct {
		change  func()
		has, no string
	}{
		{func() {}, "met all 10 bars", "warning"},
		{func() { f.KiBP95, f.LatencyP99 = 97, 26 }, "missed 2 of 10 bars: KiB/s per client, p95; latency within the inner band, ms, p99\n", "met all"},
		{func() { f.IdleCores, f.OtherCores = 0.19, 0.7 }, "warning: the machine was saturated: 0.19 of its 2 cores were idle, and other programs used 0.70", "the publisher was"},
		{func() { f.LateMax = 120 }, "warning: the publisher was up to 120 ms late\n", "met all"},
	} {
		c.change()
		var b strings.Builder
		if err := Write(&b, f); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), c.has) || strings.Contains(b.String(), c.no) {
			t.Errorf("want %q and no %q:\n%s", c.has, c.no, b.String())
		}
	}
}

// TestPicture checks that the picture is well-formed and has everything.
func TestPicture(t *testing.T) {
	p := picture{side: 400, bands: testLoad().Bands, objects: make([]point, 70), eyes: []int{0, 1, 2}, kib: []float64{1, 50, 100}}
	text := string((&p).svg())
	if n := strings.Count(text, "h1.5"); n != 70 {
		t.Errorf("the picture has %d objects, want 70", n)
	}
	if n := strings.Count(text, `r="3.5"`); n != 3 {
		t.Errorf("the picture has %d clients, want 3", n)
	}
	if n := strings.Count(text, `r="240.0"`); n != 3 { // 120 of 400 at 800 pixels
		t.Errorf("the picture has %d outer bands, want 3", n)
	}
	if _, err := json.Marshal(Figures{picture: &p}); err != nil {
		t.Error(err)
	}
}
