package inspect

import (
	"slices"
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
