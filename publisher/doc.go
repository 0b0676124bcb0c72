// Package publisher is the library of game servers in Go: it publishes network states,
// reports what clients do, and receives their reliable messages, each exactly once.
//
//	type Tower struct {
//		HP  float32    `dnp:"hp,precision=0.1"`
//		Pos [3]float32 `dnp:"pos"`
//	}
//
//	p, err := publisher.Connect(ctx, publisher.Config{URL: "nats://127.0.0.1:4222"})
//	defer p.Close()
//	space, err := p.Space("demo")
//
//	tower, err := publisher.Bind(space, publisher.Put{Key: "tower", Farewell: "the tower fell"}, Tower{HP: 93.5})
//	err = tower.Set(Tower{HP: 92, Pos: [3]float32{1, 2, 3}})
//	err = tower.Update(func(t *Tower) { t.HP-- })
//
//	for ev, err := range space.Events(ctx, publisher.Filter{}) {
//		…
//	}
//
// # Which call
//
// Two verbs are about states, two about messages. One of each waits:
//
//	                        waits for the relay or the edge    does not wait
//	states                  Publish                            Post
//	messages to clients     Send                               Tell
//
//	you want to                                                          use
//	change a state in the game loop                                      Bound.Set, Bound.Update, or Post
//	know that a relay has accepted a change, or why it did not           Publish
//	know that relays have accepted everything                            Flush
//	show several changes to clients at once                              one Publish or Post with all of them
//	tell a client or Everyone something                                  Tell
//	tell a client something that may be lost, such as a sound            Tell with Unreliable
//	know the number of a message to a client                             Send
//	have a message arrive once, whichever edge or game server restarts   Send with a Token
//	let clients see what is near them, and far things in less detail     Put.Interest, Interest and Eye
//	hear what happens                                                    Events
//	count each message of a client once, whatever restarts               Messages
//
// # Publishing
//
// Put, Set, Remove, Audience, Group, Interest and Eye describe how something should be; a [Bound] does so for a
// struct. A Space keeps a copy of what they describe. It repeats what no relay has accepted, always with the
// newest values of the copy, and it tells a relay that takes the space over everything.
// A game server therefore states each change once and may forget it. Config.Status and Stats tell of outages, and
// State shows the copy.
//
// With Put.TTL a state ends when the game server has ended: the Space says it again as long as it lives.
//
// The Space checks values against their types before it sends them. An error names the op
// and the value.
//
// # Receiving
//
// Events yields everything that happens in a space, in one order: which clients are there, join and leave, what they
// write and say, and what they ask for by commands. Messages yields the
// reliable messages of clients, beginning where a Cursor says: a game server that stores
// the Cursor with its own state loses and repeats nothing when it restarts. Messages needs
// edges that keep sessions in a log (--session-durability log). Events works without a log
// and brings each message at most once.
//
// Clients ask for something to be done with a state by commands, which want one answer each. Those of
// sessions in a log are Messages with a Command, others are events of KindCommand:
//
//	for ev, err := range space.Events(ctx, publisher.Filter{Kinds: []publisher.Kind{publisher.KindCommand}}) {
//		err := ev.Command.Reply(ctx, open(ev.Key)) …
//	}
//
// # Programs and tests
//
// examples/publisher is a small game server, and examples/arena a game with its players; README.md has a program to
// begin with. Package dnprelaytest runs NATS, a relay and an edge in the process of a test. The examples of this
// package have such a world, too: w.nats is its NATS, for which a program has the URL of its own.
//
// # Traces
//
// Publish and Send put the span of their context into the headers of their messages (traceparent, W3C Trace
// Context). Relays and edges continue the trace.
//
// # Limits
//
// The package does not restore the copy when the game server restarts, because the game
// server knows its own state better. It does not resolve conflicts: if two game servers
// publish one key, the last one wins, and after a change of relays that may be either.
//
// Set, Update and Post do not wait for the network. Close drops what no relay has accepted; call Flush before.
package publisher
