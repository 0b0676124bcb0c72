// Package natsroles says which program may do what on NATS: one table of roles and
// subjects, and the configuration of nats-server that enforces it.
//
//	table := natsroles.Table(natsroles.Config{Subjects: subjects})
//	text := natsroles.Render(table)             // deploy/nats/roles.conf
//	text := natsroles.RenderAccount("a", …)     // a tenant: an account of its own
//
// The roles are relay, edge, publisher (a game server), observer and admin. A role may do
// what its programs do and nothing else; tests run real programs with it, and try every role
// on every subject of a real server against the table in deploy/nats/README.md.
//
// The package does not make users: names and passwords, or NKeys, are the operator's.
package natsroles
