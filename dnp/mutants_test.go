package dnp

import (
	"flag"
	"testing"

	"github.com/dnprelay/dnprelay/internal/mutants"
)

var hunt = flag.Bool("mutants", false, "run a test over every deliberate fault (some minutes)")

const (
	windowFile = "dnp/sendwindow.go"
	recvFile   = "dnp/recvwindow.go"
	pathFile   = "dnp/path.go"
	crowdFile  = "dnp/crowding.go"
	repeatFile = "dnp/reliable.go"
	models     = "dnp/dnptest"
)

// pathMutants are faults in the rules for paths with loss and for narrow ones.
var pathMutants = []mutants.Mutant{
	{Name: "acks_repeated_without_loss", File: repeatFile, Old: "c.acks.sent(n, c.loss.seen > ackLoss, ", New: "c.acks.sent(n, true, ", Run: "^TestAckRepeats$"},
	{Name: "acks_not_repeated", File: recvFile, Old: "if lossy {\n", New: "if false {\n", Run: "^TestAckRepeats$"},
	{Name: "ack_of_nothing_stored", File: repeatFile, Old: "(c.log.muted || !c.recv.mayAcknowledge(n))", New: "c.log.muted", Run: "^TestAckRepeatsLogged$"},
	{Name: "copies_of_the_network_are_loss", File: recvFile, Old: "a != nil && now.sub(a.first) >= lateRepeat", New: "a != nil", Run: "^TestAckRepeats$"},
	{Name: "acks_repeated_for_ever", File: recvFile, Old: "\tr.list = slices.DeleteFunc(r.list, func(a sentAck) bool { return a.n+peerWindow <= newest })\n", New: "", Run: "^TestAckRepeatsStop$"},
	{Name: "old_acks_are_remembered", File: recvFile, Old: "if n+peerWindow <= newest {\n\t\treturn", New: "if n+peerWindow <= newest {\n\t\tr.list = append(r.list, sentAck{n: n})\n\t\treturn", Run: "^TestAckRepeatsStop$"},
	{Name: "each_copy_has_acks_repeated", File: recvFile, Old: "case a.nextTimeout() != never:\n\t\treturn", New: "case false:\n\t\treturn", Run: "^TestAckRepeatsBounded$"},
	{Name: "acks_repeated_over_budget", File: recvFile, Old: "if !p.budget.overdrawn(now) {", New: "if true {", Run: "^TestAckRepeatsBounded$"},
	{Name: "repeated_command_is_timed", File: repeatFile, Old: "o.timed, o.overtook, o.passed, o.seen = now, first, 0, false, false", New: "o.timed, o.overtook, o.passed, o.seen = now, true, 0, false, false", Run: "^TestRepeatAfterRoundTrip$"},
	{Name: "no_back_off", File: windowFile, Old: "<<min(int(o.sends-1)/r.copies, 8)", New: "", Run: "^TestRepeatAfterRoundTrip$"},
	{Name: "copies_to_the_silent", File: pathFile, Old: "if now.sub(l.heard) < most {", New: "if true {", Run: "^TestRepeatAfterRoundTrip$"},
	{Name: "no_frames", File: pathFile, Old: "framesMicros = 40_000", New: "framesMicros = 0", Package: models, Run: "^TestCalmPath$"},
	{Name: "one_overtakes", File: windowFile, Old: "overtakersMin  = 2", New: "overtakersMin  = 1", Run: "^TestOvertaken"},
	{Name: "overtaken_is_lost_at_once", File: pathFile, Old: "max(r.deviation, r.mean/4)", New: "0", Run: "^TestOvertaken"},
	{Name: "repeated_overtakes", File: repeatFile, Old: "\t\t\tc.trip.sample(now.sub(o.first))\n\t\t\tw.overtaken(o)\n", New: "\t\t\tc.trip.sample(now.sub(o.first))\n", Run: "^TestOvertaken"},
	{Name: "needless_repeat_is_loss", File: repeatFile, Old: "\t\t\tc.loss.forgive()\n", New: "", Run: "^TestNeedlessRepeat$"},
	{Name: "no_repeat_is_needless", File: crowdFile, Old: "return inUnits(d) < c.least/2", New: "return false", Run: "^TestNeedlessRepeat$"},
	{Name: "repeats_are_needless", File: crowdFile, Old: "return inUnits(d) < c.least/2", New: "return inUnits(d) < 4*c.least", Package: models, Run: "^TestLossOnShortPath$"},
	{Name: "window_does_not_move_on", File: windowFile, Old: "sendWindowPast = 2 * sendWindowSize", New: "sendWindowPast = sendWindowSize", Run: "^TestWindowPast$"},
	{Name: "useless_repeats", File: windowFile, Old: "return i >= sendWindowSize && w.limit == 0 && i >= sendWindowSize+w.lead() &&", New: "return false &&", Run: "^TestWindowPast$"},
	{Name: "past_window_again_and_again", File: windowFile, Old: " && !w.flight[0].past &&", New: " &&", Run: "^TestWindowPast$"},
	{Name: "oldest_goes_once", File: repeatFile, Old: "copies := r.copies\n", New: "copies := 1\n", Package: models, Run: "^TestManyLinks$"},
	{Name: "linkup_shows_nothing", File: windowFile, Old: "size := sendWindowSize + w.lead()", New: "size := sendWindowSize", Run: "^TestShown$"},
	{Name: "linkup_acknowledges", File: windowFile, Old: "\t\t\to.shown = true\n", New: "\t\t\to.shown, o.acked = true, true\n", Run: "^TestShown$"},
	{Name: "linkup_at_the_wrap", File: windowFile, Old: "size > sendWindowSize && w.nearWrap(p)", New: "false", Run: "^TestShown$"},
	{Name: "order_makes_no_difference", File: windowFile, Old: "o.passed && !r.disorder", New: "false", Run: "^TestOvertakenInOrder$"},
	{Name: "disorder_is_loss", File: windowFile, Old: "o.passed && !r.disorder", New: "o.passed", Run: "^TestOvertakenInOrder$"},
	{Name: "one_burst_is_disorder", File: windowFile, Old: "o.passed = o.passed || earlier", New: "o.passed = true", Run: "^TestOvertakenInOrder$"},
	{Name: "disorder_is_not_seen", File: repeatFile, Old: "if o.passed {", New: "if false {", Run: "^TestOvertakenInOrder$"},
	{Name: "disorder_for_ever", File: repeatFile, Old: "\t\t\t\tc.disorder--\n", New: "", Run: "^TestOvertakenInOrder$"},
	{Name: "second_ack_is_a_guess", File: repeatFile, Old: "if !ok || !w.spare(n) {", New: "if true {", Run: "^TestSparesAreNoGuesses$"},
	{Name: "guesses_are_second_acks", File: windowFile, Old: "\tw.spares--\n", New: "", Run: "^TestSparesAreNoGuesses$"},
	{Name: "offers_in_any_order", File: "dnp/link.go", Old: "return weight(offers[i]) < mine", New: "return mine == 0", Run: "^TestOffersByPriority$"},
	{Name: "messages_over_budget", File: repeatFile, Old: "choice == takeOther && c.send.messageAt", New: "choice == takeOther && false && c.send.messageAt", Package: models, Run: "^TestBottleneck$"},
	{Name: "frames_are_queues", File: crowdFile, Old: "queue > max(crowdedQueue, spread/2)", New: "queue > max(crowdedQueue, 0*spread)", Run: "^TestCrowding$"},
	{Name: "any_delay_is_a_queue", File: crowdFile, Old: "queue > max(crowdedQueue, spread/2)", New: "queue > spread/2", Run: "^TestCrowding$"},
	{Name: "longest_round_trip_counts", File: crowdFile, Old: "min(c.shortest, d), max(", New: "max(c.shortest, d), max(", Run: "^TestCrowding"},
	{Name: "price_never_falls", File: crowdFile, Old: "c.price = max(1, c.price*(1-priceFall*", New: "c.price = max(1, c.price*(1-0*", Run: "^TestCrowdingFalls$"},
	{Name: "price_without_bound", File: crowdFile, Old: "min(c.price*(1+part), max(1, priceMax))", New: "c.price * (1 + part)", Run: "^TestCrowdingFalls$"},
	{Name: "longer_way_is_a_queue", File: crowdFile, Old: "\t\tdrift = 1\n", New: "\t\tdrift = driftLossy\n", Run: "^TestCrowdingFalls$"},
	{Name: "copies_are_timed_from_the_first", File: crowdFile, Old: "d := inUnits(now.sub(o.last))", New: "d := inUnits(now.sub(o.first))", Run: "^TestCrowdingCopies$"},
	{Name: "copies_too_late_count", File: crowdFile, Old: "o.sends == 2 && d < c.least", New: "false", Run: "^TestCrowdingCopies$"},
	{Name: "old_commands_judge_new_prices", File: crowdFile, Old: "case o.last < c.round, !o.timed", New: "case !o.timed", Run: "^TestCrowdingCopies$"},
	{Name: "starved_for_good", File: crowdFile, Old: " && c.price < starvedMost", New: "", Run: "^TestStarved$"},
	{Name: "starved_beside_others", File: repeatFile, Old: "if c.life.sure <= o.last {", New: "if true {", Run: "^TestStarved$"},
	{Name: "not_starved", File: repeatFile, Old: "if c.life.sure <= o.last {", New: "if false {", Run: "^TestStarved$"},
	{Name: "good_paths_are_asked", File: crowdFile, Old: "calm && c.sent < crowdedDatagrams", New: "false && calm", Run: "^TestSamples$"},
	{Name: "only_bad_paths_are_asked", File: crowdFile, Old: "calm && c.sent < crowdedDatagrams", New: "calm", Run: "^TestSamples$"},
	{Name: "idle_paths_are_asked", File: crowdFile, Old: " || p.budget.updated.add(time.Second) < last", New: "", Run: "^TestSamples$"},
	{Name: "price_is_not_paid", File: "dnp/budget.go", Old: "r.perByte * float64(b.crowd.price))", New: "r.perByte)", Package: models, Run: "^TestOverrated$"},
	{Name: "late_acks_are_not_timed", File: pathFile, Old: "return r.mean > 0 && micros(d) > r.mean", New: "return false", Run: "^TestLateTrip$"},
	{Name: "restored_wait_long", File: pathFile, Old: "r.first = min(restoredResend, most)", New: "_ = most", Run: "^TestRestoredResend$"},
	{Name: "repeats_do_not_wait", File: "dnp/flush.go", Old: "(e.urgent || e.repeatsBy <= e.clock.now)", New: "true", Run: "^TestRepeatsWaitForCompany$"},
	{Name: "repeats_wait_for_ever", File: "dnp/flush.go", Old: "(e.urgent || e.repeatsBy <= e.clock.now)", New: "e.urgent", Run: "^TestRepeatsWaitForCompany$"},
	{Name: "sleeps_over_repeats", File: "dnp/endpoint.go", Old: "at = min(at, e.repeatsBy)", New: "_ = at", Run: "^TestRepeatsWaitForCompany$"},
	{Name: "flushed_repeats_are_pending", File: "dnp/flush.go", Old: "e.updateMax, e.urgent, e.repeatsBy = 0, false, never", New: "e.updateMax, e.urgent = 0, false", Run: "^TestRepeatsWaitForCompany$"},
	{Name: "data_without_bytes", File: "dnp/source.go", Old: "s.cfg.State.Layout().Type(i).Sendable(s.cfg.State.Value(i))", New: "s.cfg.State.Value(i)", Package: models, Run: "^TestNoData$"},
	{Name: "no_correction", File: "dnp/conn.go", Old: "\t\tc.correct(len(p), now, out)\n", New: "", Package: models, Run: "^TestReadOnlyWrites$"},
	{Name: "corrections_amplify", File: "dnp/peerlink.go", Old: "room = min(room, size)", New: "room = min(room, 1200)", Run: "^TestReadOnlyAnswers$"},
	{Name: "equal_values_are_corrected", File: "dnp/peerlink.go", Old: "if !differs && t.core", New: "if false && t.core", Run: "^TestReadOnly$"},
	{Name: "inferred_question_is_open", File: "dnp/reliable.go", Old: "\t\tc.e.stats.Inferred += uint64(w.infer(profile, n))\n\t\tc.links.question.acknowledged(now)\n", New: "\t\tc.links.question.acknowledged(now)\n\t\tc.e.stats.Inferred += uint64(w.infer(profile, n))\n", Run: "^TestWindowEdgeQuestion$"},
	{Name: "unanswered_is_not_told", File: "dnp/reliable.go", Old: "c.e.event(c.handle, Event{Kind: EventUnanswered})", New: "_ = c.handle", Run: "^TestUnanswered$"},
	{Name: "unanswered_is_told_again", File: "dnp/reliable.go", Old: "c.life.alarmed = true", New: "c.life.sure = now", Run: "^TestUnanswered$"},
	{Name: "long_ways_are_unanswered", File: "dnp/liveness.go", Old: "after = max(after, 4*trip.longest(unansweredMost/4))", New: "after = max(after, 0)", Run: "^TestUnanswered$"},
	{Name: "no_patience_with_the_restored", File: "dnp/liveness.go", Old: "l.patient = now.add(max(0, restoredTimeout-cfg.ReliableTimeout))", New: "l.patient = now", Run: "^TestRestoredIsUnreachable$"},
	{Name: "presumed_is_linked", File: "dnp/link.go", Old: "kind = EventLinkPresumed", New: "kind = EventLinkUp", Run: "^TestLinkPresumed$"},
	{Name: "frozen_ids_are_free", File: "dnp/journal.go", Old: "\t\tt.ids.useFrozen(s.Link)", New: "", Run: "^TestLoggedFrozenID$"},
	{Name: "missed_linkdown_is_forgotten", File: "dnp/repeat.go", Old: "if p.carried && now.sub(heard)", New: "if false && now.sub(heard)", Run: "^TestLinkDownMissed$"},
	{Name: "missed_linkdown_by_udp", File: "dnp/repeat.go", Old: "if p.carried && now.sub(heard)", New: "if now.sub(heard)", Run: "^TestLinkDownByUDP$"},
	{Name: "heard_and_missed_linkdown", File: "dnp/repeat.go", Old: "now.sub(heard) >= missedSilence && ", New: "", Run: "^TestLinkDownHeard$"},
	{Name: "missed_linkdown_for_ever", File: "dnp/repeat.go", Old: "r.rounds < missedRounds && ", New: "", Run: "^TestLinkDownMissed$"},
	{Name: "missed_linkdown_is_not_handed_over", File: "dnp/repeat.go", Old: "\tfor _, queue := range l.queues {\n\t\tfor _, r", New: "\tfor _, queue := range l.stepQueues() {\n\t\tfor _, r", Run: "^TestLinkDownMissedElsewhere$"},
	{Name: "missed_linkdown_of_a_new_link", File: "dnp/repeat.go", Old: "for step, queue := range l.queues {", New: "for step, queue := range l.stepQueues() {", Run: "^TestLinkDownMissedCancelled$"},
	{Name: "missed_linkdowns_unbounded", File: "dnp/repeat.go", Old: "l.push(len(*l.steps), r) }", New: "l.push(len(*l.steps), r); l.n-- }", Run: "^TestLinkDownsBounded$"},
	{Name: "used_up_in_silence", File: "dnp/linktable.go", Old: "case len(d.index) == d.usable():", New: "case false:", Run: "^TestLinkIDsRunOut$"},
	{Name: "early_commands_are_quiet", File: "dnp/endpoint.go", Old: " && len(c.recv.early) == 0", New: "", Run: "^TestTraffic$"},
	{Name: "open_messages_are_quiet", File: "dnp/endpoint.go", Old: " && c.recv.long.dueAt() == never", New: "", Run: "^TestTraffic$"},
	{Name: "hellos_have_ids_of_links", File: "dnp/proof.go", Old: "const helloSkip = 1024", New: "const helloSkip = 0", Run: "^TestForgottenHello$"},
	{Name: "silent_are_told_unproven", File: "dnp/proof.go", Old: "if u := e.unproven.find(to); u != nil {\n\t\te.unproven.remove(u)\n\t\te.drop(DropLoginTimeout)", New: "{\n\t\te.drop(DropLoginTimeout)", Run: "^TestLoginTimeoutOfOthers$"},
	{Name: "silent_are_greeted_once", File: "dnp/proof.go", Old: "cfg.LoginTimeout-2*greetingPause, cfg.LoginTimeout-greetingPause,", New: "cfg.LoginTimeout-2*greetingPause,", Run: "^TestLoginTimeout"},
	{Name: "logins_are_silent", File: "dnp/proof.go", Old: "\te.silent.forget(from)\n\tkind", New: "\tkind", Run: "^TestLoginTimeoutOfOthers$"},
	{Name: "silence_begins_once", File: "dnp/proof.go", Old: "e.silent.restart(u, now)", New: "_ = u", Run: "^TestLoginTimeoutOfOthers$"},
	{Name: "served_elsewhere_and_greeted", File: "dnp/proof.go", Old: "&& !e.MayProve(from, p) {\n\t\te.silent", New: "&& false {\n\t\te.silent", Run: "^TestLoginTimeoutOfOthers$"},
	{Name: "answers_are_overheard", File: "dnp/proof.go", Old: "&& !e.MayProve(from, p) {\n\t\te.silent", New: "{\n\t\te.silent", Run: "^TestLoginTimeoutOfOthers$"},
	{Name: "silent_unbounded", File: "dnp/proof.go", Old: "min(silentMax, cfg.UnprovenMax)", New: "cfg.UnprovenMax", Run: "^TestSilentPeers$"},
	{Name: "short_message_in_parts", File: windowFile, Old: "return max(WholeMax, cfg.DatagramMax-3)", New: "return cfg.DatagramMax - 3", Run: "^TestLongMessages$"},
	{Name: "trial_is_not_made", File: "dnp/evidence.go", Old: "return w.long < longTaken && len(w.queue) > 0", New: "return false && len(w.queue) > 0", Run: "^TestTrialOfJava$"},
	{Name: "trial_acknowledged_by_a_part", File: repeatFile, Old: "if o.seen = o.tries(); !o.seen {", New: "if o.seen = o.tries(); true {", Run: "^TestTrialOfJava$"},
	{Name: "trial_answered_by_any_id", File: "dnp/evidence.go", Old: "if i < 0 || !isQuestion(id) {", New: "if i < 0 {", Run: "^TestTrialOfNoQuestion$"},
	{Name: "trial_decided_by_one_answer", File: "dnp/evidence.go", Old: "if q.first == 0 {", New: "if false {", Run: "^TestTrialAnswered$"},
	{Name: "repeated_answer_decides", File: "dnp/evidence.go", Old: "!(t.question != nil && t.question.first == id)", New: "true", Run: "^TestTrialAnswered$"},
	{Name: "first_answer_of_java_forgotten", File: "dnp/evidence.go", Old: "(id == o.link || q.first == o.link)", New: "id == o.link", Run: "^TestTrialOfJava$"},
	{Name: "answered_question_presses_the_trial", File: "dnp/evidence.go", Old: "isQuestion(o.link) && o.link != answered {", New: "isQuestion(o.link) {", Run: "^TestTrial"},
	{Name: "no_questions_for_a_trial", File: "dnp/conn.go", Old: "if c.life.doubted || c.send.trial() >= 0 {", New: "if c.life.doubted {", Run: "^TestTrial"},
	{Name: "trial_judged_by_any_answer", File: "dnp/evidence.go", Old: "case w.long == longAsked && (id == o.link || q.first == o.link):", New: "case w.long == longAsked:", Run: "^TestTrialUnclear$"},
	{Name: "trial_goes_on_as_a_part", File: "dnp/evidence.go", Old: "func (w *sendWindow) rests(o *outgoing) bool { return o.seen && w.long == longTried }", New: "func (w *sendWindow) rests(o *outgoing) bool { return false }", Run: "^TestTrial"},
	{Name: "late_answer_is_no_verdict", File: "dnp/evidence.go", Old: "q.unclear = o.link", New: "_ = o.link", Run: "^TestTrialLateAnswer$"},
	{Name: "lost_part_is_a_verdict", File: "dnp/evidence.go", Old: "if w.long = longVague; o.seen {", New: "if w.long = longVague; true {", Run: "^TestTrialOfOld$"},
	{Name: "trial_inferred_blindly", File: windowFile, Old: "(o.sends < edgeSendings || o.tries())", New: "o.sends < edgeSendings", Run: "^TestTrialNearWrap$"},
	{Name: "trials_unbounded", File: windowFile, Old: "if w.trials >= trialsMax {", New: "if false {", Run: "^TestTrial"},
	{Name: "link_0_answers_a_trial", File: "dnp/evidence.go", Old: "q.unclear != 0 && m.Link == q.unclear", New: "m.Link == q.unclear", Run: "^TestTrialOfNoLink$"},
	{Name: "trial_of_an_earlier_owner_forgotten", File: "dnp/evidence.go", Old: "return !w.untried() || w.trial() >= 0", New: "return !w.untried()", Run: "^TestTrialTakenOver$"},
	{Name: "parts_in_the_log_are_forgotten", File: "dnp/journal.go", Old: "case SentPart:\n\t\tw.long", New: "case SentFrozen + 1:\n\t\tw.long", Run: "^TestTrialInTheLog$"},
	{Name: "trial_of_a_server", File: "dnp/conn.go", Old: "c.send.long = longTaken // a server", New: "// a server", Run: "^TestTrialOfClient$"},
	{Name: "farewell_refused_and_link_kept", File: "dnp/evidence.go", Old: "if m.takeDown {", New: "if false {", Run: "^TestTrialFarewell$"},
	{Name: "parts_are_repeated_at_once", File: "dnp/source.go", Old: "case r.expected > 0:\n", New: "case false:\n", Run: "^TestRefreshOfParts$"},
	{Name: "parts_hold_up_the_rest", File: "dnp/source.go", Old: "case r.expected > 0 && r.part:", New: "case false:", Run: "^TestRefreshOfParts$"},
	{Name: "last_part_is_not_repeated", File: "dnp/source.go", Old: "if !r.more {", New: "if true {", Run: "^TestRefreshOfParts$"},
	{Name: "stuck_is_a_timeout", File: windowFile, Old: "return CloseStuck", New: "return CloseTimeout", Run: "^TestStuck$"},
	{Name: "repeats_are_not_kept", File: repeatFile, Old: "\t\tc.send.keeps(n, o.kind == SentProbe, c.e.cfg.Profile, c.log)\n", New: "", Package: models, Run: "^TestLaps$"},
	{Name: "second_acks_mean_nothing", File: repeatFile, Old: "if ok && n < w.next {", New: "if false {", Run: "^TestLapSecondAck$"},
	{Name: "old_second_acks_mean_nothing", File: repeatFile, Old: "if ok && n < w.next {", New: "if ok && n < w.next && n >= w.base() {", Run: "^TestLapSecondAck$"},
	{Name: "lap_one_longer", File: repeatFile, Old: "end := l.first - 1 + l.modulus - 1\n", New: "end := l.first - 1 + l.modulus\n", Run: "^TestLap"},
	{Name: "lap_ends_at_the_wrap", File: repeatFile, Old: "\t\tend -= beyond\n", New: "\t\t_ = beyond\n", Package: models, Run: "^TestLaps$"},
	{Name: "lap_of_the_latest", File: repeatFile, Old: "if l.first > 0 && l.first <= n+1 {", New: "if false {", Package: models, Run: "^TestLaps$"},
	{Name: "lap_is_never_over", File: repeatFile, Old: "return len(w.flight) == 0 && w.next >= w.lap.end()", New: "return false", Run: "^TestLapSecondAck$"},
	{Name: "lap_over_with_commands_in_flight", File: repeatFile, Old: "return len(w.flight) == 0 && w.next >= w.lap.end()", New: "return w.next >= w.lap.end()", Run: "^TestLapSecondAck$"},
	{Name: "lap_over_and_asleep", File: "dnp/conn.go", Old: "if c.send.lapNear() || c.send.lapOver() {", New: "if c.send.lapNear() {", Run: "^TestLapSecondAck$"},
	{Name: "lap_is_not_handed_over", File: "dnp/snapshot.go", Old: "\tw.restoreRepeats(kept, p)\n", New: "", Package: models, Run: "^TestLaps$"},
	{Name: "lap_is_not_logged", File: "dnp/journal.go", Old: "l.unasked, ch.Repeats = false, c.send.repeats()", New: "l.unasked = false", Run: "^TestLapRestored$"},
	{Name: "logged_lap_is_not_replayed", File: "dnp/journal.go", Old: "\tc.send.restoreRepeats(ch.Repeats, c.e.cfg.Profile)\n", New: "", Run: "^TestLapRestored$"},
	{Name: "lost_meaning_is_a_no_op", File: "dnp/journal.go", Old: "\t\t\tw.keeps(s.Number, false, t.core.cfg.Profile, nil)\n", New: "", Run: "^TestLapLostMeaning$"},
	{Name: "no_ops_are_commands", File: repeatFile, Old: "if noOp && (found ||", New: "if false && (found ||", Package: models, Run: "^TestLaps$"},
	{Name: "no_ops_are_nothing", File: windowFile, Old: "case w.lap.reserves(w.next):", New: "case false:", Run: "^TestLapNoOps$"},
	{Name: "no_ops_wait", File: windowFile, Old: " || w.question != nil || w.lap.reserves(w.next)", New: " || w.question != nil", Run: "^TestLapNoOpAlone$"},
	{Name: "no_ops_unbounded", File: repeatFile, Old: "len(l.noOps) < noOpsMax && uint64", New: "uint64", Run: "^TestLapNoOpsMax$"},
	{Name: "no_ops_at_the_wrap", File: repeatFile, Old: " && uint64(place) < l.modulus-edgeDistance", New: "", Run: "^TestLapModel$"},
	{Name: "ours_keep_repeats", File: repeatFile, Old: "if w.peerForgets {", New: "if false {", Run: "^TestLapForgets$"},
	{Name: "early_pings_are_forgotten", File: "dnp/proof.go", Old: "c.send.keepsFirst(peer.step > 1,", New: "c.send.keepsFirst(false,", Run: "^TestLapUnfinished$"},
	{Name: "early_hellos_are_forgotten", File: "dnp/proof.go", Old: "c.send.keepsFirst(peer.step != hello.n,", New: "c.send.keepsFirst(false,", Run: "^TestLapUnfinished$"},
	{Name: "long_messages_wait_for_ever", File: "dnp/evidence.go", Old: "if w.long != longLimited {", New: "if true {", Run: "^TestTrialOfJava$"},
}

func TestMutantsApply(t *testing.T) { mutants.Check(t, pathMutants) }

func TestMutants(t *testing.T) {
	if !*hunt {
		t.Skip("deliberate faults take -mutants, because each is compiled")
	}
	mutants.Run(t, mutants.Config{}, pathMutants)
}
