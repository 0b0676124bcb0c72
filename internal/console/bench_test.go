package console

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/view"
)

// BenchmarkChanges measures what the changes cost that come to a page: 4,000 places of 10,000 states between two frames, as
// when each state moves twice a second. An operation is a frame, with the batches that it tells.
func BenchmarkChanges(b *testing.B) {
	const states, perFrame, perBatch = 10_000, 4_000, 500
	r := newRig(b)
	var moves [][]byte // the updates of one batch each
	r.replica.SetWitness(func(w replication.Witnessed) {
		m := w.Record
		if last := len(moves) - 1; last >= 0 && m.Message == view.Update {
			moves[last] = m.Append(moves[last])
		}
	})
	publish := func(op string, from, x int) {
		var ops []string
		for i := from; i < from+perBatch; i++ {
			ops = append(ops, fmt.Sprintf(op, i, x, float32(i)/100, float32(i)/77))
		}
		r.publish(`{"ops":[` + strings.Join(ops, ",") + `]}`)
	}
	for i := 0; i < states; i += perBatch {
		publish(`{"op":"put","key":"npc.%d","values":[{"name":"pos","type":"vector3f32","value":[%d,%g,%g]}]}`, i, 0)
	}
	for x := range 2 { // each move is another place than the one before
		for i := 0; i < 2*perFrame; i += perBatch {
			moves = append(moves, nil)
			publish(`{"op":"set","key":"npc.%d","values":{"pos":[%d,%g,%g]}}`, i, x+1)
		}
	}
	for r.feed.waits() {
		r.feed.frame(nil, position{})
	}
	r.replica.SetWitness(nil)
	epoch, seq := r.replica.Position()
	var batch, frame []byte
	next := 0
	b.ReportAllocs()
	for b.Loop() {
		for range perFrame / perBatch {
			batch = view.Header{Epoch: epoch, Seq: seq + 1, Prev: seq}.Append(batch[:0])
			batch = append(batch, moves[next]...)
			r.replica.Apply(r.now, batch)
			seq++
			next = (next + 1) % len(moves)
		}
		frame = r.feed.frame(frame[:0], position{})
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*perFrame), "ns/change")
	if got := bytes.Count(frame, []byte(",0,[")); got != perFrame {
		b.Fatalf("a frame tells %d changes, want %d", got, perFrame)
	}
}
