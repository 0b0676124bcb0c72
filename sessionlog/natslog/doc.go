// Package natslog is session.Log over JetStream: the logs of all sessions, in a few
// streams with one subject per session.
//
//	log, err := natslog.Open(ctx, natslog.Config{Conn: nc, Replicas: 3})
//	go log.Run(ctx)
//	batches := session.NewBatches[*session.Session](log.Shards())
//	batches.Flush(func(_ int, writes []session.Write, sessions []*session.Session) {
//		log.Append(writes, func(i int, a session.Answer) { post(sessions[i], a) })
//	})
//
// Each write expects the sequence of the last one of its subject, so the store itself
// refuses whoever was replaced. Writes that are appended together leave in one flush of
// the connection and are stored or refused each by itself. Reads go to the leader of the
// stream, backwards from the last write to the last checkpoint.
//
// There is no goroutine per session: some few send, keep the time and take answers.
// Answers are called from these, and must not block. DESIGN.md has the reasons and the
// cost.
package natslog
