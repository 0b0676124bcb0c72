package quorumlog_test

import (
	"flag"
	"strconv"
	"testing"

	"github.com/dnprelay/dnprelay/internal/mutants"
)

var hunt = flag.Bool("mutants", false, "run the simulation over every deliberate fault (a few minutes)")

// mutantSeeds is the number of seeds within which a fault must be noticed.
const mutantSeeds = 400

const (
	recordFile   = "sessionlog/quorumlog/record.go"
	ledgerFile   = "sessionlog/quorumlog/ledger.go"
	leadFile     = "sessionlog/quorumlog/lead.go"
	storeFile    = "sessionlog/quorumlog/store.go"
	followerFile = "sessionlog/quorumlog/follower.go"
	readFile     = "sessionlog/quorumlog/read.go"
	logFile      = "sessionlog/quorumlog/log.go"
)

var mutantList = []mutants.Mutant{
	{Name: "one_copy_leads", File: leadFile, Old: "case count(a.tails, 0) == quorum:", New: "case count(a.tails, 0) == 1:"},
	{Name: "one_copy_stores", File: storeFile, Old: "case n == quorum && !s.o.over:", New: "case n == 1 && !s.o.over:"},
	{Name: "history_of_one_copy", File: leadFile, Old: "h := history(a.known[:]) // what", New: "h := history(a.known[:1]) // what"},
	{Name: "history_is_the_longest", File: recordFile, Old: "cmp.Or(c.data.compare(best.data), cmp.Compare(c.end(), best.end()))", New: "cmp.Or(cmp.Compare(c.end(), best.end()), c.data.compare(best.data))"},
	{Name: "served_before_the_state", File: leadFile, Old: "l.store(o, ld, l.states(ld.ballot, o.entries))", New: "last := len(o.entries) - 1\n\tr := record{kind: kindNext, ballot: ld.ballot, previous: h.end(), entries: o.entries[last:]}\n\tl.store(o, ld, []item{{data: r.append(nil)}})"},
	{Name: "ballot_of_a_node", File: leadFile, Old: "uint64(a.l.now().UnixMilli())), a.l.rand.Uint64()}", New: "uint64(a.l.now().UnixMilli())>>12), 1}"},
	{Name: "ballot_below_others", File: leadFile, Old: "max(top.counter+1, uint64", New: "max(1, uint64"},
	{Name: "ballot_without_time", File: leadFile, Old: "max(top.counter+1, uint64(a.l.now().UnixMilli()))", New: "top.counter+1", Run: "^TestEndIsOutvoted$"},
	{Name: "ballots_without_random", File: recordFile, Old: "cmp.Compare(b.random, o.random))", New: "0)", Run: "^TestSettled$"},
	{Name: "lead_counts_as_data", File: recordFile, Old: "if next = 0; len(r.entries) > 0 {\n\t\t\t\tc.data, c.entries", New: "if c.data, next = r.ballot, 0; len(r.entries) > 0 {\n\t\t\t\tc.data, c.entries"},
	{Name: "parts_count_incomplete", File: recordFile, Old: "if r.kind == kindState && next == r.parts {", New: "if r.kind == kindState {"},
	{Name: "entry_of_another_ballot", File: recordFile, Old: "r.ballot == c.data && r.ballot == c.top && r.previous == c.end():", New: "len(c.entries) > 0 && r.previous == c.end():", Run: "^TestRead$"},
	{Name: "forgetful_copy_stays", File: followerFile, Old: "\tf.leave(fence.Unreachable)\n\tf.found, f.forgot = nil, true", New: "\tf.found, f.forgot = nil, true", Run: "^TestForgot$"},
	{Name: "forgetful_copy_waits", File: ledgerFile, Old: "(f.found != nil || f.forgot)", New: "f.found != nil", Run: "^TestForgot$"},
	{Name: "every_log_is_forgotten", File: logFile, Old: "h.lead != nil && lost(h.name)", New: "h.lead != nil", Run: "^TestForgot$"},
	{Name: "torn_copy_is_led", File: leadFile, Old: "case c.torn:", New: "case false:"},
	{Name: "torn_copy_stays", File: leadFile, Old: "case c.torn && a.ld != nil:", New: "case false:", Run: "^TestSequenceGivenAway$"},
	{Name: "torn_copy_waits", File: followerFile, Old: "\t\tcase c.torn:\n\t\t\tf.forgot = true\n", New: "\t\tcase c.torn:\n", Run: "^TestSequenceGivenAway$"},
	{Name: "torn_copy_is_read", File: readFile, Old: "&& ok && !c.torn {", New: "&& ok {"},
	{Name: "torn_before_a_lead", File: recordFile, Old: "len(c.entries) == 0 && !begins", New: "false", Run: "^TestRead$"},
	{Name: "lead_hides_the_end", File: leadFile, Old: "\tif c.ended() {\n\t\tr.data", New: "\tif false {\n\t\tr.data"},
	{Name: "old_content_after_a_race", File: leadFile, Old: "a.known[i], a.asked[i] = &c, false\n", New: "if a.asked[i] = false; a.known[i] == nil {\n\t\t\t\ta.known[i] = &c\n\t\t\t}\n\t\t\ta.known[i].tail = c.tail\n"},
	{Name: "higher_ballot_is_ignored", File: leadFile, Old: "case a.ballot != ballot{} && c.top.compare(a.ballot) >= 0:\n", New: "case false:\n"},
	{Name: "any_history_is_followed", File: leadFile, Old: "\tif !o.follows(h) {\n\t\ta.refuse()\n\t\treturn\n\t}\n", New: ""},
	{Name: "zombie_takes_the_lead", File: leadFile, Old: "case !a.o.follows(h): //", New: "case false: //", Run: "^TestCost$"},
	{Name: "own_entry_twice", File: leadFile, Old: "if o.write != nil && !o.in(h) {", New: "if o.write != nil {"},
	{Name: "own_entry_is_another", File: ledgerFile, Old: "return o.write.Expect == h.end() || o.in(h)", New: "return o.write.Expect == h.end()", Run: "^TestConformance$"},
	{Name: "checkpoint_keeps_what_precedes", File: leadFile, Old: "\t\tif o.write.Rollup {\n\t\t\to.entries = nil\n\t\t}\n", New: ""},
	{Name: "sequences_collide", File: ledgerFile, Old: "return ld.end + 1 + l.rand.Uint64N(1<<40)\n", New: "return ld.end + 1\n", Run: "^TestSequences$"},
	{Name: "lead_after_no_answer", File: ledgerFile, Old: "\t\tl.lead = nil\n\t}\n\tl.queue = l.queue[1:]", New: "\t}\n\tl.queue = l.queue[1:]", Run: "^TestNoAnswer$"},
	{Name: "expected_sequence_is_ignored", File: ledgerFile, Old: "|| o.write.Expect != ld.end ||", New: "||"},
	{Name: "copy_that_missed_something_counts", File: followerFile, Old: "f.place, f.queue = out, nil", New: "f.queue, f.busy = nil, false"},
	{Name: "no_copy_comes_back", File: ledgerFile, Old: "case o.write.Rollup && l.regains(o, ld):", New: "case false:", Run: "^TestOneForgets$"},
	{Name: "every_checkpoint_takes_the_lead", File: ledgerFile, Old: "case o.write.Rollup && l.regains(o, ld):", New: "case o.write.Rollup:", Run: "^TestLeaderless$"},
	{Name: "refused_reads_bring_back", File: followerFile, Old: "case a.Verdict != fence.OK || !ok ||", New: "case !ok ||", Run: "^TestLeaderless$"},
	{Name: "away_is_looked_at_all_the_time", File: ledgerFile, Old: "if now.Sub(ld.looked) < lookPause {", New: "if false {", Run: "^TestLeaderless$"},
	{Name: "members_are_read_to_regain", File: ledgerFile, Old: "case f.place == member && len(f.queue) == 0:", New: "case false:", Run: "^TestCost$"},
	{Name: "checkpoint_waits", File: followerFile, Old: "\tif list[0].state {", New: "\tif false {", Run: "^TestCheckpointReplaces$"},
	{Name: "queue_of_any_length", File: followerFile, Old: "return len(f.queue) >= queueRecords ||", New: "return", Run: "^TestSlowCopy$"},
	{Name: "queue_of_any_size", File: followerFile, Old: "|| size > queueBytes", New: "", Run: "^TestLargeQueue$"},
	{Name: "forgotten_at_once", File: ledgerFile, Old: "rollup: len(parts) == 1})", New: "rollup: len(parts) == 1, final: part[len(part)-1].final})", Run: "^TestEnd$"},
	{Name: "end_is_not_insisted_on", File: storeFile, Old: "\tl.after(endRetry, l.insist)\n}\n\n// insist", New: "}\n\n// insist", Run: "^TestEnd$"},
	{Name: "end_is_insisted_on_for_ever", File: storeFile, Old: "case l.now().After(l.endUntil):", New: "case false:", Run: "^TestEnd$"},
	{Name: "no_write_back", File: readFile, Old: "settled(k.known[:], best) &&", New: "true &&"},
	{Name: "settled_under_any_ballot", File: recordFile, Old: "c.data == best.data && c.end() == best.end())", New: "c.end() == best.end())", Run: "^TestSettled$"},
	{Name: "third_copy_is_not_awaited", File: readFile, Old: "(len(best.entries) > 0 || !waiting)", New: "true", Run: "^TestEmpty$"},
	{Name: "late_answer_is_believed", File: logFile, Old: "s.expireUntil(now) //", New: "_ = now //", Run: "^TestStopped$"},
	{Name: "away_is_asked", File: logFile, Old: "if g.under > 0 && now.Sub(g.since) > awayAfter {", New: "if false {", Run: "^TestAway$"},
	{Name: "away_for_ever", File: logFile, Old: "\t\tif now.Before(g.probe) {\n", New: "\t\tif !g.probe.IsZero() {\n", Run: "^TestAway$"},
	{Name: "answer_within_the_call", File: logFile, Old: "give := func() { answer(a) }; during {", New: "give := func() { answer(a) }; during && false {", Run: "^TestBounds$"},
	{Name: "request_waits_for_ever", File: logFile, Old: "\t\t\td.l.giveUp(d.o)\n", New: ""},
	{Name: "any_number_of_requests", File: ledgerFile, Old: "if len(l.queue) >= opsMax {", New: "if false {", Run: "^TestBounds$"},
	{Name: "any_number_of_logs", File: logFile, Old: "if len(s.ledgers) < s.log.cfg.ledgersMax/shards {", New: "if true {", Run: "^TestBounds$"},
	{Name: "unused_logs_stay", File: logFile, Old: "now.Sub(h.used) >= unused) {", New: "false) {", Run: "^TestBounds$"},
}

func TestMutantsApply(t *testing.T) { mutants.Check(t, mutantList) }

func TestMutants(t *testing.T) {
	if !*hunt {
		t.Skip("deliberate faults take -mutants, because each is compiled")
	}
	mutants.Run(t, mutants.Config{
		Run: "^TestSimulation$", Args: []string{"-seeds", strconv.Itoa(mutantSeeds)}, Rounds: mutants.FirstSeed,
	}, mutantList)
}
