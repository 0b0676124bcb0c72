package replication

import (
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/replication/view"
)

// records applies the records of a batch or of a part of an answer, in order. If a record
// cannot be applied, the replica drops it and needs keyframes, because it does not know what
// the record would have changed.
func (r *Replica) records(p []byte) {
	records := view.NewRecords(p)
	for m, ok := records.Next(); ok; m, ok = records.Next() {
		if !r.record(&m) {
			r.stats.BadRecords++
			r.broken = true
		}
	}
	if records.Err() != nil || r.asm.number != 0 {
		r.stats.BadRecords++
		r.broken = true
		r.dropAssembly()
	}
}

func (r *Replica) record(m *view.Record) bool {
	if m.Message == view.RefIDAssign {
		ref, err := m.Assigned()
		if err != nil || m.Entity.State() == 0 {
			return false
		}
		r.assign(ref, m.Entity)
		return true
	}
	v := r.ref(m.Ref)
	switch {
	case v == nil:
		return false
	case m.Message == view.DescribePart || m.Message == view.Describe:
		return v.view == 0 && r.describe(v, m)
	case m.Message == view.Keyframe && v.number == r.asm.number:
		return r.assemble(v, m.Data)
	case v.st == nil || v.view >= len(v.st.schema.ranges):
		return false
	}
	rg := v.st.schema.ranges[v.view]
	switch m.Message {
	case view.Update:
		return r.update(v.st, rg, m.Data)
	case view.Keyframe:
		return r.keyframe(v.st, rg, m.Data)
	case view.Checksum:
		return r.checksum(v.st, rg, m)
	case view.Remove:
		return v.view == 0 && r.removeRecord(v)
	}
	return false
}

// assign binds a RefId to a view. In a repair the assignment also proves that the state exists.
func (r *Replica) assign(ref view.RefID, e view.EntityID) {
	if n := int(ref) + 1; n > len(r.refs) {
		grown := make([]viewRef, min(max(n, 2*len(r.refs)), int(view.NoRef)))
		copy(grown, r.refs)
		r.refs = grown
	}
	st := r.states.byNumber[e.State()]
	r.refs[ref] = viewRef{number: e.State(), view: e.View(), st: st}
	if st != nil {
		st.round = r.answer.round
	}
}

// ref returns the meaning of a RefId, or nil if it is not assigned.
func (r *Replica) ref(ref view.RefID) *viewRef {
	if int(ref) >= len(r.refs) || r.refs[ref].number == 0 {
		return nil
	}
	v := &r.refs[ref]
	if v.st == nil || v.st.dead {
		v.st = r.states.byNumber[v.number]
	}
	return v
}

// update applies changed values. It checks all of them first, because half an update would be a
// value that the state never had.
func (r *Replica) update(st *State, rg view.Range, data []byte) bool {
	values, ok := view.ReadUpdate(data, st.schema.fields, rg)
	if !ok {
		return false
	}
	n, _ := r.change(st, values)
	r.stats.Updates++
	r.stats.Values += n
	return true
}

// change applies the values of a record to st and tells the observer which differ.
func (r *Replica) change(st *State, values view.Values) (n uint64, differs bool) {
	mask := r.emptyMask(st)
	for i, value, null, ok := values.Next(); ok; i, value, null, ok = values.Next() {
		n++
		if st.set(i, value, null) {
			mask.Set(i)
			differs = true
		}
	}
	if differs {
		r.changed(st, mask)
	}
	return n, differs
}

// emptyMask returns a mask for the values of st. The next call reuses it.
func (r *Replica) emptyMask(st *State) netstate.Mask {
	words := (len(st.schema.defs) + 63) / 64
	if words > len(r.mask) {
		r.mask = netstate.NewMask(len(st.schema.defs))
	}
	m := r.mask[:words]
	m.Reset()
	return m
}

// checksum compares a view. The replica applies batches in order, so that the position of the
// checksum is its own.
func (r *Replica) checksum(st *State, rg view.Range, m *view.Record) bool {
	want, err := m.CRC()
	if err != nil {
		return false
	}
	r.stats.Checksums++
	if st.crc(&r.scratch, rg) != want {
		r.stats.Divergence++
		r.broken = true
	}
	return true
}

func (r *Replica) removeRecord(v *viewRef) bool {
	st := v.st
	v.number, v.st = 0, nil
	r.remove(st)
	return true
}

// describe reads the description of a state. If the state exists with this layout, only its
// description changes; otherwise the assembly builds it from the keyframes that follow.
func (r *Replica) describe(v *viewRef, m *view.Record) bool {
	if r.asm.number != v.number {
		r.dropAssembly()
		r.asm.number = v.number
	}
	if m.Message == view.DescribePart {
		return r.asm.part(m.Data) == nil
	}
	if r.asm.describe(&r.schemas, m.Data) != nil {
		r.dropAssembly()
		return false
	}
	st := v.st
	if st == nil || !st.schema.sameLayout(r.asm.st.schema) || st.Desc.Key != r.asm.st.Desc.Key {
		return true
	}
	r.redescribe(st)
	return true
}

// redescribe gives st the description in the assembly.
func (r *Replica) redescribe(st *State) {
	if st.sum != r.asm.st.sum {
		st.Desc, st.sum = r.asm.st.Desc, r.asm.st.sum
		st.schema, r.asm.st.schema = r.asm.st.schema, st.schema // dropAssembly releases it
		if !st.hidden {
			r.obs.Described(st)
		}
	}
	r.dropAssembly()
}

func (r *Replica) dropAssembly() {
	r.asm.release(&r.schemas)
	r.asm = assembly{}
}

// assemble adds the keyframe of a view to the assembly.
func (r *Replica) assemble(v *viewRef, data []byte) bool {
	if r.asm.keyframe(v.view, data) != nil {
		r.dropAssembly()
		return false
	}
	if r.asm.whole() {
		r.install()
	}
	return true
}

// keyframe applies the keyframe of a view that exists.
func (r *Replica) keyframe(st *State, rg view.Range, data []byte) bool {
	values, ok := view.ReadKeyframe(data, st.schema.fields, rg)
	if !ok {
		return false
	}
	if _, differs := r.change(st, values); differs {
		r.stats.Keyframed++
	}
	return true
}

// install makes the assembled state part of the copy.
func (r *Replica) install() {
	st := r.asm.st
	st.round = r.answer.round
	r.asm = assembly{} // st holds its schema
	r.stats.Keyframed++
	r.insert(st)
}
