package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/dnprelay/dnprelay/dnp/linkmsg"
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/top"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
	replview "github.com/dnprelay/dnprelay/replication/view"
)

// A tapRecord is a record as lines show it. The fields of the JSON are a contract with the programs that read
// them: fields may be added, none changes its meaning.
type tapRecord struct {
	Epoch  uint64         `json:"epoch"`
	Seq    uint64         `json:"seq"`
	Repair bool           `json:"repair,omitempty"` // of the answer to a repair request
	Record string         `json:"record"`           // of recordNames
	Ref    replview.RefID `json:"ref,omitempty"`    // without it the record addresses its view by number
	State  uint64         `json:"state,omitempty"`  // number of the state
	View   int            `json:"view"`             // number of the view in the state
	Key    string         `json:"key,omitempty"`    // of the state, if it is known
	Values []lineValue    `json:"values,omitempty"`
	CRC    string         `json:"crc,omitempty"`  // of a checksum, in hex
	Have   string         `json:"have,omitempty"` // the checksum of the copy, if it differs
	OK     *bool          `json:"ok,omitempty"`   // whether the checksum is that of the copy
	Error  string         `json:"error,omitempty"`
}

// recordNames are the names of records in lines.
var recordNames = map[replview.MessageID]string{
	replview.Update: "update", replview.Checksum: "checksum", replview.Keyframe: "keyframe", replview.Remove: "remove",
	replview.RefIDAssign: "assign", replview.Describe: "describe", replview.DescribePart: "describe_part",
}

// A tap decodes the records that a replica meets and checks their checksums.
type tap struct {
	verify bool
	show   func(r tapRecord)

	counts   map[string]int // of records by name
	checked  int            // checksums that were compared
	differ   int            // of them
	bad      int            // records that could not be applied
	observer                // of the replica; the records tell everything
}

type observer struct{}

func (observer) Added(*replication.State)                  {}
func (observer) Changed(*replication.State, netstate.Mask) {}
func (observer) Described(*replication.State)              {}
func (observer) Removed(*replication.State)                {}
func (observer) Groups(string, []string)                   {}
func (observer) Interest(string, *replication.Interest)    {}
func (observer) Eyes(string)                               {}

// newTap returns a tap and the replica of a space that it follows.
func newTap(space string, verify bool, show func(r tapRecord)) (*tap, *replication.Replica) {
	t := &tap{verify: verify, show: show, counts: map[string]int{}}
	r := replication.NewReplica(space, t)
	r.SetWitness(t.record)
	return t, r
}

// record shows a record.
func (t *tap) record(w replication.Witnessed) {
	out := tapRecord{
		Epoch: w.Epoch, Seq: w.Seq, Repair: w.Repair, State: w.Entity.State(), View: w.Entity.View(),
		Record: cmp.Or(recordNames[w.Record.Message], fmt.Sprintf("unknown_%d", w.Record.Message)),
	}
	t.counts[out.Record]++
	if out.Ref = w.Record.Ref; out.Ref == replview.NoRef {
		out.Ref = 0
	}
	if ref, err := w.Record.Assigned(); w.Record.Message == replview.RefIDAssign && err == nil {
		out.Ref = ref
	}
	if w.State != nil {
		out.Key = w.State.Desc.Key
	}
	if !w.Applied {
		t.bad++
		out.Error = "the record is malformed, or about something that does not exist"
	} else if w.State != nil {
		t.decode(&out, &w)
	}
	t.show(out)
}

// decode adds what the data of a record mean.
func (t *tap) decode(out *tapRecord, w *replication.Witnessed) {
	fields, views := w.State.Fields()
	if out.View >= len(views) {
		return
	}
	rg := views[out.View]
	switch w.Record.Message {
	case replview.Update:
		values, _ := replview.ReadUpdate(w.Record.Data, fields, rg) // the replica has applied it
		out.Values = tapValues(w.State, values)
	case replview.Keyframe:
		values, _ := replview.ReadKeyframe(w.Record.Data, fields, rg)
		out.Values = tapValues(w.State, values)
	case replview.Checksum:
		t.checksum(out, w, rg)
	}
}

// checksum compares a checksum with that of the copy, which is at the same position.
func (t *tap) checksum(out *tapRecord, w *replication.Witnessed, rg replview.Range) {
	want, err := w.Record.CRC()
	if err != nil {
		return
	}
	out.CRC = fmt.Sprintf("%08x", want)
	if !t.verify {
		return
	}
	have := w.State.Checksum(rg)
	ok := have == want
	t.checked++
	if out.OK = &ok; !ok {
		t.differ++
		out.Have = fmt.Sprintf("%08x", have)
	}
}

func tapValues(st *replication.State, values replview.Values) (list []lineValue) {
	for i, enc, null, ok := values.Next(); ok; i, enc, null, ok = values.Next() {
		d := &st.Desc.Values[i]
		v := lineValue{Index: i, Name: d.Name, Type: d.Type.String(), Value: json.RawMessage("null")}
		if !null {
			v.Value = payload.AppendStructValue(nil, d.Type, tapStruct(st, i), enc)
		}
		list = append(list, v)
	}
	return list
}

// A tapTold is what the link message of a state tells, kept with the state. A replica does not know the
// components of values otherwise.
type tapTold struct {
	desc *replication.Description
	told linkmsg.Description
}

// tapStruct returns the components of value i; nil if the link message tells none.
func tapStruct(st *replication.State, i int) []replication.StructField {
	if st.Desc.Values[i].Type != wire.TypeData {
		return nil
	}
	t, ok := st.Data.(*tapTold)
	if !ok || t.desc != st.Desc {
		t = &tapTold{st.Desc, linkmsg.Parse(st.Desc.Message)}
		st.Data = t
	}
	return replication.DescribedFields(t.told, i)
}

// recordMarks begin the lines of records that change something.
var recordMarks = map[string]string{"update": "~", "keyframe": "+", "checksum": "=", "remove": "-"}

// text returns a record in readable form.
func (r tapRecord) text() string {
	b := &strings.Builder{}
	fmt.Fprintf(b, "%d:%d", r.Epoch, r.Seq)
	if r.Repair {
		b.WriteString(" repair")
	}
	key := cmp.Or(top.Printable(r.Key), fmt.Sprintf("state %d", r.State))
	fmt.Fprintf(b, " %s %s", cmp.Or(recordMarks[r.Record], r.Record), key)
	if r.View > 0 {
		fmt.Fprintf(b, "/%d", r.View)
	}
	switch {
	case r.Error != "":
		fmt.Fprintf(b, " ERROR: %s", r.Error)
	case r.Record == "assign":
		fmt.Fprintf(b, " is ref %d", r.Ref)
	case r.Record == "checksum":
		fmt.Fprintf(b, " %s", r.CRC)
		if r.OK != nil && *r.OK {
			b.WriteString(" ok")
		} else if r.OK != nil {
			fmt.Fprintf(b, " DIFFERS: the copy has %s", r.Have)
		}
	}
	for _, v := range r.Values {
		fmt.Fprintf(b, " %s=%s", cmp.Or(v.Name, fmt.Sprint(v.Index)), top.Printable(string(v.Value)))
	}
	return b.String()
}

// result returns what is wrong with what the tap has seen.
func (t *tap) result() error {
	switch {
	case !t.verify:
		return nil
	case t.differ > 0:
		return fmt.Errorf("%d of %d checksums differ from the copy", t.differ, t.checked)
	case t.bad > 0:
		return fmt.Errorf("%d records could not be applied", t.bad)
	}
	return nil
}

// summary returns what the tap has seen.
func (t *tap) summary(r *replication.Replica) string {
	epoch, seq := r.Position()
	s := r.Stats()
	b := &strings.Builder{}
	fmt.Fprintf(b, "position %d:%d, %d states; %d batches, %d updates, %d keyframes, %d checksums",
		epoch, seq, r.Len(), s.Batches, t.counts["update"], t.counts["keyframe"], t.counts["checksum"])
	if t.verify {
		fmt.Fprintf(b, " (%d compared, %d differ)", t.checked, t.differ)
	}
	fmt.Fprintf(b, ", %d gaps, %d requests for repair", s.Gaps, s.Requests())
	if t.bad > 0 {
		fmt.Fprintf(b, ", %d records could not be applied", t.bad)
	}
	return b.String()
}
