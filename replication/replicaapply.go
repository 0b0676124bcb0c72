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
	for {
		m, ok := records.Next()
		if !ok {
			break
		}
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
	if v == nil {
		return false
	}
	switch m.Message {
	case view.Update:
		return r.update(v, m.Data)
	case view.Checksum:
		return r.checksum(v, m)
	case view.Keyframe:
		return r.keyframe(v, m.Data)
	case view.DescribePart, view.Describe:
		return r.describe(v, m)
	case view.Remove:
		return r.removeRecord(v)
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
	st := r.states[e.State()]
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
		v.st = r.states[v.number]
	}
	return v
}

// known returns the state and the range of values of a view that exists.
func (v *viewRef) known() (*State, view.Range, bool) {
	if v.st == nil || v.view >= len(v.st.schema.ranges) {
		return nil, view.Range{}, false
	}
	return v.st, v.st.schema.ranges[v.view], true
}

// update applies changed values. It checks all of them first, because half an update would be a
// value that the state never had.
func (r *Replica) update(v *viewRef, data []byte) bool {
	st, rg, ok := v.known()
	if !ok {
		return false
	}
	u, ok := view.ReadUpdate(data, st.schema.fields, rg)
	if !ok {
		return false
	}
	r.stats.Updates++
	mask, differs := r.emptyMask(st), false
	for {
		i, value, null, ok := u.Next()
		if !ok {
			break
		}
		r.stats.Values++
		if st.set(i, value, null) {
			mask.Set(i)
			differs = true
		}
	}
	if differs {
		r.changed(st, mask)
	}
	return true
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
func (r *Replica) checksum(v *viewRef, m *view.Record) bool {
	want, err := m.CRC()
	st, rg, ok := v.known()
	if err != nil || !ok {
		return false
	}
	r.stats.Checksums++
	var got uint32
	got, r.scratch = st.crc(r.scratch, rg)
	if got != want {
		r.stats.Divergence++
		r.broken = true
	}
	return true
}

func (r *Replica) removeRecord(v *viewRef) bool {
	st, _, ok := v.known()
	if !ok || v.view != 0 {
		return false
	}
	v.number, v.st = 0, nil
	r.remove(st)
	return true
}

// describe reads the description of a state. If the state exists with this layout, only its
// description changes; otherwise the assembly builds it from the keyframes that follow.
func (r *Replica) describe(v *viewRef, m *view.Record) bool {
	if v.view != 0 {
		return false
	}
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
	if st == nil || !st.schema.sameLayout(r.asm.schema) || st.Desc.Key != r.asm.desc.Key {
		return true
	}
	r.redescribe(st)
	return true
}

// redescribe gives st the description in the assembly.
func (r *Replica) redescribe(st *State) {
	if st.sum != r.asm.sum {
		r.schemas.release(st.schema)
		st.Desc, st.sum, st.schema = r.asm.desc, r.asm.sum, r.asm.schema
		r.asm.schema = nil // held by st
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

// keyframe applies all values of a view, either to a state that exists or to the one in the
// assembly.
func (r *Replica) keyframe(v *viewRef, data []byte) bool {
	if r.asm.number != v.number {
		return r.keyframeOf(v, data)
	}
	if r.asm.keyframe(v.view, data) != nil {
		r.dropAssembly()
		return false
	}
	if r.asm.whole() {
		r.install()
	}
	return true
}

// keyframeOf applies the keyframe of a view that exists.
func (r *Replica) keyframeOf(v *viewRef, data []byte) bool {
	st, rg, ok := v.known()
	if !ok {
		return false
	}
	k, ok := view.ReadKeyframe(data, st.schema.fields, rg)
	if !ok {
		return false
	}
	mask, differs := r.emptyMask(st), false
	for {
		i, value, null, ok := k.Next()
		if !ok {
			break
		}
		if st.set(i, value, null) {
			mask.Set(i)
			differs = true
		}
	}
	if differs {
		r.stats.Keyframed++
		r.changed(st, mask)
	}
	return true
}

// install makes the assembled state part of the copy.
func (r *Replica) install() {
	a := &r.asm
	_, hidden := groupsClient(a.desc.Key)
	st := &State{
		Number: a.number, Desc: a.desc, Values: a.values, Nulls: a.nulls,
		schema: a.schema, sum: a.sum, round: r.answer.round, hidden: hidden,
	}
	r.asm = assembly{} // st holds its schema
	r.stats.Keyframed++
	r.insert(st)
}
