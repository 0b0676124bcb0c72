package edge

import (
	"fmt"
	"runtime"
	"testing"
	"time"
)

// TestMemory measures the memory that a worker needs for a state, without the links of its
// clients, which package dnp measures.
func TestMemory(t *testing.T) {
	const states, most = 2000, 1100
	c := newCrowd(t, 1)
	var batches [][]byte
	for i := range states {
		c.now = c.now.Add(10 * time.Millisecond)
		batches = append(batches, c.publish(fmt.Sprintf(
			`{"op":"put","key":"m%d","audience":{"groups":["none"]},"values":[{"type":"vector3f32","value":[0,0,0]},{"type":"quaternionf32","value":[0,0,0,1]}]}`, i)))
	}
	before := heapBytes()
	for _, b := range batches {
		c.worker.live(c.now, "s", b)
	}
	perState := float64(heapBytes()-before) / states
	if n := c.worker.Replica("s").Len(); n != crowdStates+states {
		t.Fatalf("the replica has %d states, want %d", n, crowdStates+states)
	}
	runtime.KeepAlive(batches)
	t.Logf("%.0f bytes for a state of position and rotation in a worker: replica and source", perState)
	if perState > most {
		t.Errorf("a state takes %.0f bytes, want at most %d", perState, most)
	}
}

func heapBytes() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
