// Package natsfrom brings the reliable messages of clients to the game servers for
// certain: it publishes them to the JetStream stream DNP_FROM, each session's in order,
// and says when they are stored.
//
//	from, err := natsfrom.Open(ctx, natsfrom.Config{Conn: nc, Replicas: 3})
//	go from.Run(ctx)
//	feed := from.Begin(natsfrom.Source{Space: "demo", Client: "c1", Session: id}, func(number uint64) {
//		post(func() { s.Delivered(now, number) })
//	})
//	feed.Deliver(action.Message) // ActionDeliver
//	feed.End()                   // the session is over or elsewhere
//
// A session has one message under way. It is published again until it is confirmed, and
// the next one only then; so what is in the stream is always all up to some message, in
// order, whichever edges published it. What two edges publish, or one twice, has the
// same Nats-Msg-Id and is stored once. A game server that was away goes on where it was,
// and knows by Dnp-Number what it has already.
//
// Subscribers without JetStream get the same messages on the same subject, at most once
// or, after a fault, twice.
package natsfrom
