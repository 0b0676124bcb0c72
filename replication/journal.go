package replication

// A journal remembers how to take back what a publish did so far, so that a
// publish of several ops is applied as a whole or not at all. Values are the
// common case and cost no closure.
type journal struct {
	active bool
	steps  []undo
	bytes  []byte // values before
}

// An undo takes one step back.
type undo struct {
	other     func() // anything but a value
	st        *stored
	index     int
	off, n    int // of the value before, in bytes
	wasNull   bool
	wasMarked bool
}

func (j *journal) begin() { j.active = true }

// note remembers how to take back something that is not a value.
func (j *journal) note(f func()) {
	if j.active {
		j.steps = append(j.steps, undo{other: f})
	}
}

// value remembers value i of st as it is.
func (j *journal) value(st *stored, i int) {
	if !j.active {
		return
	}
	v := st.values.Value(i)
	j.steps = append(j.steps, undo{
		st: st, index: i, off: len(j.bytes), n: len(v),
		wasNull:   st.isNull(i),
		wasMarked: st.dirty.Has(i),
	})
	j.bytes = append(j.bytes, v...)
}

// commit forgets how to go back.
func (j *journal) commit() {
	clear(j.steps)
	j.active, j.steps, j.bytes = false, j.steps[:0], j.bytes[:0]
}

// rollback takes everything back, the last step first.
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
	u.st.values.Set(u.index, j.bytes[u.off:u.off+u.n])
	u.st.setNull(u.index, u.wasNull)
	if !u.wasMarked {
		u.st.dirty.Clear(u.index)
	}
}
