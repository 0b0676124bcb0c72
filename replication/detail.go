package replication

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// Bounds of what a publisher says about priority and level of detail.
const (
	PriorityMax        = 16        // of a state; the least is 1
	DetailsMax         = 8         // levels of detail of a state
	DetailPrecisionMax = 1_000_000 // factor; the least is 1
	DetailRateMin      = 0.01      // changes a second
	DetailRateMax      = 1_000
)

// A Detail is how much of a state some clients are told, less than others. The zero
// Precision stands for 1, the zero Rate for no limit.
type Detail struct {
	Groups    []string
	Clients   []string
	Precision float64 // factor on the precision of every value
	Rate      float64 // changes a second
}

// Detail returns the first level of detail that a client in these groups has, or
// false if it is told everything.
func (d *Description) Detail(client string, groups []string) (Detail, bool) {
	for i := range d.Details {
		if x := &d.Details[i]; slices.Contains(x.Clients, client) ||
			slices.ContainsFunc(groups, func(g string) bool { return slices.Contains(x.Groups, g) }) {
			return *x, true
		}
	}
	return Detail{}, false
}

// Within reports whether every component of the encoded value b is at most precision
// away from that of a. Only floating point types have a precision; a value of any
// other type is within if it is the same.
func Within(t wire.ValueType, precision float64, a, b []byte) bool {
	return string(a) == string(b) || within(t, precision, a, b)
}

func (d Detail) equal(e Detail) bool {
	return d.Precision == e.Precision && d.Rate == e.Rate && slices.Equal(d.Groups, e.Groups) && slices.Equal(d.Clients, e.Clients)
}

func (d Detail) check() *Error {
	switch {
	case len(d.Groups)+len(d.Clients) == 0:
		return Errorf(CodeBadRequest, "lod: want groups or clients")
	case d.Precision == 0 && d.Rate == 0:
		return Errorf(CodeBadRequest, "lod: want precision or rate")
	case !d.inRange():
		return Errorf(CodeBadRequest, "lod: precision %v and rate %v: want 1 to %d and %v to %d", d.Precision, d.Rate, DetailPrecisionMax, DetailRateMin, DetailRateMax)
	}
	if err := checkTokens("group", d.Groups); err != nil {
		return err
	}
	return checkTokens("client", d.Clients)
}

func (d Detail) inRange() bool {
	return (d.Precision == 0 || d.Precision >= 1 && d.Precision <= DetailPrecisionMax) &&
		(d.Rate == 0 || d.Rate >= DetailRateMin && d.Rate <= DetailRateMax)
}

func checkDetails(all []Detail) *Error {
	if len(all) > DetailsMax {
		return Errorf(CodeBadRequest, "lod: %d entries, at most %d are allowed", len(all), DetailsMax)
	}
	for i := range all {
		if err := all[i].check(); err != nil {
			return err
		}
	}
	return nil
}

// appendDetails appends levels of detail:
//
//	count   uint8
//	entries count × {precision float64, rate float64, members as in an audience}
func appendDetails(b []byte, all []Detail) []byte {
	b = append(b, byte(len(all)))
	for i := range all {
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(all[i].Precision))
		b = binary.LittleEndian.AppendUint64(b, math.Float64bits(all[i].Rate))
		b = appendMembers(b, all[i].Groups, all[i].Clients)
	}
	return b
}

func readDetails(r *wire.Reader) (all []Detail) {
	for range int(r.Uint8()) {
		if r.Err() != nil {
			return nil
		}
		var d Detail
		d.Precision, d.Rate = readFloat(r), readFloat(r)
		d.Groups, d.Clients = readMembers(r)
		all = append(all, d)
	}
	return all
}

func readFloat(r *wire.Reader) float64 {
	p := r.Bytes(8)
	if p == nil {
		return 0
	}
	return math.Float64frombits(binary.LittleEndian.Uint64(p))
}
