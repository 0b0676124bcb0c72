package systest

import (
	"slices"
	"strconv"
	"testing"

	"github.com/dnprelay/dnprelay/internal/mutants"
)

// takeoverMutantSeeds is the number of seeds of TestTakeover within which a fault must be
// noticed.
const takeoverMutantSeeds = 120

// takeoverMutants is deliberate faults of edges with durable sessions. Those of the session
// rules are in sessionlog/mutants_test.go.
var takeoverMutants = []mutants.Mutant{
	{Name: "claims_without_the_space", File: "internal/edge/takeover/adopt.go", Old: "case b.host.Follow(now, s.About.Space), b.knows(now, s):", New: "case true:"},
	{Name: "long_message_without_trial", File: "dnp/evidence.go", Old: "return w.long < longTaken && len(w.queue) > 0", New: "return false && len(w.queue) > 0"},
	{Name: "trial_counts_when_acknowledged", File: "dnp/reliable.go", Old: "if o.seen = o.tries(); !o.seen {", New: "if o.seen = o.tries(); true {"},
	{Name: "trial_of_an_earlier_owner_forgotten", File: "dnp/evidence.go", Old: "return !w.untried() || w.trial() >= 0", New: "return !w.untried()"},
	{Name: "adopted_sees_nothing_new", File: "internal/edge/fanout/space.go", Old: "\t\ts.unlinkWrong(session, st, false)\n\t\ts.offer(session, st)\n", New: "\t\t_ = st\n",
		Survives: "all states of the simulation are there before the clients are"},
	{Name: "own_states_are_not_found", File: "internal/edge/fanout/session.go", Old: "return s.ownStates.restore(wire.LinkID(ref))", New: "_ = wire.LinkID(ref)\n\t\treturn nil"},
	{Name: "write_numbers_begin_again", File: "replication/writenumber.go", Old: "return uint32(epoch)<<numberCountBits + n, wide", New: "return n, wide"},
	{Name: "numbers_of_held_writes_are_forgotten", File: "dnp/snapshot.go", Old: "c.Writes().Hold(id, index, write, r.bytes())", New: "_ = write\n\t\tc.Writes().Hold(id, index, 0, r.bytes())"},
	{Name: "refused_by_another_link", File: "internal/edge/fanout/writes.go", Old: "Link: v.link, Index", New: "Index"},
	{Name: "moved_sessions_leave", File: "internal/edge/fanout/session.go", Old: "if reason == dnp.CloseMoved {\n\t\treturn\n\t}", New: ""},
	{Name: "reliable_messages_before_commit", File: "internal/edge/fanout/commands.go", Old: "\t\tif !durable {\n", New: "\t\tif true {\n",
		Survives: "the game reads the stream, and the simulated game has no other subscribers"},
	{Name: "tokens_are_forgotten", File: "internal/edge/fanout/session.go", Old: "s.messages.lastToken = token\n", New: ""},
	{Name: "queued_counts_as_promised", File: "internal/edge/fanout/messages.go", Old: "\t\t\tc.replies[token] = \"\"\n", New: ""},
	{Name: "only_the_newest_of_the_queue_waits", File: "internal/edge/fanout/messages.go", Old: "\t\t\tc.replies[token] = \"\"\n", New: "\t\t\tclear(c.replies)\n\t\t\tc.replies[token] = \"\"\n",
		Args: []string{"-takeover-seeds", "600"}},
	{Name: "queued_is_forgotten", File: "internal/edge/fanout/messages.go", Old: "\t\t\t\tc.lastToken = max(c.lastToken, token)\n", New: "\t\t\t\t_ = answer\n"},
	{Name: "pending_counts_as_promised", File: "internal/edge/fanout/messages.go", Old: "if _, waits := c.replies[first]; waits {", New: "if _, waits := c.replies[first]; waits && false {"},
	{Name: "answers_are_forgotten", File: "internal/edge/fanout/commands.go", Old: "c.progress, c.replayed = progress, received", New: "c.progress, c.replayed = command.Progress{Hello: progress.Hello}, received"},
	{Name: "answers_that_wait_are_forgotten", File: "internal/edge/fanout/commands.go", Old: "\t\t\tc.progress.Note(id)\n\t\t}\n\t}\n\tif", New: "\t\t\t_ = id\n\t\t}\n\t}\n\tif"},
	{Name: "own_states_are_no_targets_by_link", File: "internal/edge/fanout/commands.go", Old: "return c.ownStates.at(q.Link)", New: "return nil"},
	{Name: "own_states_are_no_targets_by_key", File: "internal/edge/fanout/commands.go", Old: "return own.key == q.Key", New: "return false"},
	{Name: "replayed_commands_are_refused_again", File: "internal/edge/fanout/commands.go", Old: "case ev.Number >= c.replayed:", New: "case true:"},
	{Name: "answer_that_java_refuses_is_lost", File: "internal/edge/fanout/session.go", Old: "\ts.commands.unsendable(ev.Token)\n", New: ""},
	{Name: "repetitions_are_sent", File: "internal/edge/fanout/messages.go", Old: "if game == 0 || game > c.lastToken>>tokenShift {", New: "if game == 0 || game >= c.lastToken>>tokenShift {"},
	{Name: "silent_are_left_alone", File: "internal/edge/takeover/claims.go", Old: "if err == nil && found.Trying != c.cfg.Node {", New: "if true {"},
	{Name: "handed_to_none", File: "internal/edge/peers.go", Old: "case r.Adopt != \"\":", New: "case false:"},
	{Name: "handed_is_released", File: "internal/edge/takeover/drain.go", Old: "\ts.endFeed()\n\tif s.toWorker", New: "\td.release(s)\n\tif s.toWorker",
		Run: "^TestHandedToTheDead$"},
	{Name: "lost_is_released", File: "internal/edge/takeover/takeover.go", Old: "t.lose(now, s, a.Node)", New: "t.release(s)", Run: "^TestLostToTheDead$"},
	{Name: "lost_is_left_to_the_restarted", File: "internal/edge/takeover/claims.go", Old: "s := c.adopt(claim.name, netip.AddrPort{}, false)", New: "s := c.adopt(claim.name, netip.AddrPort{}, true)",
		Run: "^TestLostToTheDead$"},
	{Name: "inherited_is_left_to_the_restarted", File: "internal/edge/takeover/claims.go", Old: "claim.overdue && c.superseded", New: "false && c.superseded", Run: carriedRun,
		Args: []string{"-takeover-first", "233", "-takeover-seeds", "1"}},
	{Name: "drain_forgets_those_that_come_back", File: "internal/edge/takeover/drain.go", Old: "now.Add(drainRound)", New: "now.Add(time.Hour)"},
	{Name: "orphans_are_dropped", File: "internal/edge/takeover/adopt.go", Old: "\tif first {\n\t\tb.lookUp", New: "\tif first && false {\n\t\tb.lookUp"},
	{Name: "sends_first", File: "internal/edge/takeover/state.go", Old: "p.Unknown = p.Unknown && b.cfg.AnswerOnly", New: "p.Unknown = false", Run: "^TestTakeoverTracked$"},
	{Name: "the_next_path_is_a_guess", File: "internal/edge/takeover/takeover.go", Old: "return t.cfg.AnswerOnly\n", New: "return t.cfg.AnswerOnly && path.Edge == \"\"\n", Run: "^TestTakeoverTracked$"},
	{Name: "forwards_nothing", File: "internal/edge/takeover/state.go", Old: "if b.cfg.Forward == nil {", New: "if true {"},
	{Name: "deliveries_are_not_told", File: "internal/edge/worker.go", Old: "f.worker.takeover.Delivered(now, f.session, f.number.Load())", New: "_ = now"},
	{Name: "feed_goes_on_elsewhere", File: "internal/edge/takeover/session.go", Old: "if s.feed != nil {", New: "if false {",
		Survives: "consumers know repetitions by their numbers"},
	{Name: "no_revalidation_after_a_stop", File: "internal/edge/takeover/takeover.go", Old: "now.Sub(t.turned) > stallMax {", New: "false {"},
	{Name: "adopted_twice_here", File: "internal/edge/takeover/claims.go", Old: "if !c.locations.present(claim.name) {", New: "if true {",
		Args: []string{"-takeover-seeds", "600"}},
	{Name: "carried_wait_for_ever", File: "internal/edge/carried.go", Old: "c.Resumes())\n\t\t}\n\t\tr.w.setReachable(c.Addr())", New: "c.Resumes())\n\t\t}",
		Run: carriedRun, Args: carriedArgs, Survives: "the edge asks a client whose connection ended, and the answer shows the same"},
	{Name: "carried_elsewhere_wait", File: "internal/edge/carried.go", Old: "case w.takeover != nil && !w.takeover.Directly(client):", New: "case false:", Run: carriedRun, Args: carriedArgs},
	{Name: "carried_unknown_is_not_told", File: "internal/edge/takeover/search.go", Old: "return s.Log.Phase() == sessionlog.Over && s.About.ID == \"\"", New: "_ = sessionlog.Over\n\t\treturn false", Run: "^TestCarriedUnknown$"},
	{Name: "carried_lost_and_not_searched", File: "internal/edge/takeover/search.go", Old: "s != nil && s.path == (Path{}) && s.stays() {", New: "s != nil && false {", Run: carriedRun, Args: carriedArgs},
	{Name: "carried_elsewhere_is_not_told", File: "internal/edge/takeover/search.go", Old: "\t\tb.announce(now, client)", New: "\t\t_ = now", Run: "^TestCarriedMoves$"},
	{Name: "missed_linkdown_is_forgotten", File: "dnp/repeat.go", Old: "if p.carried && now.sub(heard)", New: "if false && now.sub(heard)", Run: "^TestCarriedAway$"},
	{Name: "late_datagrams_of_carried_count", File: "internal/edge/takeover/state.go", Old: "(o.edge != s.left || !now.Before(s.leftUntil))", New: "true", Run: carriedRun, Args: carriedArgs,
		Survives: "what the client says next shows the way; only a pause gets longer"},
	{Name: "forged_in_the_name_of_carried", File: "internal/edge/worker.go", Old: "w.impostors++\n\t\t\tcontinue", New: "w.impostors++", Run: "^TestCarriedForged$"},
	{Name: "held_datagrams_are_forgotten", File: "internal/edge/takeover/adopt.go", Old: "\tb.receiveHeld(now, s.client)\n\tb.reply(s)", New: "\tb.reply(s)",
		Survives: "clients send them again after half a second"},
}

// carriedRun plays clients that come by a carrier, as many seeds as takeoverMutantSeeds.
const carriedRun = "^TestTakeoverCarried$"

var carriedArgs = []string{"-takeover-seeds", strconv.Itoa(3 * takeoverMutantSeeds)}

func TestTakeoverMutantsApply(t *testing.T) {
	mutants.Check(t, slices.Concat(takeoverMutants, twinTakeoverMutants))
}

func TestTakeoverMutants(t *testing.T) {
	if !*hunt {
		t.Skip("deliberate faults take -mutants, because each is compiled")
	}
	mutants.Run(t, mutants.Config{Run: "^TestTakeover$", Args: []string{"-takeover-seeds", strconv.Itoa(takeoverMutantSeeds)}, Rounds: mutants.FirstSeed}, slices.Concat(takeoverMutants, twinTakeoverMutants))
}
