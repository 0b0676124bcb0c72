package replication

import (
	"bytes"
	"slices"

	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/replication/view"
)

// A schema is derived from the value definitions of a state. States with equal definitions
// share one, because a space often has a thousand states of the same kind.
type schema struct {
	id       string // the definitions in the form of a stored Describe
	refs     int
	defs     []ValueDef
	valueMax uint16
	layout   *netstate.Layout
	fields   []view.Field
	ranges   []view.Range
	index    map[string]int // by name
	nullable bool           // any value is
}

// schemas shares schemas and forgets those without a holder. The number of states therefore
// bounds it.
type schemas struct {
	byID    map[string]*schema
	scratch []byte
}

func newSchemas() schemas { return schemas{byID: make(map[string]*schema)} }

// acquire returns the schema of these definitions, which must be valid. The caller releases it.
// The schema keeps nothing of defs.
func (c *schemas) acquire(defs []ValueDef, valueMax uint16) *schema {
	c.scratch = appendStructs(appendBounds(appendDefs(c.scratch[:0], defs, valueMax), defs), defs)
	s := c.byID[string(c.scratch)]
	if s == nil {
		s = newSchema(string(c.scratch), defs, valueMax)
		c.byID[s.id] = s
	}
	s.refs++
	return s
}

func (c *schemas) release(s *schema) {
	if s.refs--; s.refs == 0 {
		delete(c.byID, s.id)
	}
}

func newSchema(id string, defs []ValueDef, valueMax uint16) *schema {
	defs = slices.Clone(defs)
	s := &schema{id: id, defs: defs, valueMax: valueMax, index: make(map[string]int)}
	s.fields = make([]view.Field, len(defs))
	for i, d := range defs {
		s.fields[i] = view.Field{Type: d.Type, Nullable: d.Nullable}
		s.nullable = s.nullable || d.Nullable
		defs[i].Null, defs[i].Bounds, defs[i].Struct = bytes.Clone(d.Null), d.Bounds.clone(), slices.Clone(d.Struct)
		if d.Name != "" {
			s.index[d.Name] = i
		}
	}
	s.ranges = view.Split(s.fields, int(valueMax))
	layout, err := (&Description{Values: defs}).Layout()
	if err != nil {
		panic("replication: schema of invalid definitions: " + err.Error())
	}
	s.layout = layout
	return s
}

// values returns a state of this schema in which every nullable value is null and every other
// value is zero.
func (s *schema) values() (*netstate.State, netstate.Mask) {
	v := netstate.NewState(s.layout)
	for i := range s.defs {
		if len(s.defs[i].Struct) > 0 {
			v.Set(i, zeroStruct(s.defs[i].Struct))
		}
	}
	if !s.nullable {
		return v, nil
	}
	nulls := netstate.NewMask(len(s.defs))
	for i, d := range s.defs {
		if d.Nullable {
			nulls.Set(i)
			v.Set(i, d.Substitute())
		}
	}
	return v, nulls
}

// sameLayout reports whether a state can change from one schema to the other without being
// replaced. Clients do not see names; everything else has to be equal.
func (s *schema) sameLayout(t *schema) bool {
	if s == t {
		return true
	}
	if s.valueMax != t.valueMax || !s.layout.Equal(t.layout) {
		return false
	}
	for i := range s.defs {
		a, b := &s.defs[i], &t.defs[i]
		if a.Nullable != b.Nullable || !slices.Equal(a.Struct, b.Struct) || string(a.Substitute()) != string(b.Substitute()) {
			return false
		}
	}
	return true
}
