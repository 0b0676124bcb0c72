package payload

import (
	"encoding/binary"
	"math"
	"strconv"

	"github.com/dnprelay/dnprelay/replication"
)

// lod parses the levels of detail of an op, if it has some.
func lod(op *replication.Op, f *fields) *replication.Error {
	if op.HasDetails = f.has(fieldLod); !op.HasDetails {
		return nil
	}
	n := f.nodes[fieldLod]
	if n.kind() != kindArray {
		return wantField("lod", kindArray, n)
	}
	for l := n.list(); l.some(); {
		if len(op.Details) == replication.DetailsMax {
			return badRequest(`field "lod": more than %d entries`, replication.DetailsMax)
		}
		d, err := parseDetail(l.element())
		if err != nil {
			return within(`field "lod", entry `+strconv.Itoa(len(op.Details)), err)
		}
		op.Details = append(op.Details, d)
	}
	return nil
}

// parseDetail parses one level of detail: for whom, and how much.
func parseDetail(n node) (d replication.Detail, err *replication.Error) {
	f, err := parseFields(n, "the level of detail")
	if err != nil {
		return d, err
	}
	if err = f.only("the level of detail", fieldGroups, fieldClients, fieldPrecision, fieldRate); err != nil {
		return d, err
	}
	listed, err := parseListed(&f, replication.AudienceListed)
	if err != nil {
		return d, err
	}
	d.Groups, d.Clients = listed.Groups, listed.Clients
	switch {
	case len(d.Groups)+len(d.Clients) == 0:
		return d, badRequest(`want "groups" or "clients"`)
	case !f.has(fieldPrecision) && !f.has(fieldRate):
		return d, badRequest(`want "precision" or "rate"`)
	}
	if f.has(fieldPrecision) {
		if d.Precision, err = between("precision", f.nodes[fieldPrecision], 1, replication.DetailPrecisionMax); err != nil {
			return d, err
		}
	}
	if f.has(fieldRate) {
		d.Rate, err = between("rate", f.nodes[fieldRate], replication.DetailRateMin, replication.DetailRateMax)
	}
	return d, err
}

// between parses a number with these bounds.
func between(name string, n node, low, high float64) (float64, *replication.Error) {
	if n.kind() != kindNumber {
		return 0, wantField(name, kindNumber, n)
	}
	enc, err := n.appendValue(nil, typeFloat64)
	if err != nil {
		return 0, badRequest("%s: %s, want %v to %v", name, err.Message, low, high)
	}
	x := math.Float64frombits(binary.LittleEndian.Uint64(enc))
	if !(x >= low && x <= high) {
		return 0, badRequest("%s %v: want %v to %v", name, x, low, high)
	}
	return x, nil
}

func parsePriority(n node) (uint8, *replication.Error) {
	x, err := between("priority", n, 1, replication.PriorityMax)
	if err == nil && x != math.Trunc(x) {
		err = badRequest("priority %v: want an integer of 1 to %d", x, replication.PriorityMax)
	}
	return uint8(x), err
}

func (e *emitter) lod(all []replication.Detail) {
	if len(all) == 0 {
		return
	}
	e.key("lod")
	e.array()
	for i := range all {
		d := &all[i]
		e.object()
		e.tokens("groups", d.Groups)
		e.tokens("clients", d.Clients)
		if d.Precision != 0 {
			e.key("precision")
			e.float(d.Precision)
		}
		if d.Rate != 0 {
			e.key("rate")
			e.float(d.Rate)
		}
		e.end()
	}
	e.end()
}
