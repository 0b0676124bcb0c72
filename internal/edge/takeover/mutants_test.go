package takeover

import (
	"flag"
	"testing"

	"github.com/dnprelay/dnprelay/internal/mutants"
)

var hunt = flag.Bool("mutants", false, "put deliberate faults into the package")

const searchFile = "internal/edge/takeover/search.go"

// searchMutants is deliberate faults of the search for clients that only listen.
var searchMutants = []mutants.Mutant{
	{Name: "taken_over_and_not_searched", File: "internal/edge/takeover/takeover.go", Old: "if s.search.silent {", New: "if false {", Run: "^TestSearch$"},
	{Name: "unanswered_and_not_searched", File: "internal/edge/takeover/takeover.go", Old: "\t\t\tt.seek(now, s)\n\t\t}\n\t\ts.Log.Handle", New: "\t\t\t_ = s\n\t\t}\n\t\ts.Log.Handle", Run: "^TestMovedSilently$"},
	{Name: "searched_by_the_old_way_only", File: searchFile, Old: "t.host.Direct(s.client, p)", New: "_ = p", Run: "^TestMovedSilently$"},
	{Name: "searched_by_one_edge", File: searchFile, Old: "min(len(edges), searchersMax)", New: "min(len(edges), 1)", Run: "^TestSearch$"},
	{Name: "searched_by_all_datagrams", File: searchFile, Old: "return s.spread <= spreadMost", New: "return true", Run: "^TestSearchBounds$"},
	{Name: "searched_once", File: searchFile, Old: "\t\tb.ask(s) // if", New: "\t\t// if", Run: "^TestEdgeLostInDoubt$"},
	{Name: "former_ways_are_not_searched", File: "internal/edge/takeover/datagrams.go", Old: "return o.edge == edge && o.until.After(now)", New: "return o.edge == edge", Run: "^TestSearchByFormerWay$"},
	{Name: "lost_edge_is_not_noticed", File: searchFile, Old: "case s.stays():\n\t\t\tb.seek(now, s)\n\t\tcase s.adopting", New: "case s.stays():\n\t\tcase s.adopting", Run: "^TestEdgeLost$"},
	{Name: "lost_edge_is_not_noticed_in_a_takeover", File: searchFile, Old: "case s.adopting():\n\t\t\ts.search.silent = true", New: "case s.adopting():", Run: "^TestEdgeLostMeanwhile$"},
	{Name: "stop_is_forgotten_in_a_takeover", File: "internal/edge/takeover/state.go", Old: "|| s.stays() || s.adopting()", New: "|| s.stays()", Run: "^TestEdgeLostMeanwhile$"},
	{Name: "answers_before_a_stop_count", File: "internal/edge/takeover/state.go", Old: "s.search.silent = s.search.silent || due", New: "_ = due", Run: "^TestAnsweredBeforeTheStop$"},
	{Name: "old_paths_count", File: "internal/edge/takeover/state.go", Old: "b.setPath(s, Path{Edge: p.edge})\n\t\ts.search.silent = true", New: "b.setPath(s, Path{Edge: p.edge})", Run: "^TestTakenBack$"},
	{Name: "silent_are_forgotten_while_alone", File: searchFile, Old: "s.search.silent = s.search.silent && able && !known", New: "s.search.silent = false", Run: "^TestEdgesKnownLater$"},
	{Name: "carried_here_is_not_noticed", File: searchFile, Old: "\tb.notePath(now, client, \"\")\n", New: "\t_ = now\n", Run: "^TestLateDatagram$"},
	{Name: "carried_here_is_not_told", File: searchFile, Old: "\t\tb.announce(now, client)", New: "\t\t_ = now", Run: "^TestAnnounced$"},
	{Name: "carried_here_is_told_without_a_token", File: searchFile, Old: "!ok && resumes &&", New: "!ok &&", Run: "^TestAnnounced$"},
	{Name: "carried_here_is_told_to_the_dead", File: searchFile, Old: "err == nil && s.Alive && s.Node", New: "err == nil && s.Node", Run: "^TestAnnounced$"},
	{Name: "carried_here_is_not_told_to_workers", File: searchFile, Old: "\t\tb.pass(worker, client, sign)", New: "\t\t_ = worker", Run: "^TestAnnouncedHere$"},
	{Name: "late_datagrams_of_carried_are_not_asked_about", File: "internal/edge/takeover/state.go", Old: "b.ask(s) // the datagram may have waited", New: "// the datagram may have waited", Run: "^TestLateDatagram$"},
	{Name: "forwarded_twice_shows_the_way", File: "internal/edge/takeover/state.go", Old: "twice := o.hops > 1", New: "twice := false", Run: "^TestForwardedTwice$"},
	{Name: "forwarded_twice_and_not_searched", File: "internal/edge/takeover/state.go", Old: "if (twice || o.edge != s.path.Edge) && s.stays() {", New: "if false {", Run: "^TestForwardedTwice$"},
	{Name: "late_datagrams_of_the_left_count", File: "internal/edge/takeover/state.go", Old: "s.left, s.leftUntil = s.path.Edge, now.Add(lateTime)", New: "_ = lateTime", Run: "^TestLateDatagram$"},
	{Name: "late_answers_count", File: "internal/edge/takeover/state.go", Old: "(o.edge != s.left || !now.Before(s.leftUntil))", New: "true", Run: "^TestLateAnswer$"},
	{Name: "nowhere_counts_although_somebody_answers", File: "internal/edge/takeover/locations.go", Old: `x.node == "" || x.node == node`, New: `x.node == node`, Run: "^TestReturnedNowhere$"},
	{Name: "silent_are_not_asked_in_a_drain", File: searchFile, Old: "case now.Sub(w.heard) >= watchPause:\n\t\tb.ask(s)", New: "case now.Sub(w.heard) >= watchPause:", Run: "^TestPathDrains$"},
}

func TestMutantsApply(t *testing.T) { mutants.Check(t, searchMutants) }

func TestMutants(t *testing.T) {
	if !*hunt {
		t.Skip("deliberate faults take -mutants, because each is compiled")
	}
	mutants.Run(t, mutants.Config{}, searchMutants)
}
