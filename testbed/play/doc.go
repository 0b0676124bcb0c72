// Package play is what plays on a deployment under test: clients modelled on the deployed
// client libraries, a game server made with package publisher, and a balancer between
// clients and edges that can also impair the path. What they do and see goes to a history,
// which package history judges.
package play
