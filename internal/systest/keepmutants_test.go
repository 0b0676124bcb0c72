package systest

import (
	"strconv"
	"testing"

	"github.com/dnprelay/dnprelay/internal/mutants"
)

// keepMutantSeeds is within how many seeds of TestKeep a fault must be noticed.
const keepMutantSeeds = 120

// keepMutantList is deliberate faults of edges with sessions in a log. Those of the rules
// themselves are in session/mutants_test.go.
var keepMutantList = []mutants.Mutant{
	{Name: "claims_without_the_space", File: "internal/edge/adopt.go", Old: "case replica.Complete():", New: "case replica != nil:"},
	{Name: "adopted_sees_nothing_new", File: "internal/edge/fanout/space.go", Old: "\t\ts.bringInLine(session, st)\n", New: "\t\t_ = st\n",
		Survives: "all states of the simulation are there before the clients are"},
	{Name: "own_states_are_not_found", File: "internal/edge/fanout/session.go", Old: "return s.own.restore(wire.LinkID(ref))", New: "return nil"},
	{Name: "write_numbers_begin_again", File: "internal/edge/fanout/request.go", Old: "uint32(p.durable)<<24 + p.made", New: "p.made"},
	{Name: "moved_sessions_leave", File: "internal/edge/fanout/session.go", Old: "if reason == dnp.CloseMoved {\n\t\treturn\n\t}", New: ""},
	{Name: "reliable_messages_before_commit", File: "internal/edge/fanout/session.go", Old: "if s.durable == 0 || !ev.Reliable {", New: "if true {",
		Survives: "the game reads the stream, and the simulation's has no subscribers beside it"},
	{Name: "tokens_are_forgotten", File: "internal/edge/fanout/session.go", Old: "s.messages.lastToken = token\n", New: ""},
	{Name: "queued_counts_as_promised", File: "internal/edge/fanout/messages.go", Old: "\t\t\tc.replies[token] = \"\"\n", New: ""},
	{Name: "only_the_newest_of_the_queue_waits", File: "internal/edge/fanout/messages.go", Old: "\t\t\tc.replies[token] = \"\"\n", New: "\t\t\tclear(c.replies)\n\t\t\tc.replies[token] = \"\"\n",
		Survives: "the simulated game waits for an answer before its next token, so only one of the queue has one"},
	{Name: "queued_is_forgotten", File: "internal/edge/fanout/messages.go", Old: "\t\t\tc.lastToken = max(c.lastToken, token)\n", New: ""},
	{Name: "pending_counts_as_promised", File: "internal/edge/fanout/messages.go", Old: "if _, waits := c.replies[first]; waits {", New: "if _, waits := c.replies[first]; waits && false {"},
	{Name: "repetitions_are_sent", File: "internal/edge/fanout/messages.go", Old: "case named && game <= c.lastToken>>tokenShift:", New: "case named && game < c.lastToken>>tokenShift:"},
	{Name: "silent_are_left_alone", File: "internal/edge/silent.go", Old: "k.w.post(0, func(*Worker, time.Time) { k.adopt(b.name", New: "_ = unsure; k.w.post(0, func(*Worker, time.Time) { return; k.adopt(b.name"},
	{Name: "handed_to_nobody", File: "internal/edge/drain.go", Old: "if r.Adopt != \"\" {", New: "if false {"},
	{Name: "handed_is_released", File: "internal/edge/kept.go", Old: "x.feed.End()\n\t\tk.handed", New: "k.release(x)\n\t\tk.handed",
		Run: "^TestHandedToTheDead$"},
	{Name: "lost_is_released", File: "internal/edge/kept.go", Old: "k.lose(now, x)", New: "k.release(x)", Run: "^TestLostToTheDead$"},
	{Name: "lost_is_left_to_the_restarted", File: "internal/edge/lost.go", Old: "k.adopt(c.name, netip.AddrPort{}, false)", New: "k.adopt(c.name, netip.AddrPort{}, true)",
		Run: "^TestLostToTheDead$"},
	{Name: "drain_forgets_those_that_come_back", File: "internal/edge/drain.go", Old: "now.Add(drainRound)", New: "now.Add(time.Hour)"},
	{Name: "strays_are_dropped", File: "internal/edge/stray.go", Old: "\tif first {\n\t\tk.lookUp", New: "\tif first && false {\n\t\tk.lookUp"},
	{Name: "speaks_first", File: "internal/edge/via.go", Old: "to.unheard = to.unheard && k.d.AnswerOnly", New: "to.unheard = false", Run: "^TestKeepTracked$"},
	{Name: "the_next_way_is_a_guess", File: "internal/edge/forward.go", Old: "return k.d.AnswerOnly\n", New: "return k.d.AnswerOnly && from.via == \"\"\n", Run: "^TestKeepTracked$"},
	{Name: "nobody_forwards", File: "internal/edge/stray.go", Old: "if k.d.Forward == nil {", New: "if true {",
		Survives: "sessions go to where the datagrams come, as without a forwarder"},
	{Name: "deliveries_are_not_told", File: "internal/edge/keeper.go", Old: "l.to.core.Delivered(now, k.mail.number(l.to))", New: "k.mail.number(l.to)"},
	{Name: "feed_goes_on_elsewhere", File: "internal/edge/kept.go", Old: "if x.feed != nil {", New: "if false {",
		Survives: "consumers know repetitions by their numbers"},
	{Name: "no_doubt_after_a_stop", File: "internal/edge/keeper.go", Old: "now.Sub(k.turned) > stallMax {", New: "false {"},
	{Name: "adopted_twice_here", File: "internal/edge/silent.go", Old: "if k.w.edge.names.has(b.name, k.w.edge.workers) {", New: "if false {",
		Args: []string{"-keep-seeds", "400"}},
	{Name: "held_datagrams_are_forgotten", File: "internal/edge/adopt.go", Old: "\tk.letIn(now, x.addr)\n", New: "",
		Survives: "clients say it again after half a second"},
}

func TestKeepMutantsApply(t *testing.T) { mutants.Check(t, keepMutantList) }

func TestKeepMutants(t *testing.T) {
	if !*hunt {
		t.Skip("deliberate faults take -mutants, because each is compiled")
	}
	mutants.Run(t, mutants.Config{Run: "^TestKeep$", Args: []string{"-keep-seeds", strconv.Itoa(keepMutantSeeds)}, Rounds: mutants.FirstSeed}, keepMutantList)
}
