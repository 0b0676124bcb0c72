// Package linkmsg writes and reads describing link messages, by which clients that were not written
// for one game know the key of a state and the names of its values.
//
// A link message is opaque to DNP: it tells the application what the state is. Without a description
// it is the key of the state as text. A describing link message is a JSON object:
//
//	{"v":1,"key":"tower","names":["hp","pos","gun"],"fields":{"2":[["aim","vector3f32"],["shots","uint16"]]}}
//
// names has one entry for each value in order, empty for a value without a name; it is left out if no
// value has one. fields has, by the index of a data value that consists of components, their names and
// types in order; the types are those of values, of fixed size. It is left out if no value has components. Readers ignore fields that they do not know, and take any other message for a key. A
// form that they must not misread gets another version.
package linkmsg

import (
	"encoding/json"
	"errors"
	"slices"
)

// SizeMax is the most bytes of a describing link message, so that it leaves in one datagram of 1,200
// bytes with some values. A state whose names take more has its key as the message; one whose fields do
// not fit has no fields.
const SizeMax = 1100

// FieldsMax is the most components of a value.
const FieldsMax = 64

const version = 1

// A Description is what a link message tells.
type Description struct {
	Key   string
	Names []string // by index; may be shorter or longer than the values of the state

	Fields map[int][]Field // by index; nil if no value has components
}

// A Field is a component of a data value.
type Field struct{ Name, Type string }

// MarshalJSON writes a Field as its name and type.
func (f Field) MarshalJSON() ([]byte, error) { return json.Marshal([2]string{f.Name, f.Type}) }

// UnmarshalJSON reads a Field. It refuses any other form than that of MarshalJSON.
func (f *Field) UnmarshalJSON(p []byte) error {
	var pair []string
	if err := json.Unmarshal(p, &pair); err != nil {
		return err
	}
	if len(pair) != 2 {
		return errField
	}
	f.Name, f.Type = pair[0], pair[1]
	return nil
}

var errField = errors.New("dnp/linkmsg: a field is a name and a type")

type form struct {
	Version int      `json:"v"`
	Key     *string  `json:"key"`
	Names   []string `json:"names,omitempty"`

	Fields json.RawMessage `json:"fields,omitempty"` // not parsed with the rest, so that what is wrong with it costs no more
}

// Append appends the describing link message of a state, or the key if the message would have more than
// SizeMax bytes without fields.
func Append(b []byte, d Description) []byte {
	f := form{Version: version, Key: &d.Key}
	if slices.ContainsFunc(d.Names, func(name string) bool { return name != "" }) {
		f.Names = d.Names
	}
	if len(d.Fields) > 0 {
		told := f
		told.Fields, _ = json.Marshal(d.Fields) // always has a JSON form
		if text, err := json.Marshal(told); err == nil && len(text) <= SizeMax {
			return append(b, text...)
		}
	}
	text, err := json.Marshal(f)
	if err != nil || len(text) > SizeMax { // text always has a JSON form
		return append(b, d.Key...)
	}
	return append(b, text...)
}

// Parse reads any link message. What is not a description is a key.
func Parse(message []byte) Description {
	var f form
	if len(message) == 0 || message[0] != '{' || json.Unmarshal(message, &f) != nil || f.Version != version || f.Key == nil {
		return Description{Key: string(message)}
	}
	return Description{Key: *f.Key, Names: f.Names, Fields: parseFields(f.Fields)}
}

// parseFields returns the components of values; nil if they are not in the form in which Append writes
// them.
func parseFields(text []byte) (fields map[int][]Field) {
	if len(text) == 0 || json.Unmarshal(text, &fields) != nil {
		return nil
	}
	for index, list := range fields {
		if index < 0 || len(list) == 0 || len(list) > FieldsMax {
			return nil
		}
	}
	return fields
}
