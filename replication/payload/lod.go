package payload

import (
	"strconv"

	"github.com/dnprelay/dnprelay/replication"
)

// lod parses the levels of detail of an op, if it has some.
func lod(op *replication.Op, f *fields) *replication.Error {
	if op.HasDetails = f.has(fieldLod); !op.HasDetails {
		return nil
	}
	raw := f.raw[fieldLod]
	if kindOf(raw) != "array" {
		return wantField("lod", "array", raw)
	}
	for list := inside(raw); list != ""; {
		if len(op.Details) == replication.DetailsMax {
			return badRequest(`field "lod": more than %d entries`, replication.DetailsMax)
		}
		var one string
		one, list = element(list)
		d, err := parseDetail(one)
		if err != nil {
			return within(`field "lod", entry `+strconv.Itoa(len(op.Details)), err)
		}
		op.Details = append(op.Details, d)
	}
	return nil
}

// parseDetail parses one level of detail: for whom, and how much.
func parseDetail(raw string) (d replication.Detail, err *replication.Error) {
	f, err := parseFields(raw, "the level of detail")
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
		if d.Precision, err = between("precision", f.raw[fieldPrecision], 1, replication.DetailPrecisionMax); err != nil {
			return d, err
		}
	}
	if f.has(fieldRate) {
		d.Rate, err = between("rate", f.raw[fieldRate], replication.DetailRateMin, replication.DetailRateMax)
	}
	return d, err
}

// between parses a number with these bounds.
func between(name, raw string, low, high float64) (float64, *replication.Error) {
	if kindOf(raw) != "number" {
		return 0, wantField(name, "number", raw)
	}
	x, err := strconv.ParseFloat(raw, 64)
	if err != nil || x < low || x > high {
		return 0, badRequest("%s %s: want %v to %v", name, clip(raw), low, high)
	}
	return x, nil
}

func parsePriority(raw string) (uint8, *replication.Error) {
	if kindOf(raw) != "number" {
		return 0, wantField("priority", "number", raw)
	}
	enc, err := appendInteger(nil, typeUint16, raw)
	if err != nil || enc[0] < 1 || enc[0] > replication.PriorityMax || enc[1] != 0 {
		return 0, badRequest("priority %s: want 1 to %d", clip(raw), replication.PriorityMax)
	}
	return enc[0], nil
}

func appendLod(b []byte, all []replication.Detail) []byte {
	if len(all) == 0 {
		return b
	}
	b = append(b, `,"lod":[`...)
	for i := range all {
		d := &all[i]
		b = comma(b, i)
		b = append(b, `{"groups":`...)
		b = appendTokens(b, d.Groups)
		b = append(b, `,"clients":`...)
		b = appendTokens(b, d.Clients)
		if d.Precision != 0 {
			b = append(b, `,"precision":`...)
			b = appendJSONFloat(b, d.Precision, 64)
		}
		if d.Rate != 0 {
			b = append(b, `,"rate":`...)
			b = appendJSONFloat(b, d.Rate, 64)
		}
		b = append(b, '}')
	}
	return append(b, ']')
}
