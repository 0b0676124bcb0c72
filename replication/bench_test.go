package replication

import (
	"testing"
	"time"
)

// benchStates states of position and rotation change in every batch.
const benchStates = 100

func BenchmarkApply(b *testing.B) {
	_, apply := applyLoop(b, benchStates)
	b.ReportAllocs()
	for b.Loop() {
		apply()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*benchStates), "ns/update")
}

// BenchmarkPublishAndEmit measures a publish of 100 sets and the batch with their changes.
func BenchmarkPublishAndEmit(b *testing.B) {
	s := newStoreTest(b, Limits{})
	var ops [2][]Op
	for i := range benchStates {
		s.ok(moving(i, 0))
		ops[0] = append(ops[0], moveOp(i, 1))
		ops[1] = append(ops[1], moveOp(i, 2))
	}
	s.Advance(s.now)
	b.ReportAllocs()
	bytes := s.stats.BatchBytes
	for i := 0; b.Loop(); i++ {
		s.now = s.now.Add(10 * time.Millisecond)
		s.Publish(s.now, Publish{Ops: ops[i%2], Atomic: true})
		s.Advance(s.now)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*benchStates), "ns/update")
	b.ReportMetric(float64(s.stats.BatchBytes-bytes)/float64(b.N*benchStates), "B/update")
}

// BenchmarkEmit measures the batch alone: it marks the changes itself.
func BenchmarkEmit(b *testing.B) {
	s := newStoreTest(b, Limits{})
	for i := range benchStates {
		s.ok(moving(i, 0))
	}
	s.Advance(s.now)
	b.ReportAllocs()
	for b.Loop() {
		s.now = s.now.Add(10 * time.Millisecond)
		for _, st := range s.states.all {
			st.dirty.Set(0)
			st.dirty.Set(1)
			s.batch.mark(st)
		}
		s.Advance(s.now)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*benchStates), "ns/update")
}

func BenchmarkRepairEverything(b *testing.B) {
	s := newStoreTest(b, Limits{})
	for i := range 1000 {
		s.ok(moving(i, 0))
	}
	s.Advance(s.now)
	q := (&RepairRequest{Kind: RepairKeyframes, Space: "s"}).append(nil)
	b.ReportAllocs()
	for b.Loop() {
		r := NewReplica("s", quiet{})
		r.Advance(s.now)
		r.ask.id = RequestID(q)
		for _, p := range s.Repair(s.now, q) {
			r.ApplyReply(s.now, p)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*1000), "ns/state")
}
