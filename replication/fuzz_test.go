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
	f.Add((&RepairRequest{Kind: RepairSums, Space: "s", Epoch: 7, groups: groupSet{of: 3, first: 1, n: 2}}).append(nil))
	f.Add((&RepairRequest{Kind: RepairStates, Space: "s", Epoch: 7, refs: []byte{1, 0, 9, 0}, sums: r.sums()}).append(nil))
	f.Add((&RepairRequest{Kind: RepairStates, Space: "s", Epoch: 7, groups: groupSet{of: 2, list: []byte{1, 0}}}).append(nil))
	f.Fuzz(func(t *testing.T, p []byte) {
		r := joined(t)
		for _, part := range r.store.Repair(r.store.now, p) {
			if _, _, err := view.Parse(part); err != nil {
				t.Fatalf("the answer to %x is %x", p, part)
			}
		}
	})
}

// FuzzStatesAnswer feeds an answer to a replica that asked for states, or for sums. After any answer the replica
// is repaired by later ones.
func FuzzStatesAnswer(f *testing.F) {
	doubting := func(t testing.TB, all bool) (r *replicaTest, q []byte) {
		r = joined(t)
		r.now = r.now.Add(time.Second)
		if all {
			r.doubtAll()
		} else {
			r.doubtState(1, 1)
		}
		r.settle(r.now)
		q, _ = r.Advance(r.now)
		return r, q
	}
	for _, all := range []bool{false, true} {
		r, q := doubting(f, all)
		_, records, _ := view.Parse(r.store.Repair(r.store.now, q)[0])
		f.Add(records, all, true)
	}
	r := joined(f)
	st := r.store.states.byKey["a"]
	f.Add(r.store.appendWhole(nil, st), false, true)
	f.Add(view.Record{Ref: view.NoRef, Entity: view.Entity(1, 0), Message: view.Remove}.Append(nil), false, false)
	f.Fuzz(func(t *testing.T, p []byte, all, last bool) {
		r, _ := doubting(t, all)
		h := view.Header{Flags: view.FlagReply | view.FlagStates, Epoch: 7, Seq: 1, Prev: r.doubt.id}
		if all {
			h.Flags = view.FlagReply | view.FlagSums
		}
		if last {
			h.Flags |= view.FlagLast
		}
		r.ApplyReply(r.now, append(h.Append(nil), p...))
		r.doubtAll()
		r.settle(r.now)
		for range 20 {
			r.now = r.now.Add(time.Second)
			if q, ok := r.Advance(r.now); ok {
				for _, part := range r.store.Repair(r.store.now, q) {
					r.ApplyReply(r.now, part)
				}
			}
		}
		r.equalsStore("after a comparison of everything")
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
		if _, err := s.Restore(1, p); err == nil {
			s.List("", 10)
			s.TakeDirty(nil, 10)
			s.Repair(time.Unix(1000, 0), (&RepairRequest{Kind: RepairKeyframes, Space: "s"}).append(nil))
		}
	})
}
