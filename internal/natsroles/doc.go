// Package natsroles defines permissions on NATS: a table of roles and subjects, and the configuration of
// nats-server that enforces it.
//
//	table := natsroles.Table(natsroles.Config{Subjects: subjects})
//	text := natsroles.Render(table)             // deploy/nats/roles.conf
//	text := natsroles.RenderAccount("a", …)     // a tenant: an account of its own
//
// There is a role for each kind of program: relay, edge, game server, observer, operator. A role has the
// permissions that its programs need and no others; tests run real programs with it, and try every role on
// every subject of a real server against the table for operators (deploy/nats/README.md).
//
// The package does not make users: names and passwords, or NKeys, are the operator's.
package natsroles
