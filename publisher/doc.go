// Package publisher is what a game server in Go imports: it publishes network states,
// hears what clients do, and takes their reliable messages, each exactly once.
//
//	p, err := publisher.Connect(publisher.Config{URL: "nats://127.0.0.1:4222"})
//	defer p.Close()
//	space, err := p.Space("demo")
//
//	_, err = space.Publish(ctx, publisher.Put{Key: "tower", Farewell: "the tower fell", Values: []publisher.Value{
//		{Name: "hp", Type: "float32", Value: 93.5, Precision: 0.1},
//		{Name: "pos", Type: "vector3f32", Value: [3]float32{1, 2, 3}},
//	}})
//	err = space.Post(publisher.Set{Key: "tower", Values: publisher.Values{"hp": 92}})
//
// # Say how things are
//
// Put, Set, Remove, Audience and Group say how something should be, and a Space remembers
// it: that is its copy. What no relay has accepted is said again, from the copy, so with
// the newest values and never with old ones; and a relay that takes the space over is
// told everything. So a game server states each change once, and may forget it. Publish
// waits until the change is accepted, Post does not, and Flush waits for all of it.
//
// Values are checked against their types at once. An error names the op and the value.
//
// # Hear
//
// Follow tells who is there, who comes and leaves, and what clients write. Send, SendAll
// and their unreliable sisters bring messages to clients. Messages brings theirs, from
// where a Cursor says: a game server stores the Cursor with its own state and loses and
// doubles nothing when it restarts. For that the edges must keep sessions in a log
// (--session-durability log); without, Listen has the messages as they come.
//
// # What it does not do
//
// It does not restore the copy after a restart of the game server, which knows its own
// state better. It does not resolve conflicts: if two game servers publish one key, the
// last one wins, and after a change of relays that may be either.
package publisher
