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
)

// mutantList contains deliberate faults in what workers do with interests.
var mutantList = []mutants.Mutant{
	// Bands and the grid, seen from the links.
	{Name: "no_hysteresis", File: rulesFile, Old: "square <= r.leave[was] {", New: "false {", Run: "^TestBorders$"},
	{Name: "cell_never_left", File: gridFile, Old: "if cell == o.cell {", New: "if o.state == placed {", Run: "^TestSights$"},
	{Name: "jumps_wait", File: lookFile, Old: "!(square(from, to) <= limit*limit) {", New: "limit < 0 {", Run: "^TestJump$"},

	// A worker that does not follow what it hears.
	{Name: "states_never_move", File: sightFile, Old: "\t\tn.grid.Move(src.object, placeOf(st, src.place))\n\t}\n\tif", New: "\t}\n\tif", Run: "^TestSights$"},
	{Name: "eyes_never_move", File: sightFile, Old: "if e.place >= 0 && values.Has(e.place) {", New: "if false {", Run: "^TestJump$"},
	{Name: "absent_place_counts", File: sightFile, Old: "|| index < 0 || st.IsNull(index)", New: "|| index < 0", Run: "^TestNowhere$"},
	{Name: "eye_of_a_removed_state_stays", File: sightFile, Old: "src.followed, f.st = nil, nil\n\t\tn.locate(f)", New: "src.followed, f.st = nil, nil", Run: "^TestNowhere$"},
	{Name: "late_state_is_no_eye", File: sightFile, Old: "sourcesOf(st).followed = f\n\t\tn.locate(f)", New: "_ = f", Run: "^TestNowhere$"},
	{Name: "interest_changes_unnoticed", File: sightFile, Old: "\t\tn.place(st)\n\t\tif f :=", New: "\t\tif f :=", Run: "^TestRules$"},
	{Name: "links_wait_for_the_next_band", File: sightFile, Old: "\t\t\tn.space.offer(session, st)\n", New: "\t\t\t_, _ = session, st\n", Run: "^TestRules$"},
	{Name: "interest_taken_away_stays", File: sightFile, Old: "if src.rule != nil && src.rule.name != st.Desc.Interest {", New: "if src.rule != nil && st.Desc.Interest != \"\" && src.rule.name != st.Desc.Interest {", Run: "^TestRules$"},
	{Name: "old_eyes_stay", File: sightFile, Old: "\tn.dropEyes(session)\n\tvar points", New: "\tvar points", Run: "^TestJump$"},
	{Name: "sights_outlive_interests", File: sightFile, Old: "n.states == 0 {", New: "n.states < 0 {", Run: "^TestSights$"},
	{Name: "worker_sleeps_over_looks", File: sightFile, Old: "return earlier(next, at.Add(lookStep-time.Duration(at.UnixNano())%lookStep))", New: "_ = at\n\treturn next", Run: "^TestSights$"},

	// Links that are not what the band says.
	{Name: "blind_see_all", File: sightFile, Old: "case src.object == nil, session.sight == nil:\n\t\treturn interest.Beyond", New: "case src.object == nil, session.sight == nil:\n\t\treturn 0", Run: "^TestResumedSight$|^TestUnknownRule$"},
	{Name: "new_states_are_shown", File: spaceFile, Old: "if st.Desc.Interest == \"\" { // else", New: "if true { // else", Run: "^TestBlind$",
		Survives: "a state that was just added is in no band of any session, so it is offered to none"},
	{Name: "sleepers_are_served", File: levelFile, Old: "Silent: k.asleep", New: "Silent: false", Run: "^TestRoomForTheNear$"},
	{Name: "unlink_sleeps", File: spaceFile, Old: "r.says != nil && r.says.Unlink:", New: "r.says != nil && false:", Run: "^TestUnlinkLasts$"},
	{Name: "sleep_unlinks", File: spaceFile, Old: "r.says != nil && r.says.Unlink:", New: "r.says != nil:", Run: "^TestSleepKeepsTheLink$"},
	{Name: "all_bands_weigh_the_same", File: levelFile, Old: "Divisor: k.divisor", New: "Divisor: 1", Run: "^TestNearWeighsMore$"},
	{Name: "band_over_client", File: spaceFile, Old: "return detailed(d.Precision, d.Rate, divisor), true", New: "_ = d", Run: "^TestRules$"},
	{Name: "sleepers_take_all_room", File: spaceFile, Old: "err == dnp.ErrLinks && s.Endpoint.EndSilent(session.conn)", New: "err == dnp.ErrLinks && false", Run: "^TestRoomForTheNear$"},

	// A session of another edge.
	{Name: "restored_before_a_look", File: spaceFile, Old: "\t\t\ts.near.advance(now, now)\n", New: "", Run: "^TestResumedSight$"},
	{Name: "restored_is_blind", File: spaceFile, Old: "\t\t\ts.near.see(now, session)\n", New: "", Run: "^TestResumedSight$"},
	{Name: "restored_judged_too_early", File: spaceFile, Old: "if session.unaligned && st.Desc.Interest != \"\" {", New: "if false {", Run: "^TestResumedSight$"},
}

func TestMutantsApply(t *testing.T) { mutants.Check(t, mutantList) }

func TestMutants(t *testing.T) {
	if !*hunt {
		t.Skip("needs -mutants, because every fault is compiled")
	}
	mutants.Run(t, mutants.Config{Run: "^Test"}, mutantList)
}
