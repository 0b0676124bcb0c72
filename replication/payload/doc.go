// Package payload is the rim of the system where values are text: it turns what
// publishers write into ops, and what the store says into JSON, or into Godot's Variants.
//
//	publish, err := payload.JSON.Parse(body, keyInSubject)
//	store.Publish(now, publish)
//	...
//	reply := payload.JSON.AppendAnswer(nil, answer)
//
// Parsing is strict: unknown and repeated fields, wrong types and half
// characters are errors, because a publisher that misspells "precision" should
// hear of it, not wonder. An error has one of the documented codes and a message
// that names the value and says what was wanted and what was there.
//
// Values become wire bytes late: a payload gives [replication.Literal]s, and the
// store encodes them when it knows the type. The table of how each type is
// written is in DESIGN.md beside this file.
package payload
