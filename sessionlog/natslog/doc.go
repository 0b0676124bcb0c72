// Package natslog is [sessionlog.Log] over JetStream. The logs of all sessions lie in a few
// streams, with one subject for each session.
//
//	log, err := natslog.Open(ctx, natslog.Config{Conn: nc, Replicas: 3})
//	go log.Run(ctx)
//	log.Append(action.Write, func(a sessionlog.Answer) { post(session, a) })
//
// Each write expects the sequence of the last one of its subject, so the store itself refuses
// an owner that was replaced. Writes that wait together leave in one flush of the
// connection and are stored or refused individually. Reads go to the leader of the stream,
// backwards from the last write to the last checkpoint.
//
// With Config.Copy the log is one of three copies, each on a server of its own, which goes on without
// the others; package quorumlog makes one log of three.
//
// There is no goroutine per session: a few goroutines send, watch timeouts and take answers.
// They call the answer functions, which must not block. DESIGN.md has the reasons and the
// cost.
package natslog
