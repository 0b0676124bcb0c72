// Package publisher is the library of game servers in Go: it publishes network states,
// reports what clients do, and receives their reliable messages, each exactly once.
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
// # Publishing
//
// Put, Set, Remove, Audience and Group describe how something should be. A Space keeps a
// copy of what they describe. It repeats what no relay has accepted, always with the
// newest values of the copy, and it tells a relay that takes the space over everything.
// A game server therefore states each change once and may forget it. Publish waits until
// the relay has accepted the change, Post does not wait, and Flush waits for all changes.
//
// The Space checks values against their types before it sends them. An error names the op
// and the value.
//
// # Receiving
//
// Follow reports which clients are in the space, which join and leave, and what they
// write. Send, SendOnce, Tell and Cast bring messages to clients. Messages yields the
// reliable messages of clients, beginning where a Cursor says: a game server that stores
// the Cursor with its own state loses and repeats nothing when it restarts. Messages needs
// edges that keep sessions in a log (--session-durability log). Listen works without a log
// and delivers each message at most once.
//
// Clients ask for something to be done with a state by commands, which want one answer each. Those of
// sessions in a log are Messages with a Command, others come with Commands:
//
//	err := space.Commands(ctx, "doors", func(c *publisher.Command) { err := c.Reply(ctx, open(c.Key)) … })
//
// # Limits
//
// The package does not restore the copy when the game server restarts, because the game
// server knows its own state better. It does not resolve conflicts: if two game servers
// publish one key, the last one wins, and after a change of relays that may be either.
package publisher
