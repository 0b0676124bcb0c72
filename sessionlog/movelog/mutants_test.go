package movelog

import (
	"flag"
	"strconv"
	"testing"

	"github.com/dnprelay/dnprelay/internal/mutants"
)

var hunt = flag.Bool("mutants", false, "run the simulation over every deliberate fault (some minutes)")

// mutantSeeds is the number of seeds within which a fault must be noticed.
const mutantSeeds = 600

const (
	moverFile  = "sessionlog/movelog/mover.go"
	recordFile = "sessionlog/movelog/record.go"
	logFile    = "sessionlog/movelog/log.go"
)

var mutantList = []mutants.Mutant{
	{Name: "copy_over_a_later_life", File: moverFile, Old: "case r.kind == gone && r.generation < q.generation:", New: "case r.kind == gone:", Run: "^TestForgotten$"},
	{Name: "outdated_data_is_the_copy", File: moverFile, Old: "r.kind == data && r.tail > q.mark:", New: "r.kind == data:", Run: "^TestOutdated$"},
	{Name: "an_empty_answer_is_believed", File: moverFile, Old: "case r.kind == none: // it may", New: "case r.kind == none && r.generation > 0: // it may", Run: "^TestForgotten$"},
	{Name: "empty_means_forgotten", File: moverFile, Old: "\tcase r.kind == none: // it may be an outdated answer, which the store would refuse to go with\n\t\tp := record{kind: gone, generation: q.generation}\n\t\tm.put(o, inReplicated, p, p.encode())\n\tcase r.kind == gone, r.kind == data && r.tail", New: "\tcase r.kind == none, r.kind == gone, r.kind == data && r.tail", Run: "^TestOutdated$"},
	{Name: "old_move_is_finished_again", File: moverFile, Old: "r.kind == moved && r.generation > q.generation:\n\t\tm.toQuorum(o)", New: "r.kind == moved:\n\t\tm.toQuorum(o)"},
	{Name: "data_of_an_earlier_life", File: moverFile, Old: "case q.kind == gone && r.kind != none && r.tail <= q.mark:", New: "case false:"},
	{Name: "one_look_is_enough", File: moverFile, Old: "\tcase o.unsure:\n", New: "\tcase false:\n", Run: "^TestBetweenReads$"},
	{Name: "a_change_is_confirmed", File: moverFile, Old: "m.known[inReplicated] = m.at[inQuorum].tail == tail", New: "_ = tail", Run: "^TestBetweenReads$"},
	{Name: "unsure_is_remembered", File: moverFile, Old: "if o.unsure || a.Verdict", New: "if a.Verdict",
		Survives: "a write is refused unless it names the sequence of one entry that has, with the shift of another stay, that of another"},
	{Name: "no_trace_of_old_logs", File: moverFile, Old: "q.kind == none && (home == inReplicated || o.want == inReplicated):", New: "q.kind == none && home != inReplicated && o.want == inReplicated:", Run: "^TestLastRelease$"},
	{Name: "no_trace_of_new_logs", File: moverFile, Old: "q.kind == none && (home == inReplicated || o.want == inReplicated):", New: "q.kind == none && home == inReplicated:"},
	{Name: "the_end_moves", File: moverFile, Old: "!w.Rollup || w.Final || o.stay", New: "!w.Rollup || o.stay", Run: "^TestEnds$"},
	{Name: "any_write_moves", File: moverFile, Old: "o.want == home || !w.Rollup || w.Final", New: "o.want == home || w.Final"},
	{Name: "gone_before_the_copy", File: moverFile, Old: "case r.kind == gone && r.generation < q.generation:", New: "case false && r.generation < q.generation:"},
	{Name: "moved_counts_as_stored", File: moverFile, Old: "\t\t\to.committed = true\n\t\t\tm.advance(o)", New: "\t\t\tm.end(o, sessionlog.Answer{Verdict: fence.OK, Seq: m.last() + 1})"},
	{Name: "committed_is_last_for_ever", File: moverFile, Old: "if o.committed { // it is not", New: "if false { // it is not"},
	{Name: "refused_although_committed", File: moverFile, Old: "\tif a.Verdict != fence.OK && o.committed {\n", New: "\tif false {\n", Run: "^TestRefusedCopy$"},
	{Name: "always_blind", File: logFile, Old: "may >= l.vacant", New: "may >= 0", Run: "^TestLastRelease$"},
	{Name: "blind_in_any_mode", File: logFile, Old: "may >= 0 && l.cfg.Mode == Quorum {", New: "may >= 0 {"},
	{Name: "may_is_not_asked", File: logFile, Old: "if !l.cfg.May() {", New: "if false {"},
	{Name: "sequences_start_at_one", File: moverFile, Old: "return max(seq+1, uint64(m.now().UnixMicro()))", New: "return seq + 1"},
	{Name: "sequences_fall", File: moverFile, Old: "shift := max(q.seq, q.mark) - q.mark //", New: "shift := uint64(0) //"},
	{Name: "previous_is_not_rebased", File: moverFile, Old: "w.Data = sessionlog.Rebase(w.Data, -q.shift)", New: "w.Data = sessionlog.Rebase(w.Data, 0)"},
	{Name: "read_without_rebase", File: recordFile, Old: "Data: sessionlog.Rebase(e.Data, shift)}", New: "Data: e.Data}"},
	{Name: "generation_stays", File: moverFile, Old: "generation: m.at[inQuorum].generation + 1, seq", New: "generation: m.at[inQuorum].generation, seq"},
	{Name: "generations_start_at_one", File: moverFile, Old: "return max(m.at[inReplicated].generation, uint64(m.now().UnixMilli()))", New: "return 1"},
	{Name: "no_mark", File: moverFile, Old: "p.mark = m.at[inReplicated].tail", New: "p.mark = 0"},
	{Name: "a_later_mark", File: moverFile, Old: "p.mark = m.at[inReplicated].tail", New: "p.mark = m.at[inReplicated].tail + 2"},
	{Name: "other_store_is_not_prepared", File: moverFile, Old: "\tcase o.ready:\n", New: "\tcase true:\n"},
	{Name: "too_large_to_move", File: moverFile, Old: "len(w.Data) > movedMax ||", New: "", Run: "^TestRemains$"},
	{Name: "tries_again_at_once", File: moverFile, Old: "m.now().Before(m.stayTo):", New: "false:", Run: "^TestRemains$"},
	{Name: "trace_is_not_renewed", File: moverFile, Old: "if p.time-q.time < uint64(traceTime/time.Second) {", New: "if true {", Run: "^TestTrace$"},
	{Name: "moved_stays_behind", File: moverFile, Old: "q.kind == data && m.known[inReplicated] && r.kind == moved {", New: "false {", Run: "^TestThereAndBack$"},
	{Name: "next_release_is_overwritten", File: moverFile, Old: "case m.here().kind == other, w.Expect", New: "case w.Expect", Run: "^TestOtherFormat$"},
	{Name: "answer_within_the_call", File: logFile, Old: "l.cfg.After(0, func() { answer(sessionlog.Answer{Verdict: fence.Busy}) })", New: "answer(sessionlog.Answer{Verdict: fence.Busy})", Run: "^TestBounds$"},
	{Name: "over_the_living", File: moverFile, Old: "a.Verdict == fence.OK && (r.kind == data || r.kind == other):", New: "a.Verdict == fence.OK && r.kind == other:"},
	{Name: "unknown_counts_as_stored", File: moverFile, Old: "\t\tif a.Verdict == fence.OK {\n\t\t\tp.tail = a.Seq\n\t\t\tm.at[s], m.known[s] = p, true", New: "\t\tif a.Verdict == fence.Unknown {\n\t\t\ta.Verdict = fence.OK\n\t\t}\n\t\tif a.Verdict == fence.OK {\n\t\t\tp.tail = a.Seq\n\t\t\tm.at[s], m.known[s] = p, true"},
	{Name: "refused_steps_are_skipped", File: moverFile, Old: "\t\t\tm.counts.conflicts.Add(1)\n\t\t\tm.lookAgain(o)", New: "\t\t\tm.at[s], o.changed = place{record: r, tail: m.at[s].tail + 1}, true\n\t\t\tm.advance(o)"},
	{Name: "reads_use_what_is_known", File: moverFile, Old: "\tcase o.write == nil:\n\t\tm.forget()\n", New: "", Run: "^TestThereAndBack$"},
	{Name: "replicated_store_is_read_first", File: moverFile, Old: "\tcase !m.known[inQuorum]:\n", New: "\tcase !m.known[inReplicated]:\n\t\tm.look(o, inReplicated, func() {})\n\tcase !m.known[inQuorum]:\n"},
	{Name: "replicated_store_decides", File: moverFile, Old: "q := m.at[inQuorum].kind\n\tif q == gone ||", New: "q := m.at[inQuorum].kind\n\tif m.at[inReplicated].kind == data || q == gone ||"},
	{Name: "no_queue", File: moverFile, Old: "if len(m.queue) == 1 {", New: "if true {", Run: "^TestBounds$"},
	{Name: "damaged_for_the_last_release", File: recordFile, Old: "recordFormat  = format.Max", New: "recordFormat  = format.Max + 1", Run: "^TestRecordOfOthers$"},
	{Name: "old_entries_of_the_store", File: recordFile, Old: "\t\t\tp.plain = nil\n", New: "", Run: "^TestPlaces$"},
	{Name: "moved_is_forgotten", File: moverFile, Old: "Expect: m.at[s].tail, Data: data, Rollup: true}", New: "Expect: m.at[s].tail, Data: data, Rollup: true, Final: true}"},
	{Name: "reads_do_not_finish_moves", File: moverFile, Old: "\tcase q.kind == moved:\n\t\tm.toReplicated(o)\n", New: "\tcase q.kind == moved && o.write != nil:\n\t\tm.toReplicated(o)\n"},
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
