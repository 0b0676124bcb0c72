package replication

import (
	"fmt"
	"runtime"
	"testing"
	"time"
)

// TestMemory measures the memory of a state and a value in a store and in a replica. The bounds
// are a fifth above the figures in RESULTS.md.
func TestMemory(t *testing.T) {
	const few, many = 1, 33
	storeFew, replicaFew := memoryOf(t, func(i int) Op { return floats(i, few) })
	storeMany, replicaMany := memoryOf(t, func(i int) Op { return floats(i, many) })
	storeMoving, replicaMoving := memoryOf(t, func(i int) Op { return moving(i, 0) })
	perValue := func(least, most float64) float64 { return (most - least) / (many - few) }
	for _, m := range []struct {
		what       string
		bytes, max float64
	}{
		{"state of one float32 in a store", storeFew, memoryStore},
		{"state of one float32 in a replica", replicaFew, memoryReplica},
		{"further float32 in a store", perValue(storeFew, storeMany), memoryValue},
		{"further float32 in a replica", perValue(replicaFew, replicaMany), memoryValue},
		{"state of position and rotation in a store", storeMoving, memoryStore + 40},
		{"state of position and rotation in a replica", replicaMoving, memoryReplica + 40},
	} {
		t.Logf("%6.1f bytes for a %s", m.bytes, m.what)
		if m.bytes > m.max {
			t.Errorf("a %s takes %.1f bytes, want at most %.0f", m.what, m.bytes, m.max)
		}
	}
}

// Bounds in bytes.
const (
	memoryStore   = 830
	memoryReplica = 640
	memoryValue   = 5
)

// TestMemoryOfThePast measures the ring of a store whose states all move.
func TestMemoryOfThePast(t *testing.T) {
	const rate = 20
	s := newStoreTest(t, Limits{})
	for i := range benchStates {
		s.ok(moving(i, 0))
	}
	for turn := range 10 * rate {
		var ops []Op
		for i := range benchStates {
			ops = append(ops, moveOp(i, byte(1+turn%2)))
		}
		s.now = s.now.Add(time.Second / rate)
		s.Publish(s.now, Publish{Ops: ops, Atomic: true})
		s.Advance(s.now)
	}
	perUpdate := float64(s.batch.ring.bytes) / (ringAge.Seconds() * rate * benchStates)
	t.Logf("%d bytes in the ring for %d states of position and rotation at %d Hz, %.1f bytes for each update of the last %v",
		s.batch.ring.bytes, benchStates, rate, perUpdate, ringAge)
	if s.batch.ring.bytes > ringBytes || perUpdate > 40 {
		t.Errorf("%d bytes in the ring, %.1f for each update; want at most %d and 40", s.batch.ring.bytes, perUpdate, ringBytes)
	}
}

// floats is a put of a state with n float32.
func floats(i, n int) Op {
	op := Op{Kind: OpPut, Key: fmt.Sprint("m", i)}
	for range n {
		op.Values = append(op.Values, PutValue{ValueDef: ValueDef{Type: typ("float32")}, Value: Encoded{typ("float32"), make([]byte, 4)}})
	}
	return op
}

// memoryOf returns the bytes of one state in a store, without the ring, and in a replica.
func memoryOf(t *testing.T, put func(i int) Op) (store, replica float64) {
	const n = 4000
	before := heapBytes()
	s := newStoreTest(t, Limits{})
	for i := range n {
		s.ok(put(i))
		s.now = s.now.Add(10 * time.Millisecond)
		s.Advance(s.now)
	}
	s.now = s.now.Add(time.Minute)
	s.TakeDirty(nil, n)
	s.batch.ring = ring{}
	filled := heapBytes()
	r := NewReplica("s", quiet{})
	q, _ := r.Advance(s.now)
	for _, p := range s.Repair(s.now, q) {
		r.ApplyReply(s.now, p)
	}
	all := heapBytes()
	runtime.KeepAlive(s)
	if r.Len() != n {
		t.Fatalf("the replica has %d states, want %d", r.Len(), n)
	}
	return float64(filled-before) / n, float64(all-filled) / n
}

func heapBytes() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
