package sessionlog_test

import (
	"flag"
	"strconv"
	"testing"

	"github.com/dnprelay/dnprelay/internal/mutants"
)

var hunt = flag.Bool("mutants", false, "run the simulation over every deliberate fault (a few minutes)")

// mutantSeeds is the number of seeds within which a fault must be noticed.
const mutantSeeds = 450

var mutantList = []mutants.Mutant{
	{Name: "ack_before_commit", File: "dnp/reliable.go", Old: "(c.log.muted || !c.recv.mayAcknowledge(n))", New: "c.log.muted"},
	{Name: "ack_held_before_commit", File: "dnp/recvwindow.go", Old: "return e != nil && e.store == stored\n", New: "return e != nil && (e.store == stored || n != w.next)\n"},
	{Name: "deliver_before_commit", File: "dnp/recvwindow.go", Old: "w.early[i].store == stored || !logged", New: "w.early[i].store != unasked || !logged"},
	{Name: "due_is_held_twice", File: "dnp/reliable.go", Old: "a = arrivalEarly\n\t\tif c.recv.has(n) {", New: "a = arrivalEarly\n\t\tif false {"},
	{Name: "past_is_not_acknowledged", File: "dnp/recvwindow.go", Old: "case n < w.next || w.has(n):\n", New: "case n < w.next:\n\t\treturn 0, arrivalOutside\n\tcase w.has(n):\n"},
	{Name: "no_write_ahead", File: "dnp/reliable.go", Old: "n < min(w.next, c.log.sent)", New: "n < w.next"},
	{Name: "take_down_before_commit", File: "dnp/link.go", Old: "t.log.linkChanged(id, LinkTakenDown)\n\t\treturn", New: "t.startDown(id)\n\t\treturn"},
	{Name: "no_window_edge", File: "dnp/sendwindow.go", Old: "\t\tw.acknowledged(o)\n", New: ""},
	{Name: "trial_is_not_made", File: "dnp/evidence.go", Old: "return w.long < longTaken && len(w.queue) > 0", New: "return false && len(w.queue) > 0"},
	{Name: "trial_acknowledged_by_a_part", File: "dnp/reliable.go", Old: "if o.seen = o.tries(); !o.seen {", New: "if o.seen = o.tries(); true {"},
	{Name: "replay_without_acks", File: "dnp/journal.go", Old: "if n < ch.Acked ||", New: "if false &&"},
	{Name: "replay_sent_first", File: "dnp/journal.go", Old: "\tc.links.replayAcks(ch, t) // of what earlier changes sent, which made room for these\n", New: ""},
	{Name: "no_fence", File: "sessionlog/memlog/memlog.go", Old: "if last != w.Expect {", New: "if false && last != w.Expect {"},
	{Name: "no_absorb", File: "sessionlog/answer.go", Old: "case s.pending != nil && c.last.Owner == s.owner && c.last.Number == s.number:", New: "case false:"},
	{Name: "stale_is_lost", File: "sessionlog/answer.go", Old: "case asked == ActionAppend: // Stale", New: "case asked == ActionAppend && a.Verdict == fence.Stale && s.phase == Owning:\n\t\ts.end(Action{Kind: ActionLost, Epoch: s.epoch})\n\tcase asked == ActionAppend: // Stale"},
	{Name: "owner_is_the_node", File: "sessionlog/session.go", Old: "owner: cfg.Rand.Uint64()", New: "owner: uint64(cfg.Node[len(cfg.Node)-1])", Run: "^TestTwoAttempts$"},
	{Name: "torn_log_is_read", File: "sessionlog/answer.go", Old: "c.ckpt != nil && k.Previous != entries[i-1].Seq", New: "false"},
	{Name: "gone_offer_is_a_hole", File: "dnp/journal.go", Old: "o.kind = SentProbe\n\t\t\tt.startDown(s.Link)", New: "t.startDown(s.Link)\n\t\t\treturn true", Run: "^TestOfferOfGoneState$"},
	{Name: "previous_is_the_number", File: "sessionlog/undelivered.go", Old: "Previous: u.next,", New: "Previous: ev.Number,"},
	{Name: "an_end_is_told_unread", File: "sessionlog/answer.go", Old: "&& s.revalidate && s.pending.kind == RecordClose:", New: "&& false:", Run: "^TestStoppedEnd$"},
	{Name: "revalidation_speaks", File: "sessionlog/session.go", Old: "s.conn.Mute(true)", New: "s.conn.Mute(false)", Run: "^TestStopped"},
	{Name: "old_answer_ends_revalidation", File: "sessionlog/answer.go", Old: "case outdated: //", New: "case outdated && false: //", Run: "^TestStopped"},
	{Name: "stored_ends_revalidation", File: "sessionlog/write.go", Old: "if !s.revalidate { // the write may", New: "if true { // the write may", Run: "^TestStopped"},
	{Name: "old_proof_ends_revalidation", File: "sessionlog/session.go", Old: "s.pending.proof = false // it may", New: "_ = 0 // it may", Run: "^TestStoppedTwice$"},
	{Name: "revalidation_reads", File: "sessionlog/session.go", Old: "s.revalidate && s.phase == Owning && s.pending == nil && s.shortSince.IsZero():", New: "false:", Run: "^TestStoppedWithoutReads$"},
	{Name: "refused_proof_ends_revalidation", File: "sessionlog/answer.go", Old: "s.revalidate, s.pending.proof = true, false", New: "s.revalidate, s.pending.proof = false, false", Run: "^TestStopped|^TestSimulation$"},
	{Name: "adopted_ends_revalidation", File: "sessionlog/answer.go", Old: "conn.Mute(s.revalidate)", New: "conn.Mute(false)", Run: "^TestStopped"},
	{Name: "queue_of_an_old_hand", File: "sessionlog/answer.go", Old: "if c.last.Hand == nil {", New: "if false {",
		Survives: "a checkpoint follows an adoption at once, unless an offer of the client waits, and the simulated clients make no offers"},
	{Name: "nothing_is_refreshed", File: "sessionlog/write.go", Old: "refresh := !s", New: "refresh := false && !s", Run: "^TestRefresh$"},
	{Name: "refreshed_for_ever", File: "sessionlog/write.go", Old: "s.ckptAt, s.refreshAt = now, time.Time{}", New: "s.ckptAt = now", Run: "^TestRefresh$"},
	{Name: "refreshed_late", File: "sessionlog/session.go", Old: "s.refreshAt.IsZero() || at.Before(s.refreshAt)", New: "true", Run: "^TestRefresh$"},
	{Name: "checkpoint_before_events", File: "sessionlog/write.go", Old: "return s.conn.Reported() && (", New: "return (",
		Survives: "the simulated edge hands events over before it advances the session, as the documentation asks"},
	{Name: "anything_is_absorbed", File: "sessionlog/answer.go", Old: "c.last.Owner == s.owner && c.last.Number == s.number:", New: "tail > s.seq:"},
	{Name: "unknown_counts_as_stored", File: "sessionlog/answer.go", Old: "asked == ActionAppend && a.Verdict == fence.OK:", New: "asked == ActionAppend && (a.Verdict == fence.OK || a.Verdict == fence.Unknown):"},
	{Name: "stale_counts_as_stored", File: "sessionlog/answer.go", Old: "asked == ActionAppend && a.Verdict == fence.OK:", New: "asked == ActionAppend && (a.Verdict == fence.OK || a.Verdict == fence.Stale):"},
	{Name: "another_write_after_unknown", File: "sessionlog/answer.go", Old: "\t\tif s.pending == nil {\n", New: "\t\tif s.pending = nil; s.conn != nil {\n"},
	{Name: "fenced_goes_on", File: "sessionlog/answer.go", Old: "s.end(Action{Kind: ActionLost, Epoch: c.last.Epoch, Node: c.owner})", New: "s.seq, s.pending = c.tail, nil"},
	{Name: "fenced_says_goodbye", File: "sessionlog/session.go", Old: "s.conn.Close(dnp.CloseMoved)", New: "s.conn.Close(dnp.CloseLocal)\n\t\ts.conn.Ended()"},
	{Name: "open_over_the_living", File: "sessionlog/answer.go", Old: "s.phase == Opening && c.closed:", New: "s.phase == Opening:"},
	{Name: "epoch_stays", File: "sessionlog/answer.go", Old: "c.tail, c.last.Epoch+1\n\ts.phase", New: "c.tail, c.last.Epoch\n\ts.phase"},
	{Name: "checkpoint_forgets_undelivered", File: "sessionlog/write.go", Old: "Previous: s.undelivered.previous, Undelivered: s.undelivered.list, Commands: s.commands}", New: "Previous: s.undelivered.next}"},
	{Name: "delivered_is_guessed", File: "sessionlog/answer.go", Old: "s.undelivered.restore(c.ckpt, c.delivered)", New: "s.undelivered.restore(c.ckpt, 1<<62)"},
	{Name: "hand_over_of_any_size", File: "sessionlog/write.go", Old: "s.undelivered.bytes+len(all) <= handBytesMax", New: "true", Run: "^TestHandsQueueOver$"},
	{Name: "hand_over_forgets_the_queue", File: "sessionlog/write.go", Old: "s.undelivered.bytes+len(all) <= handBytesMax", New: "false", Run: "^TestHandsQueueOver$"},
	{Name: "hand_over_counts_no_loss", File: "sessionlog/write.go", Old: "\t\tlost++\n", New: "", Run: "^TestHandsQueueOver$"},
	{Name: "checkpoint_of_what_is_not_stored", File: "dnp/recvwindow.go", Old: "bool { return e.store != unasked || !logged }", New: "bool { return true }"},
	{Name: "feed_starts_anew", File: "sessionlog/answer.go", Old: "conn, c.token, c.commands", New: "conn, c.ckpt.Token/2, c.commands"},
	{Name: "answers_are_forgotten", File: "sessionlog/answer.go", Old: "commands: k.Ckpt.Commands, owner", New: "owner", Run: "^TestCommandsSurvive$"},
	{Name: "answers_are_not_logged", File: "sessionlog/session.go", Old: "\t\tcommands.Note(id)\n", New: "\t\t_ = id\n", Run: "^TestCommandsSurvive$"},
	{Name: "hello_is_forgotten", File: "sessionlog/session.go", Old: "s.commands.OptIn(ev.Number, ev.Data)", New: "_ = ev", Run: "^TestCommandsSurvive$"},
	{Name: "other_format_before_a_checkpoint", File: "sessionlog/answer.go", Old: "if err == ErrFormat {", New: "if false {", Run: "^TestOtherFormat$"},
	{Name: "other_format_is_not_lost", File: "sessionlog/answer.go", Old: "s.phase == Owning && c.tail <= s.seq {", New: "s.phase == Owning {", Run: "^TestOtherFormat$"},
	{Name: "other_format_is_damage", File: "sessionlog/record.go", Old: "if format.Other(f) {", New: "if false {", Run: "^TestOtherRelease$"},
	{Name: "checkpoint_without_changes", File: "sessionlog/write.go", Old: "k.Changes = s.conn.Changes(s.cfg.BlockBytes)", New: "k.Changes = s.conn.Changes(1 << 30)\n\tif ckpt {\n\t\tk.Changes.Received = nil\n\t}"},
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
