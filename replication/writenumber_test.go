package replication

import (
	"math/rand/v2"
	"testing"
	"time"
)

// A numberedEdge is an edge in an epoch of a session.
type numberedEdge struct {
	epoch uint64
	n     uint32
}

// writeBy has the store apply a request, and reports whether it changed the value.
func writeBy(s *storeTest, e numberedEdge, value byte) bool {
	w := Write{Kind: WriteValues, Session: "s1", Client: "c1", State: 1, Epoch: 7, Values: []WriteValue{{Index: 0, Type: typ("uint8"), Value: []byte{value}}}}
	w.Number, w.Wide = WriteNumbers(e.epoch, e.n)
	s.Write(s.now, w)
	s.now = s.now.Add(time.Second)
	s.Advance(s.now)
	return s.states.byNumber[1].Values.Value(0)[0] == value
}

func newNumberedStore(t *testing.T) *storeTest {
	s := newStoreTest(t, Limits{})
	op := tower("a", u8(1), u8(2), str("x"))
	op.HasAccess, op.Access = true, Access{Kind: AccessWriters, Writers: []string{"c1"}}
	s.ok(op)
	return s
}

// TestWriteOrder: the holder applies a write of a session if it is later than the last one that
// it applied, however often the session moved meanwhile, and however much an edge wrote.
func TestWriteOrder(t *testing.T) {
	for _, c := range []struct {
		why        string
		last, next numberedEdge
		want       bool
	}{
		{"the next request", numberedEdge{1, 1}, numberedEdge{1, 2}, true},
		{"a repetition", numberedEdge{1, 2}, numberedEdge{1, 2}, false},
		{"a late one", numberedEdge{1, 2}, numberedEdge{1, 1}, false},
		{"the next edge", numberedEdge{1, 9}, numberedEdge{2, 1}, true},
		{"the edge before", numberedEdge{2, 1}, numberedEdge{1, 9}, false},
		{"after 126 moves", numberedEdge{1, 1}, numberedEdge{127, 1}, true},
		{"after 127 moves", numberedEdge{1, 1}, numberedEdge{128, 1}, true},
		{"after 128 moves", numberedEdge{1, 1}, numberedEdge{129, 1}, true},
		{"after 200 moves", numberedEdge{1, 1}, numberedEdge{201, 1}, true},
		{"after 256 moves", numberedEdge{1, 1}, numberedEdge{257, 1}, true},
		{"after 1,000 moves", numberedEdge{300, 5}, numberedEdge{1300, 1}, true},
		{"a repetition after 300 moves", numberedEdge{300, 2}, numberedEdge{300, 2}, false},
		{"128 moves ago", numberedEdge{129, 1}, numberedEdge{1, 1}, false},
		{"100 moves ago", numberedEdge{201, 1}, numberedEdge{101, 9}, false},
		{"1,000 moves ago", numberedEdge{1300, 1}, numberedEdge{300, 9}, false},
		{"an edge that wrote more than 2^24 times", numberedEdge{1, 1<<24 - 1}, numberedEdge{1, 1 << 24}, true},
		{"the edge behind it", numberedEdge{1, 1<<24 + 9}, numberedEdge{2, 1}, true},
		{"the edge before it", numberedEdge{2, 1<<24 + 9}, numberedEdge{1, 9}, false},
		{"such an edge at last", numberedEdge{9, 1<<32 - 2}, numberedEdge{9, 1<<32 - 1}, true},
		{"123 moves before it", numberedEdge{250, 1 << 27}, numberedEdge{127, 9}, false},
	} {
		s := newNumberedStore(t)
		if !writeBy(s, c.last, 50) {
			t.Fatalf("%s: the first write of the session is dropped", c.why)
		}
		if got := writeBy(s, c.next, 51); got != c.want {
			t.Errorf("%s: behind request %+v the holder applies %+v: %v, want %v", c.why, c.last, c.next, got, c.want)
		}
	}
}

// TestWriteOrderTwin compares the holder with one that compares epochs and counts in full.
func TestWriteOrderTwin(t *testing.T) { seeds(t, checkWriteOrder) }

func checkWriteOrder(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(3, seed))
	s := newNumberedStore(t)
	var last numberedEdge
	epochs := []uint64{1, 1, 2, 50, 120, 200, 1000}
	counts := []uint32{1, 2, 3, 1 << 20, 1 << 24, 1 << 26}
	for i := range 3_000 {
		next := numberedEdge{epoch: last.epoch, n: last.n + counts[random.IntN(len(counts))]}
		switch random.IntN(3) {
		case 0: // the session moves
			next = numberedEdge{epoch: last.epoch + epochs[random.IntN(len(epochs))], n: counts[random.IntN(len(counts))]}
		case 1: // an old request
			next = numberedEdge{epoch: last.epoch - random.Uint64N(min(last.epoch+1, numberEpochMax)), n: 1 + random.Uint32N(1<<24-1)}
		}
		want := next.epoch > last.epoch || next.epoch == last.epoch && next.n > last.n
		if got := writeBy(s, next, byte(i)); got != want {
			t.Fatalf("step %d: behind request %+v the holder applies %+v: %v, want %v", i, last, next, got, want)
		}
		if want {
			last = next
		}
	}
}
