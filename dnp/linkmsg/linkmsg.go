// Package linkmsg writes and reads describing link messages, by which clients that were not written
// for one game know the key of a state and the names of its values.
//
// A link message is opaque to DNP: it tells the application what the state is. Without a description
// it is the key of the state as text. A describing link message is a JSON object:
//
//	{"v":1,"key":"tower","names":["hp","pos",""]}
//
// names has one entry for each value in order, empty for a value without a name; it is left out if no
// value has one. Readers ignore fields that they do not know, and take any other message for a key. A
// form that they must not misread gets another version.
package linkmsg

import (
	"encoding/json"
	"slices"
)

// SizeMax is the most bytes of a describing link message, so that it leaves in one datagram of 1,200
// bytes with some values. A state whose names take more has its key as the message.
const SizeMax = 1100

const version = 1

// A Description is what a link message tells.
type Description struct {
	Key   string
	Names []string // by index; may be shorter or longer than the values of the state
}

type form struct {
	Version int      `json:"v"`
	Key     *string  `json:"key"`
	Names   []string `json:"names,omitempty"`
}

// Append appends the describing link message of a state, or the key if the message would have more than
// SizeMax bytes.
func Append(b []byte, d Description) []byte {
	f := form{Version: version, Key: &d.Key}
	if slices.ContainsFunc(d.Names, func(name string) bool { return name != "" }) {
		f.Names = d.Names
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
	return Description{Key: *f.Key, Names: f.Names}
}
