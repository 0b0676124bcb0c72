// Package top is the screen of `dnpctl top`: which spaces, nodes, clients and states a deployment has, the
// busiest first, and why a client has what it has of a state.
//
//	m := top.New(source)
//	tea.NewProgram(m).Run()
//
// The package is the model of a program of bubbletea: it takes keys, sizes and readings of the deployment, and
// returns what the screen shows. It asks through a [Source], has no clock, and keeps one reading and the
// rates that follow from the one before, so a test is a list of messages and a screen.
package top
