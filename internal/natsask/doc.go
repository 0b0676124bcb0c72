// Package natsask asks NATS many things at once over one connection, without a
// goroutine or a timer for each:
//
//	a, err := natsask.New(natsask.Config{Conn: nc})
//	go a.Run(ctx)
//	a.Ask(natsask.Request{Msg: m, Done: func(reply *nats.Msg, err error) { ... }})
//
// Requests leave in the order of calls, those that wait together in one flush of the
// connection, and each is answered once: with the reply, with ErrNotSent if nobody can
// have received it, or with ErrNoAnswer. How many are under way, how many wait, and how
// long anything takes is bounded. [ParseAck] reads what JetStream answers to a publish.
package natsask
