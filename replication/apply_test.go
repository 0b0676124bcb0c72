package replication

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/replication/view"
)

func TestApplyAllocatesNothing(t *testing.T) {
	a, apply := applyLoop(t, 100)
	if n := testing.AllocsPerRun(200, apply); n != 0 {
		t.Fatalf("%v allocations per batch of 100 updates", n)
	}
	if a.stats.BadRecords > 0 || a.stats.Gaps > 0 || a.stats.Batches < 200 {
		t.Fatalf("the loop did not apply its batches: %+v", a.stats)
	}
}

// applyLoop returns a replica and a function that applies one batch with an update of each of n
// states.
func applyLoop(t testing.TB, n int) (*Replica, func()) {
	s := newStoreTest(t, Limits{})
	for i := range n {
		s.ok(moving(i, 0))
	}
	s.Advance(s.now)
	r := NewReplica("s", quiet{})
	q, _ := r.Advance(s.now)
	for _, p := range s.Repair(s.now, q) {
		r.ApplyReply(s.now, p)
	}
	s.Advance(s.now)
	var batches [2][]byte
	for i := range batches {
		for j := range n {
			s.ok(moveOp(j, byte(i+1)))
		}
		s.now = s.now.Add(10 * time.Millisecond)
		for _, o := range s.Advance(s.now) {
			if o.Kind == OutputBatch {
				batches[i] = bytes.Clone(o.Data)
			}
		}
	}
	i := 0
	return r, func() {
		b := batches[i%2]
		i++
		h, _, _ := view.Parse(b)
		h.Seq, h.Prev = r.seq+1, r.seq
		h.Append(b[:0])
		r.Apply(s.now, b)
	}
}

// moving is a put of a state of position and rotation, 28 bytes.
func moving(i int, v byte) Op {
	pos, rot := bytes.Repeat([]byte{v}, 12), bytes.Repeat([]byte{v}, 16)
	return Op{Kind: OpPut, Key: fmt.Sprint("m", i), Values: []PutValue{
		{ValueDef: ValueDef{Name: "pos", Type: typ("vector3f32"), Precision: 0.01}, Value: Encoded{typ("vector3f32"), pos}},
		{ValueDef: ValueDef{Name: "rot", Type: typ("quaternionf32"), Precision: 0.001}, Value: Encoded{typ("quaternionf32"), rot}},
	}}
}

func moveOp(i int, v byte) Op {
	pos, rot := bytes.Repeat([]byte{v * 64}, 12), bytes.Repeat([]byte{v * 64}, 16)
	return set(fmt.Sprint("m", i), "pos", Encoded{typ("vector3f32"), pos}, "rot", Encoded{typ("quaternionf32"), rot})
}

// quiet is an Observer that ignores everything.
type quiet struct{}

func (quiet) Added(*State)                  {}
func (quiet) Changed(*State, netstate.Mask) {}
func (quiet) Described(*State)              {}
func (quiet) Removed(*State)                {}
func (quiet) Groups(string, []string)       {}
func (quiet) Interest(string, *Interest)    {}
func (quiet) Eyes(string)                   {}

// A batch costs one allocation: the message itself, which many receivers share.
func TestEmitAllocatesTheBatch(t *testing.T) {
	s := newStoreTest(t, Limits{})
	var ops [2][]Op
	for i := range 100 {
		s.ok(moving(i, 0))
		ops[0] = append(ops[0], moveOp(i, 1))
		ops[1] = append(ops[1], moveOp(i, 2))
	}
	i := 0
	emit := func() {
		s.now = s.now.Add(10 * time.Millisecond)
		s.Publish(s.now, Publish{Ops: ops[i%2], Atomic: true})
		s.Advance(s.now)
		i++
	}
	emit()
	if n := testing.AllocsPerRun(200, emit); n > 1 {
		t.Fatalf("%v allocations per batch of 100 updates, want 1", n)
	}
	if s.stats.ValuesChanged < 200*200 {
		t.Fatalf("the loop did not emit its batches: %+v", s.stats)
	}
}
