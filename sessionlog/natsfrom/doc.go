// Package natsfrom brings the reliable messages of clients to the game servers without loss:
// it publishes the messages of each session in order to the JetStream stream DNP_FROM, and
// reports when they are stored.
//
//	from, err := natsfrom.Open(ctx, natsfrom.Config{Conn: nc, Replicas: 3})
//	go from.Run(ctx)
//	feed := from.Begin("demo", "c1", id, func(number uint64) {
//		post(func() { s.Delivered(now, number) })
//	})
//	feed.Deliver(action.Message) // ActionDeliver
//	feed.End()                   // the session is over or elsewhere
//
// A session has one message under way, which is published again until the stream confirms it;
// then the next one follows. So the stream always has all messages up to some number, in
// order, whichever edges published them. Messages that two edges publish, or one edge twice,
// have the same Nats-Msg-Id and are stored once. A game server that was away goes on where it
// was, and recognizes by Dnp-Number which messages it has.
//
// Subscribers without JetStream get the same messages on the same subject, at most once or,
// after a fault, twice.
package natsfrom
