package replication

import "github.com/dnprelay/dnprelay/replication/view"

// A Witnessed is a record that a Replica has just met. It is valid during the call that has it.
type Witnessed struct {
	Epoch, Seq uint64 // of the batch; of keyframes, the position at which they are true
	Repair     bool   // it is of the answer to a repair request, and not of a batch
	Record     view.Record
	Entity     view.EntityID // the view that it is about; 0 if its RefId is not assigned
	State      *State        // as it is after the record; nil if the Replica does not have it, or does not yet
	Applied    bool          // otherwise it was malformed, or about something that does not exist
}

// A Witness is told of every record, in the order in which the Replica applies them, for tools that show
// records or check them. It must not call the Replica.
type Witness func(w Witnessed)

// SetWitness makes the Replica tell f of every record; nil ends that.
func (r *Replica) SetWitness(f Witness) { r.witness = f }

// Fields returns the types of the values as views need them, and how the values are cut into views. The
// caller must not change them.
func (s *State) Fields() (fields []view.Field, views []view.Range) {
	return s.schema.fields, s.schema.ranges
}

// Checksum returns the checksum of one view, one of those of Fields.
func (s *State) Checksum(rg view.Range) uint32 {
	var scratch []byte
	return s.crc(&scratch, rg)
}

// witnessed applies a record and tells the witness.
func (r *Replica) witnessed(m *view.Record) bool {
	if r.witness == nil {
		return r.record(m)
	}
	w := r.from
	w.Record = *m
	before := r.about(&w)
	w.Applied = r.record(m)
	if w.State = r.about(&w); w.State == nil {
		w.State = before // the record removed it
	}
	r.witness(w)
	return w.Applied
}

// about sets the view that a record is about, and returns its state.
func (r *Replica) about(w *Witnessed) *State {
	if w.Record.Ref == view.NoRef {
		w.Entity = w.Record.Entity
	} else if v := r.ref(w.Record.Ref); v != nil {
		w.Entity = view.Entity(v.number, v.view)
	}
	return r.states.byNumber[w.Entity.State()]
}
