package systest

import "github.com/dnprelay/dnprelay/internal/mutants"

// hostileArgs play rounds with a twin only.
var hostileArgs = []string{"-seed", "1", "-rounds", "60", "-hostile", "on"}

// twinMutants are faults in the rules of evidence, which a twin must notice in the simulations of
// edges without a log. Where a unit test of dnp notices a fault that needs a lucky guess, as of a
// question's id, there is no such fault here.
var twinMutants = []mutants.Mutant{
	{Name: "close_counts_at_once", File: "dnp/liveness.go", Old: "case c.client:\n\t\tc.life.closeAt = now", New: "case true:\n\t\tc.life.closeAt = now", Run: chaosRun, Args: hostileArgs},
	{Name: "suspects_are_not_asked", File: "dnp/liveness.go", Old: "l.tested = q.askIfAlive() || l.tested", New: "l.tested = true", Run: chaosRun, Args: hostileArgs},
	{Name: "restarts_at_once", File: "dnp/liveness.go", Old: "case now < l.restartAt, c.log.askWaits(l, &c.send):", New: "case false:", Run: chaosRun, Args: hostileArgs},
	{Name: "suspects_are_asked_once", File: "dnp/conn.go", Old: "if c.life.suspected() { // what", New: "if false { // what", Run: troubleRun, Args: hostileArgs},
}

// hostileTakeover plays a round with a twin of each plan and more.
var hostileTakeover = []string{"-takeover-seeds", "60", "-hostile", "on"}

// twinTakeoverMutants are those that a twin must notice in the simulation of durable sessions.
var twinTakeoverMutants = []mutants.Mutant{
	{Name: "contradiction_closes", File: "dnp/reliable.go", Old: "if ok && n >= w.next && c.log.contradicted(now) {\n\t\t\tc.Ask()", New: "if ok && n >= w.next && c.log.contradicted(now) {\n\t\t\tc.Close(CloseUncertain)", Args: hostileTakeover},
	{Name: "any_datagram_changes_the_way", File: "internal/edge/takeover/state.go", Old: "case s.path.Unknown:\n", New: "case s.path.Unknown || s.path.Edge != edge:\n", Args: hostileTakeover},
	{Name: "any_datagram_takes_from_the_living", File: "internal/edge/takeover/adopt.go", Old: "case b.orphans.any(s.client, s.Log.Evident):", New: "case true:", Args: hostileTakeover},
}
