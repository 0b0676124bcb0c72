package replication

// A journal records how to undo a publish, so that a publish of several ops is applied as a
// whole or not at all. A value, the common case, needs no closure.
type journal struct {
	active bool
	steps  []undo
	bytes  []byte // previous values
}

// An undo reverts one step.
type undo struct {
	other     func() // reverts a step that is not a value
	st        *stored
	index     int
	off, n    int // of the previous value in journal.bytes
	wasNull   bool
	wasMarked bool
}

func (j *journal) begin() { j.active = true }

// note records how to revert a step that is not a value.
func (j *journal) note(f func()) {
	if j.active {
		j.steps = append(j.steps, undo{other: f})
	}
}

// value records value i of st before it changes.
func (j *journal) value(st *stored, i int) {
	if !j.active {
		return
	}
	v := st.Values.Value(i)
	j.steps = append(j.steps, undo{
		st: st, index: i, off: len(j.bytes), n: len(v),
		wasNull:   st.IsNull(i),
		wasMarked: st.dirty.Has(i),
	})
	j.bytes = append(j.bytes, v...)
}

// commit discards the steps.
func (j *journal) commit() {
	clear(j.steps)
	j.active, j.steps, j.bytes = false, j.steps[:0], j.bytes[:0]
}

// rollback reverts all steps, the last one first.
func (j *journal) rollback() {
	for i := len(j.steps) - 1; i >= 0; i-- {
		j.undo(&j.steps[i])
	}
	j.commit()
}

func (j *journal) undo(u *undo) {
	if u.other != nil {
		u.other()
		return
	}
	u.st.set(u.index, j.bytes[u.off:u.off+u.n], u.wasNull)
	if !u.wasMarked {
		u.st.dirty.Clear(u.index)
	}
}
