package fanout

import (
	"flag"
	"testing"

	"github.com/dnprelay/dnprelay/internal/mutants"
)

var hunt = flag.Bool("mutants", false, "run the tests against every deliberate fault")

const (
	rulesFile = "interest/rule.go"
	gridFile  = "interest/grid.go"
	lookFile  = "interest/bander.go"
	sightFile = "internal/edge/fanout/interest.go"
	spaceFile = "internal/edge/fanout/space.go"
	levelFile = "internal/edge/fanout/levels.go"
	tellFile  = "internal/edge/fanout/sightings.go"
	dueFile   = "internal/edge/fanout/calendar.go"
	nearFile  = "internal/edge/fanout/nearby.go"

	sessionFile = "internal/edge/fanout/session.go"
	memberFile  = "internal/edge/fanout/membership.go"
	askFile     = "internal/edge/fanout/request.go"
)

// mutantList contains deliberate faults in what workers do with interests.
var mutantList = []mutants.Mutant{
	// Bands and the grid, seen from the links.
	{Name: "no_hysteresis", File: rulesFile, Old: "square <= r.leave[was] {", New: "false {", Run: "^TestBorders$"},
	{Name: "cell_never_left", File: gridFile, Old: "if cell == o.cell {", New: "if o.state == placed {", Run: "^TestSights$"},
	{Name: "jumps_wait", File: lookFile, Old: "!(square(from, to) <= limit*limit) {", New: "limit < 0 {", Run: "^TestJump$"},

	// A worker that does not follow what it hears.
	{Name: "states_never_move", File: sightFile, Old: "\t\tn.grid.Move(src.object, placeOf(st, src.place))\n\t\tn.noteJump(st, src)\n\t}\n\tif", New: "\t}\n\tif", Run: "^TestSights$"},
	{Name: "jumps_wait_for_a_look", File: sightFile, Old: "\t\tn.noteJump(st, src)\n\t}\n\tif", New: "\t}\n\tif", Run: "^TestJumpUnlinks$"},
	{Name: "rules_change_without_a_check", File: sightFile, Old: "\t\tn.noteJump(st, src)\n\t\treturn", New: "\t\treturn", Run: "^TestJumpUnlinks$"},
	{Name: "sleepers_jump", File: sightFile, Old: "if src.rule.says.Unlink && n.grid", New: "if n.grid", Run: "^TestJumpSleeps$"},
	{Name: "eyes_never_move", File: sightFile, Old: "if e.place >= 0 && values.Has(e.place) {", New: "if false {", Run: "^TestJump$"},
	{Name: "absent_place_counts", File: sightFile, Old: "|| index < 0 || st.IsNull(index)", New: "|| index < 0", Run: "^TestNowhere$"},
	{Name: "eye_of_a_removed_state_stays", File: sightFile, Old: "src.followed, f.st = nil, nil\n\t\tn.locate(f)", New: "src.followed, f.st = nil, nil", Run: "^TestNowhere$"},
	{Name: "late_state_is_no_eye", File: sightFile, Old: "sourcesOf(st).followed = f\n\t\tn.locate(f)", New: "_ = f", Run: "^TestNowhere$"},
	{Name: "interest_changes_unnoticed", File: sightFile, Old: "\t\tn.place(st)\n\t\tif f :=", New: "\t\tif f :=", Run: "^TestRules$"},
	{Name: "links_wait_for_the_next_band", File: sightFile, Old: "\t\t\tn.space.offer(session, st)\n", New: "\t\t\t_, _ = session, st\n", Run: "^TestRules$"},
	{Name: "interest_taken_away_stays", File: sightFile, Old: "if src.rule != nil && src.rule.name != st.Desc.Interest {", New: "if src.rule != nil && st.Desc.Interest != \"\" && src.rule.name != st.Desc.Interest {", Run: "^TestRules$"},
	{Name: "old_eyes_stay", File: sightFile, Old: "\tn.dropEyes(session)\n\tvar points", New: "\tvar points", Run: "^TestJump$"},
	{Name: "sights_outlive_interests", File: sightFile, Old: "n.states == 0 {", New: "n.states < 0 {", Run: "^TestSights$"},
	{Name: "worker_sleeps_over_looks", File: sightFile, Old: "return earlier(next, at.Add(lookStep))", New: "_ = at\n\t\treturn next", Run: "^TestSights$"},

	// Links that are not what the band says.
	{Name: "blind_see_all", File: sightFile, Old: "case src.object == nil, session.sight == nil:\n\t\treturn interest.Beyond", New: "case src.object == nil, session.sight == nil:\n\t\treturn 0", Run: "^TestResumedSight$|^TestUnknownRule$"},
	{Name: "new_states_are_shown", File: spaceFile, Old: "if st.Desc.Interest == \"\" { // else", New: "if true { // else", Run: "^TestBlind$",
		Survives: "a state that was just added is in no band of any session, so it is offered to none"},
	{Name: "sleepers_are_served", File: levelFile, Old: "Silent: k.asleep", New: "Silent: false", Run: "^TestRoomForTheNear$"},
	{Name: "unlink_sleeps", File: spaceFile, Old: "r.says != nil && r.says.Unlink:", New: "r.says != nil && false:", Run: "^TestUnlinkLasts$"},
	{Name: "sleep_unlinks", File: spaceFile, Old: "r.says != nil && r.says.Unlink:", New: "r.says != nil:", Run: "^TestSleepKeepsTheLink$"},
	{Name: "all_bands_weigh_the_same", File: levelFile, Old: "Divisor: k.divisor", New: "Divisor: 1", Run: "^TestNearWeighsMore$"},
	{Name: "levels_are_early", File: dueFile, Old: "l.dueAt == 0 || l.dueAt > now {", New: "l.dueAt == 0 {", Run: "^TestCalendarModel$"},
	{Name: "levels_need_a_batch", File: dueFile, Old: "last := now/calendarStep - 1", New: "last := c.first - 1", Run: "^TestCalendarModel$"},
	{Name: "batches_are_not_joined", File: dueFile, Old: "\t\tlast += 2 //", New: "\t\tlast += 0 //", Run: "^TestCalendarModel$"},
	{Name: "worker_sleeps_over_levels", File: dueFile, Old: "return (n + 1) * calendarStep, true", New: "return (n + 3) * calendarStep, true", Run: "^TestCalendarModel$"},
	{Name: "levels_that_hurry_stay", File: dueFile, Old: "l.slot != 0 && l.slot <= n {", New: "l.slot != 0 {", Run: "^TestCalendarModel$"},
	{Name: "changes_reach_no_level", File: levelFile, Old: "\t\t\tl.lacks.Or(s.changed)\n", New: "", Run: "^TestRepeatsOfLevelsWait$|^TestSights"},
	{Name: "rates_do_not_hold", File: levelFile, Old: "case now < l.freeAt:\n\t\tl.dueAt = l.freeAt\n\tcase l.source", New: "case false:\n\tcase l.source", Run: "^TestRates$"},
	{Name: "band_over_client", File: spaceFile, Old: "return detailed(d.Precision, d.Rate, divisor), true", New: "_ = d", Run: "^TestRules$"},
	{Name: "sleepers_take_all_room", File: spaceFile, Old: "err == dnp.ErrLinks && s.Endpoint.EndSilent(session.conn)", New: "err == dnp.ErrLinks && false", Run: "^TestRoomForTheNear$"},

	// What game servers are told of who sees what.
	{Name: "all_interests_ask", File: tellFile, Old: "r.says != nil && r.says.Events }", New: "r.says != nil }", Run: "^TestSightings"},
	{Name: "each_change_is_told", File: tellFile, Old: "if x.seen != x.told {", New: "if true {", Run: "^TestSightings"},
	{Name: "told_at_once", File: tellFile, Old: "session.watched.dueAt = now.Add(sightingsInterval)", New: "session.watched.dueAt = now", Run: "^TestSightingsCollect$"},
	{Name: "changed_interest_is_told", File: tellFile, Old: "case r.asks() || r != nil && r.says == nil:", New: "case r.asks():", Run: "^TestSightingsFollowRules$"},
	{Name: "only_what_is_linked_is_told", File: spaceFile, Old: "\t}\n\ts.sightings.note(session, st, band)", New: "\t}\n\tif _, src, _ := linkTo(session.conn, st); src != nil {\n\t\ts.sightings.note(session, st, band)\n\t}", Run: "^TestSightings"},
	{Name: "group_left_is_not_told", File: spaceFile, Old: "\t\t\t\ts.sightings.note(session, st, interest.Beyond)\n\t\t\t}", New: "\t\t\t}", Run: "^TestSightingsFollowRules$|^TestSightingsModel$"},
	{Name: "audience_left_is_not_told", File: spaceFile, Old: "\t\ts.sightings.note(session, st, interest.Beyond)\n\t\treturn", New: "\t\treturn", Run: "^TestSightingsFollowRules$|^TestSightingsModel$"},
	{Name: "what_went_is_not_told", File: tellFile, Old: "\tif len(unsees.Keys) > 0 {", New: "\tif false {", Run: "^TestSightings$"},
	{Name: "ended_states_are_told", File: spaceFile, Old: "\t\t\tsession.watched.forget(st)\n", New: "\t\t\t_ = st\n", Run: "^TestSightings"},
	{Name: "sightings_stay", File: tellFile, Old: "if x.told = x.seen; !x.seen {", New: "if x.told = x.seen; false {", Run: "^TestSightings$"},
	{Name: "unwanted_sightings_stay", File: tellFile, Old: "\t\tsession.watched.forget(st) // the", New: "\t\t_ = st // the", Run: "^TestSightingsFollowRules$"},
	{Name: "wrong_sighting_unlisted", File: tellFile, Old: "w.changed[x.place-1], moved.place = moved, x.place", New: "w.changed[x.place-1] = moved", Run: "^TestSightings"},
	{Name: "crowds_in_one_event", File: tellFile, Old: "len(sees.Keys)+len(unsees.Keys) < sightingsKeysMax", New: "true", Run: "^TestSightingsBounds$"},
	{Name: "long_keys_in_one_event", File: tellFile, Old: " && bytes < sightingsBytesMax", New: " && bytes < 1<<30", Run: "^TestSightingsAreShort$"},
	{Name: "rest_of_a_crowd_is_lost", File: tellFile, Old: "\tif len(w.changed) > 0 {\n\t\tn.want(session)", New: "\tif len(w.changed) > 0 {", Run: "^TestSightingsBounds$"},
	{Name: "clients_without_limit", File: tellFile, Old: "due < len(n.queue) && n.count < sightingsMax", New: "due < len(n.queue)", Run: "^TestSightingsBounds$"},
	{Name: "clients_limited_for_ever", File: tellFile, Old: "\tif !now.Before(n.ends) {", New: "\tif false {", Run: "^TestSightingsBounds$"},
	{Name: "worker_sleeps_over_news", File: tellFile, Old: "\t\treturn earlier(next, at)\n", New: "\t\treturn next\n", Run: "^TestSightings"},
	{Name: "waiting_clients_sleep", File: tellFile, Old: "\treturn earlier(next, n.ends)", New: "\treturn next", Run: "^TestSightingsBounds$"},
	{Name: "restored_is_not_told_anew", File: spaceFile, Old: "\t\t\ts.sightings.begin(session)\n", New: "", Run: "^TestSightingsOfRestored$"},
	{Name: "always_anew", File: tellFile, Old: "\tw.anew = false\n", New: "", Run: "^TestSightingsOfRestored$"},
	{Name: "gone_sessions_are_told", File: spaceFile, Old: "\ts.sightings.leave(session)\n", New: "", Run: "^TestSightingsOfRestored$"},
	{Name: "unwanted_links_are_told", File: sessionFile, Old: "r != nil && !r.asks()", New: "r != nil && false", Run: "^TestLinksOfInterests$"},
	{Name: "no_links_of_interests_are_told", File: sessionFile, Old: "r != nil && !r.asks()", New: "r != nil", Run: "^TestLinksOfInterests$"},
	{Name: "presumed_links_of_interests_are_not_told", File: sessionFile, Old: "typ == replication.EventLinked && r != nil", New: "r != nil", Run: "^TestLinksOfInterests$"},

	// Who is near.
	{Name: "far_clients_are_near", File: nearFile, Old: "*x.Distance <= *n.query.Within)", New: "true)", Run: "^TestNear$"},
	{Name: "blind_clients_are_near", File: nearFile, Old: "return x.Distance != nil && (", New: "return (x.Distance == nil || ", Run: "^TestNear$"},
	{Name: "who_sees_is_not_asked", File: nearFile, Old: "case n.query.Sees != \"\" && !x.Sees:", New: "case false:", Run: "^TestNear$"},
	{Name: "audience_does_not_matter", File: nearFile, Old: "band != interest.Beyond && n.space.includes(n.state, session)", New: "band != interest.Beyond", Run: "^TestNear$"},
	{Name: "distances_between_all_axes", File: nearFile, Old: "\tif axes, ok := interest.ParseAxes(n.query.Axes); ok {", New: "\tif axes, ok := interest.ParseAxes(n.query.Axes); ok && false {", Run: "^TestNear$"},
	{Name: "null_is_a_place", File: nearFile, Old: "n.axes == 0 || math.IsInf(n.axes.Distance(n.at, n.at), 1)", New: "n.axes == 0", Run: "^TestNear$"},
	{Name: "no_eyes_without_interests", File: nearFile, Old: "\tfor _, x := range n.space.replica.Eyes(session.Claims.Client) {", New: "\tfor _, x := range n.space.replica.Eyes(\"\") {", Run: "^TestNear$"},

	// A session of another edge.
	{Name: "restored_before_a_look", File: spaceFile, Old: "\t\t\ts.near.advance(now, now, true)\n", New: "", Run: "^TestResumedSight$"},
	{Name: "restored_is_blind", File: spaceFile, Old: "\t\t\ts.near.see(now, session)\n", New: "", Run: "^TestResumedSight$"},
	// When game servers hear of a session.
	{Name: "joined_at_once", File: memberFile, Old: "\tp.patience = now.Add(joinPatience)\n", New: "\tp.announce(now)\n", Run: "^TestOrderOfEvents$"},
	{Name: "left_at_once", File: memberFile, Old: "\t\td.left = &left\n", New: "\t\td.left = &left\n\t\td.heard()\n", Run: "^TestOrderOfEvents$"},
	{Name: "writes_before_joined", File: sessionFile, Old: "next = s.advanceJoin(now, next); s.announced {", New: "next = s.advanceJoin(now, next); true {", Run: "^TestOrderOfEvents$"},
	{Name: "messages_before_joined", File: "internal/edge/fanout/messages.go", Old: "c.wait(now, len(m.Data), func() { c.publish(m) })", New: "c.publish(m)", Run: "^TestOrderOfEvents$"},
	{Name: "links_before_joined", File: askFile, Old: "p.wait(now, eventSize, func() { p.Emit(ev) })", New: "p.Emit(ev)", Run: "^TestOrderOfEvents$"},
	{Name: "what_waited_is_lost", File: memberFile, Old: "\t\tpublish()\n\t}\n}", New: "\t\t_ = publish\n\t}\n}", Run: "^TestOrderOfEvents$"},
	{Name: "leaves_unheard", File: memberFile, Old: "\tif p.announce(now) {\n", New: "\tif p.announced {\n", Run: "^TestOrderOfEvents$"},

	{Name: "restored_judged_too_early", File: spaceFile, Old: "if session.unaligned && st.Desc.Interest != \"\" {", New: "if false {", Run: "^TestResumedSight$"},
}

func TestMutantsApply(t *testing.T) { mutants.Check(t, mutantList) }

func TestMutants(t *testing.T) {
	if !*hunt {
		t.Skip("needs -mutants, because every fault is compiled")
	}
	mutants.Run(t, mutants.Config{Run: "^Test"}, mutantList)
}
