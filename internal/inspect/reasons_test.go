package inspect

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestUnserved has the situations in which no edge serves the client, from what a relay and edges say.
// TestWhy in internal/edge/fanout has those of an edge that does.
func TestUnserved(t *testing.T) {
	known := func(change func(h *HolderFacts)) *Facts {
		h := &HolderFacts{Relay: "r1", Known: true, State: true, Epoch: 7}
		change(h)
		return &Facts{Holder: h}
	}
	adopting := &Facts{Edge: &EdgeFacts{Edge: "e2", Adopting: "found"}}
	served := &Facts{Edge: &EdgeFacts{Edge: "e1", Epoch: 7, Whole: true, Age: Millis(time.Second), Own: true, Link: &LinkFacts{Phase: "up"}}}
	for _, c := range []struct {
		why   string
		facts []*Facts
		want  []Code
	}{
		{"nothing answers", nil, []Code{HolderAway, ClientUnknown}},
		{"the holder loads", []*Facts{known(func(h *HolderFacts) { h.Loading, h.Known = true, false })}, []Code{HolderLoading, ClientUnknown}},
		{"the space is unknown", []*Facts{known(func(h *HolderFacts) { h.Known = false })}, []Code{SpaceUnknown}},
		{"the client is unknown", []*Facts{known(func(*HolderFacts) {})}, []Code{ClientUnknown}},
		{"client and state are unknown", []*Facts{known(func(h *HolderFacts) { h.State = false })}, []Code{ClientUnknown, NeverPublished}},
		{"the edge is away", []*Facts{known(func(h *HolderFacts) { h.Connected, h.Sessions = 1, []Session{{Edge: "e1"}} })}, []Code{EdgeAway}},
		{"the edge is away in a space of many sessions", []*Facts{known(func(h *HolderFacts) { h.Connected = 1 })}, []Code{EdgeAway}},
		{"the session is adopted", []*Facts{known(func(h *HolderFacts) { h.Connected = 1 }), adopting}, []Code{Adopting}},
		{"the edge that serves counts, and not one that tries", []*Facts{adopting, served, nil}, []Code{OwnState, Linked, UpToDate}},
		{"of two edges the one counts that began to serve the client last", []*Facts{served, {Edge: &EdgeFacts{Edge: "e2", Epoch: 7, Whole: true, Declined: true, State: &StateFacts{Audience: "all", Included: true}}}, served}, []Code{InAudience, Declined}},
		{"of two relays that serve the one counts in the highest epoch", []*Facts{known(func(*HolderFacts) {}), known(func(h *HolderFacts) { h.State, h.Epoch = false, 9 }), known(func(*HolderFacts) {})}, []Code{ClientUnknown, NeverPublished}},
		{"of two relays the one that serves counts", []*Facts{known(func(h *HolderFacts) { h.Loading, h.Epoch = true, 9 }), known(func(*HolderFacts) {})}, []Code{ClientUnknown}},
	} {
		var got []Code
		for _, r := range Reasons(Merge(c.facts)) {
			got = append(got, r.Code)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: reasons %v, want %v", c.why, got, c.want)
		}
	}
}

// TestServed has every reason in the situations in which an edge serves the client, and none besides. A code after ! keeps
// the newest values from the client.
func TestServed(t *testing.T) {
	ms := func(n int) *Millis { m := Millis(n) * Millis(time.Millisecond); return &m }
	near := func(band int, distance float64) *Sight {
		return &Sight{Eyes: 1, Band: band, Bands: 2, Within: 30, Distance: &distance}
	}
	for _, c := range []struct {
		why    string
		change func(e *EdgeFacts, h *HolderFacts)
		want   string
	}{
		{"all is well", func(*EdgeFacts, *HolderFacts) {}, "in_audience linked up_to_date"},
		{"the edge drains", func(e *EdgeFacts, _ *HolderFacts) { e.Draining = true }, "edge_draining in_audience linked up_to_date"},
		{"the holder is silent", func(e *EdgeFacts, _ *HolderFacts) { e.Unheard = *ms(1001) }, "!holder_unheard in_audience linked"},
		{"the holder loads", func(e *EdgeFacts, h *HolderFacts) { e.Unheard, h.Loading = *ms(1001), true }, "!holder_loading in_audience linked"},
		{"the replica lacks changes", func(e *EdgeFacts, _ *HolderFacts) { e.Whole = false }, "!replica_behind in_audience linked"},
		{"the replica is empty", func(e *EdgeFacts, h *HolderFacts) { e.Epoch, e.State, h.State = 0, nil, false }, "!replica_behind"},
		{"the replica lacks the state", func(e *EdgeFacts, _ *HolderFacts) { e.State = nil }, "!replica_behind"},
		{"the state ended", func(e *EdgeFacts, h *HolderFacts) { e.State, e.Removed, h.State = nil, ms(5), false }, "!removed"},
		{"there is no such state", func(e *EdgeFacts, h *HolderFacts) { e.State, h.State = nil, false }, "!never_published"},
		{"the client is not in the audience", func(e *EdgeFacts, _ *HolderFacts) { e.State.Included = false }, "!not_in_audience"},
		{"the state is near", func(e *EdgeFacts, _ *HolderFacts) { e.State.Sight = near(2, 20) }, "in_audience in_sight linked up_to_date"},
		{"the state is far", func(e *EdgeFacts, _ *HolderFacts) { e.State.Sight = near(0, 40) }, "in_audience !out_of_sight"},
		{"the offer waits", func(e *EdgeFacts, _ *HolderFacts) { e.Link.Phase, e.Link.Lacks = "queued", 1 }, "in_audience !offer_queued"},
		{"the offer has no answer", func(e *EdgeFacts, _ *HolderFacts) { e.Link.Phase, e.Path.Loss = "offered", 0.05 }, "in_audience !offer_unanswered loss"},
		{"the offer was acknowledged", func(e *EdgeFacts, _ *HolderFacts) { e.Link.Phase = "presumed" }, "in_audience link_presumed up_to_date"},
		{"the client declined", func(e *EdgeFacts, _ *HolderFacts) { e.Link, e.Declined = nil, true }, "in_audience !declined"},
		{"there is no room", func(e *EdgeFacts, _ *HolderFacts) { e.Link, e.NoRoom, e.Links = nil, true, &Links{IDsLeft: 1} }, "in_audience !no_room"},
		{"there is no LinkId", func(e *EdgeFacts, _ *HolderFacts) { e.Link, e.NoRoom, e.Links = nil, true, &Links{} }, "in_audience !no_link_ids"},
		{"the edge took over", func(e *EdgeFacts, _ *HolderFacts) { e.Link, e.Unaligned = nil, true }, "in_audience !unaligned"},
		{"there is no offer", func(e *EdgeFacts, _ *HolderFacts) { e.Link = nil }, "in_audience !not_offered"},
		{"less detail", func(e *EdgeFacts, _ *HolderFacts) { e.State.Level = &Level{} }, "in_audience linked level_of_detail up_to_date"},
		{"less detail holds values back", func(e *EdgeFacts, _ *HolderFacts) { e.State.Level = &Level{Lacks: 1} }, "in_audience linked !level_of_detail"},
		{"the carrier is away", func(e *EdgeFacts, _ *HolderFacts) { e.Path.Away = true }, "in_audience linked !carrier_away"},
		{"the path is bad", func(e *EdgeFacts, _ *HolderFacts) { e.Path = PathFacts{Heard: *ms(20_001), Loss: 0.05, Slowed: 1.2} }, "in_audience linked client_silent loss path_crowded up_to_date"},
		{"the path is good", func(e *EdgeFacts, _ *HolderFacts) { e.Path = PathFacts{Heard: *ms(20_000), Loss: 0.04, Slowed: 1.1} }, "in_audience linked up_to_date"},
		{"the budget is spent", func(e *EdgeFacts, _ *HolderFacts) { e.Link.Waits, e.Link.Lacks = true, 1 }, "in_audience linked !waits_for_budget"},
		{"values are due", func(e *EdgeFacts, _ *HolderFacts) { e.Link.Lacks = 1 }, "in_audience linked !values_due"},
		{"a write waits", func(e *EdgeFacts, _ *HolderFacts) { e.Link.Writes = 1 }, "in_audience linked write_unsettled up_to_date"},
		{"nothing changes", func(e *EdgeFacts, _ *HolderFacts) { e.Link.Refresh, e.Link.Quiet = ms(1), ms(1000) }, "in_audience linked refresh_due quiet up_to_date"},
	} {
		f := &Facts{
			Edge:   &EdgeFacts{Edge: "e1", Epoch: 7, Whole: true, State: &StateFacts{Audience: "all", Included: true}, Link: &LinkFacts{Phase: "up", ReadOnly: true}},
			Holder: &HolderFacts{Relay: "r1", Known: true, State: true, Epoch: 7},
		}
		c.change(f.Edge, f.Holder)
		var got []string
		for _, r := range Reasons(f) {
			code := string(r.Code)
			if r.Blocks {
				code = "!" + code
			}
			if got = append(got, code); r.Code == Linked && !strings.Contains(r.Text, "may not write") {
				t.Errorf("%s: of a link that is read-only, people are told: %s", c.why, r.Text)
			}
		}
		if have := strings.Join(got, " "); have != c.want {
			t.Errorf("%s: reasons %s, want %s", c.why, have, c.want)
		}
	}
}
