package payload

import (
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/replication"
)

// parseBounds parses what clients may write into a value of type t; nil without any.
func parseBounds(t wire.ValueType, f *fields) (*replication.Bounds, *replication.Error) {
	if !f.has(fieldMin) && !f.has(fieldMax) && !f.has(fieldFinite) && !f.has(fieldRate) {
		return nil, nil
	}
	b := new(replication.Bounds)
	var err *replication.Error
	if b.Min, err = component(t, "min", fieldMin, f); err != nil {
		return nil, err
	}
	if b.Max, err = component(t, "max", fieldMax, f); err != nil {
		return nil, err
	}
	if f.has(fieldFinite) {
		finite, err := boolean("finite", f.nodes[fieldFinite])
		if err != nil {
			return nil, err
		}
		b.Infinite = !finite
	}
	if f.has(fieldRate) {
		if b.Rate, err = between("rate", f.nodes[fieldRate], replication.WriteRateMin, replication.WriteRateMax); err != nil {
			return nil, err
		}
	}
	return b, b.Check(t)
}

// component parses a number as one component of t, rounded as a value of it would be;
// nil if it is not given.
func component(t wire.ValueType, name string, at field, f *fields) ([]byte, *replication.Error) {
	if !f.has(at) {
		return nil, nil
	}
	if t.Variable() {
		return nil, replication.Errorf(replication.CodeTypeMismatch, "%q is for numbers, not for %v", name, t)
	}
	enc, err := f.nodes[at].appendValue(nil, t.Component())
	if err != nil {
		return nil, within(name, err)
	}
	return enc, nil
}

func (e *emitter) bounds(t wire.ValueType, b *replication.Bounds) {
	if b == nil {
		return
	}
	if b.Min != nil {
		e.key("min")
		e.value(t.Component(), b.Min)
	}
	if b.Max != nil {
		e.key("max")
		e.value(t.Component(), b.Max)
	}
	if b.Infinite {
		e.key("finite")
		e.boolean(false)
	}
	if b.Rate != 0 {
		e.key("rate")
		e.float(b.Rate)
	}
}
