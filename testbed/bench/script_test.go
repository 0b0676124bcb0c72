//go:build linux

package bench

import (
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
)

// TestScript publishes ticks as the relay reads them and has clients tell which tick
// each value is of. The last tick is far beyond a cycle of half floats and of sines.
func TestScript(t *testing.T) {
	for _, c := range []Case{
		{States: 3, Hz: 20}, {States: 3, Hz: 20, Half: true}, {States: 3, Hz: 20, Model: ModelSine}, {States: 3, Hz: 20, Model: ModelTenth},
	} {
		s := newScript(&c)
		told := 0
		for n := uint32(1); n < 3*cycleHalf; n++ {
			for i := range c.States {
				op := s.appendSet(nil, i, n)
				if len(op) > 0 {
					told += checkOp(t, s, op, n)
				}
			}
		}
		want := 3 * valuesPerState * (3*cycleHalf - 1)
		if c.Model == ModelTenth {
			want /= 10
		}
		if told < want-valuesPerState*3 || told > want+valuesPerState*3 {
			t.Errorf("%s: %d values told, want %d", c.Model, told, want)
		}
	}
}

// checkOp parses an op and returns how many values it has.
func checkOp(t *testing.T, s *script, op []byte, n uint32) int {
	t.Helper()
	p, refused := payload.JSON.Parse(op, "")
	if refused != nil || len(p.Ops) != 1 || p.Ops[0].Kind != replication.OpSet {
		t.Fatalf("%s: %v", op, refused)
	}
	for _, v := range p.Ops[0].Sets {
		typ := s.types[v.Name[0]-'0']
		b, _, err := v.Value.AppendValue(nil, typ)
		if err != nil {
			t.Fatalf("%s: %v", op, err)
		}
		for _, last := range []uint32{n, n + 1, n + 100} {
			if got, ok := s.tick(typ, b, last); !ok || got != n {
				t.Fatalf("%s is of tick %d, clients at tick %d read %d %v", op, n, last, got, ok)
			}
		}
	}
	return len(p.Ops[0].Sets)
}

// TestPut checks that the relay takes what the publisher begins with.
func TestPut(t *testing.T) {
	c := Case{States: 100, Links: 10, Model: ModelSine, Half: true}
	p, err := payload.JSON.Parse(newScript(&c).appendPut(nil, 57), "")
	if err != nil || p.Ops[0].Err != nil {
		t.Fatal(err, p.Ops[0].Err)
	}
	op := p.Ops[0]
	if op.Key != "s57" || len(op.Values) != valuesPerState || !op.Audience.Includes("x", []string{"g5"}) || op.Audience.Includes("x", []string{"g4"}) {
		t.Errorf("put says %+v", op)
	}
}

func TestOffered(t *testing.T) {
	for _, c := range []struct {
		c      Case
		active int
		want   float64
	}{
		{Case{States: 100, Hz: 20, Clients: 200}, 100, 400_000},
		{Case{States: 100, Hz: 20, Clients: 200}, 10, 40_000},
		{Case{States: 1000, Hz: 10, Clients: 100, Links: 50}, 1000, 50_000},
		{Case{States: 1000, Hz: 10, Clients: 30, Links: 50}, 1000, 15_000},   // groups 0 to 9 have two clients
		{Case{States: 10_000, Hz: 10, Clients: 50, Links: 50}, 1000, 10_000}, // only groups 0 to 19 change
	} {
		if got := c.c.offered(c.active); got != c.want {
			t.Errorf("%s with %d active: %v updates/s, want %v", c.c.String(), c.active, got, c.want)
		}
	}
}

func TestTimeline(t *testing.T) {
	start := time.Unix(1000, 0)
	line := timeline{start: start, first: 7, period: 50 * time.Millisecond}
	for _, c := range []struct {
		after time.Duration
		last  uint32
	}{{-time.Second, 7}, {0, 7}, {49 * time.Millisecond, 7}, {50 * time.Millisecond, 8}, {time.Second, 27}} {
		if got := line.last(start.Add(c.after)); got != c.last {
			t.Errorf("after %v: newest tick %d, want %d", c.after, got, c.last)
		}
	}
	if got := line.due(5); got != start.Add(-100*time.Millisecond) {
		t.Errorf("tick 5, two before the first, is due at %v", got)
	}
}

// encoded returns value v in tick n as it is on the wire.
func encoded(t *testing.T, s *script, v int, n uint32) []byte {
	t.Helper()
	p, refused := payload.JSON.Parse(s.appendSet(nil, 0, n), "")
	if refused != nil {
		t.Fatal(refused)
	}
	b, _, err := p.Ops[0].Sets[v].Value.AppendValue(nil, s.types[v])
	if err != nil {
		t.Fatal(err)
	}
	return b
}
