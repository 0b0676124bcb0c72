package replication

import (
	"fmt"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/replication/view"
)

// FuzzReplica feeds records behind a valid header, and whole messages, to a replica that holds
// states. After any input, keyframes repair the replica.
func FuzzReplica(f *testing.F) {
	s := newStoreTest(f, Limits{})
	s.ok(tower("a", u8(1), u8(2), str("x")))
	s.ok(Op{Kind: OpPut, Key: "many", Values: putValues(manyDefs(200, "uint16"))})
	s.ok(set("a", "hp", u8(2)))
	for range 4 {
		for _, o := range s.Advance(s.now) {
			if o.Kind == OutputBatch {
				_, records, _ := view.Parse(o.Data)
				f.Add(records, false)
				f.Add(o.Data, true)
			}
		}
		s.ok(set("a", "hp", u8(byte(s.batch.seq)), "owner", Null{}))
		s.ok(tower(fmt.Sprint("b", s.batch.seq)))
		s.now = s.now.Add(time.Second)
	}
	for _, p := range s.Repair(s.now, (&RepairRequest{Kind: RepairKeyframes, Space: "s"}).append(nil)) {
		f.Add(p, true)
	}
	f.Fuzz(func(t *testing.T, p []byte, whole bool) {
		r := joined(t)
		r.now = r.now.Add(time.Second)
		if whole {
			r.Apply(r.now, p)
			r.ApplyReply(r.now, p)
		} else {
			r.Apply(r.now, append(view.Header{Epoch: 7, Seq: 2, Prev: 1}.Append(nil), p...))
		}
		if r.top > 7 {
			return // the message belongs to a later holder than this store
		}
		// If the message invented a position, further batches make it true.
		for r.store.batch.seq < min(r.known, 4) {
			r.publish(set("a", "hp", u8(byte(r.store.batch.seq+10))))
		}
		if r.known > r.store.batch.seq {
			return
		}
		r.now = r.now.Add(time.Second)
		r.broken = true
		r.repair()
		st := r.store.states.byKey["a"]
		if got := r.states.byKey["a"]; got == nil || got.sum != st.sum || len(r.states.byNumber) != 1 || string(got.Values.Value(0)) != string(st.Values.Value(0)) {
			t.Fatalf("not healed: %+v", got)
		}
		if len(r.schemas.byID) != 1 {
			t.Fatalf("%d schemas for one state", len(r.schemas.byID))
		}
	})
}

func putValues(defs []ValueDef) []PutValue {
	values := make([]PutValue, len(defs))
	for i, d := range defs {
		values[i].ValueDef = d
	}
	return values
}

func FuzzRepairRequest(f *testing.F) {
	r := joined(f)
	f.Add((&RepairRequest{Kind: RepairKeyframes, Space: "s", Epoch: 7, sums: r.sums()}).append(nil))
	f.Add((&RepairRequest{Kind: RepairRange, Space: "s", Epoch: 7, From: 1, To: 9}).append(nil))
	f.Fuzz(func(t *testing.T, p []byte) {
		r := joined(t)
		for _, part := range r.store.Repair(r.store.now, p) {
			if _, _, err := view.Parse(part); err != nil {
				t.Fatalf("the answer to %x is %x", p, part)
			}
		}
	})
}

func FuzzWrite(f *testing.F) {
	for _, c := range codecWrites {
		f.Add(AppendWrite(nil, &c.w))
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		w, err := ParseWrite(p)
		if err != nil {
			return
		}
		s := newStoreTest(t, Limits{})
		op := tower("a")
		op.HasAccess, op.Access.Kind = true, AccessReadWrite
		s.ok(op)
		s.Join(w.Client, w.Session)
		w.Epoch = 0
		s.Write(s.now, w)
		w.State = 1
		s.Write(s.now, w)
		s.Advance(s.now)
	})
}

func FuzzRestore(f *testing.F) {
	r := joined(f)
	r.store.ok(tank(nil, gun...))
	for _, d := range r.store.TakeDirty(nil, 9) {
		f.Add(d.Data)
	}
	f.Fuzz(func(t *testing.T, p []byte) {
		s := NewStore(StoreConfig{Space: "s", Epoch: 8})
		if s.Restore(1, p) == nil {
			s.List("", 10)
			s.TakeDirty(nil, 10)
			s.Repair(time.Unix(1000, 0), (&RepairRequest{Kind: RepairKeyframes, Space: "s"}).append(nil))
		}
	})
}
