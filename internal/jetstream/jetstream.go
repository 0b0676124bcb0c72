// Package jetstream is what the adapters of leases and of session logs share of NATS
// JetStream beyond the client library: fenced publishes, the verdicts on their answers,
// streams that belong to one deployment, and a [Requester], which has thousands of requests
// under way without a goroutine or a timer for each:
//
//	r, err := jetstream.NewRequester(jetstream.RequesterConfig{Conn: nc})
//	go r.Run(ctx)
//	r.Send(jetstream.Request{Msg: m, Done: func(reply *nats.Msg, err error) { ... }})
//
// A fenced publish is a message on which [Expect] was called. [Judge] judges the answer.
package jetstream
