// Package natsroles says who may do what on NATS: one table of roles and subjects, and
// the configuration of nats-server that enforces it.
//
//	table := natsroles.Table(natsroles.Config{Subjects: subjects})
//	text := natsroles.Render(table)             // deploy/nats/roles.conf
//	text := natsroles.RenderAccount("a", …)     // a tenant: an account of its own
//
// A role is what a program is: a relay, an edge, a game server, somebody who looks, an
// operator. A role has what its programs do and nothing else; tests run real programs
// with it, and try every role on every subject of a real server against the table that
// people read (deploy/nats/README.md).
//
// It does not make users: names and passwords, or NKeys, are the operator's.
package natsroles
