// Package natstest starts clusters of NATS servers with JetStream inside a test, and stops and restarts
// single servers.
//
//	c := natstest.Start(t, 3)
//	nc := c.Connect(t)
//	c.Stop(c.StreamLeader("DNP_STORE_0"))
//
// The servers have routes over loopback, so a stream with three replicas goes through the same Raft as on
// three machines. Stop is an orderly shutdown of a server, not a kill: a leader steps down first, so
// elections are shorter than after a crash.
//
// A [Proxy] disturbs the connection of one client.
package natstest
