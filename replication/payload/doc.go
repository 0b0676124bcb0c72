// Package payload converts between the text of payloads and wire values: it parses what
// publishers send into ops, and writes answers, events and listings as JSON or as Godot's
// Variants.
//
//	publish, err := payload.JSON.Parse(body, keyInSubject)
//	store.Publish(now, publish)
//	...
//	reply := payload.JSON.AppendAnswer(nil, answer)
//
// Parsing is strict: unknown and repeated fields, wrong types and half surrogate pairs are
// errors, because a publisher that misspells "precision" should get an error and not a
// surprise. An error has one of the documented codes and a message that names the value, what
// was expected and what was found.
//
// Values become wire bytes late: a payload contains [replication.Literal]s, and the store
// encodes them once it knows the type. DESIGN.md beside this file has the table of types.
package payload
