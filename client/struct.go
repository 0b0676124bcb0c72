package client

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/dnprelay/dnprelay/dnp/linkmsg"
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// A component is a part of a data value, at a place that follows from those before it.
type component struct {
	name string
	typ  wire.ValueType
	at   int // from the beginning of the data
}

// componentsOf returns the components of data values that a link message tells. The edge passes on what a game
// server wrote, so it leaves out those that no data can have.
func componentsOf(d linkmsg.Description, layout *netstate.Layout) map[int][]component {
	var all map[int][]component
	for index, fields := range d.Fields {
		if index >= layout.Len() || layout.Type(index) != wire.TypeData {
			continue
		}
		if list := components(fields); list != nil {
			if all == nil {
				all = map[int][]component{}
			}
			all[index] = list
		}
	}
	return all
}

func components(fields []linkmsg.Field) (list []component) {
	at, seen := 0, map[string]bool{}
	for _, f := range fields {
		t, ok := wire.ParseValueType(f.Type)
		if !ok || t.Variable() || f.Name == "" || seen[f.Name] {
			return nil
		}
		seen[f.Name] = true
		list = append(list, component{f.Name, t, at})
		at += t.Size()
	}
	return list
}

func sizeOf(list []component) int {
	last := list[len(list)-1]
	return last.at + last.typ.Size()
}

// Fields returns the components of a data value, each with a Value. It returns nil if the link message tells
// none, or the data are of another size.
func (s *State) Fields(index int) []Field {
	list := s.fields[index]
	if list == nil {
		return nil
	}
	data := s.At(index).text
	if len(data) != sizeOf(list) {
		return nil
	}
	fields := make([]Field, len(list))
	for i, c := range list {
		fields[i] = Field{c.name, c.typ.String(), newValue(c.typ, []byte(data[c.at:c.at+c.typ.Size()]))}
	}
	return fields
}

// encode returns what a program set as the wire bytes of a value.
func (s *State) encode(index int, v any) ([]byte, error) {
	content, ok := v.(map[string]any)
	if !ok {
		return encode(s.Type(index), v)
	}
	list := s.fields[index]
	if list == nil {
		return nil, errors.New("the link message tells no components of it")
	}
	b := binary.LittleEndian.AppendUint16(nil, uint16(sizeOf(list)))
	for _, c := range list {
		part, given := content[c.name]
		if !given {
			return nil, fmt.Errorf("field %q is missing", c.name)
		}
		enc, err := encode(c.typ, part)
		if err != nil {
			return nil, fmt.Errorf("field %q: %w", c.name, err)
		}
		b = append(b, enc...)
	}
	if len(content) > len(list) {
		return nil, fmt.Errorf("%d components, it has %d", len(content), len(list))
	}
	return b, nil
}
