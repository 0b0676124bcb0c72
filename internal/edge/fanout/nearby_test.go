package fanout

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/interest"
	"github.com/dnprelay/dnprelay/internal/inspect"
)

// near returns which clients a query selects, as "alice 10 1/3 sees" for a distance, a band, the number of bands, and
// whether the client sees the state; or why there can be none.
func (s *sightTest) near(query string) string {
	s.Helper()
	q, err := inspect.ParseClients([]byte(query))
	if err != nil {
		s.Fatalf("%s: %v", query, err)
	}
	l := s.spaces.List("arena", q, describeNothing)
	for !l.Step(s.now) {
	}
	var all []string
	for _, c := range l.Page().Entries {
		text := c.Client
		switch {
		case c.Near == nil:
			text += " not asked for"
		case c.Near.Distance != nil:
			text += fmt.Sprintf(" %g", *c.Near.Distance)
			fallthrough
		default:
			text += fmt.Sprintf(" %d/%d", c.Near.Band, c.Near.Bands)
		}
		if c.Near != nil && c.Near.Sees {
			text += " sees"
		}
		all = append(all, text)
	}
	slices.Sort(all)
	return strings.Join(append(all, l.Nowhere()), ", ")
}

// TestNear asks who is near what, and who sees it.
func TestNear(t *testing.T) {
	s := newSightTest(t)
	ask := func(why, query, want string) {
		t.Helper()
		if got := s.near(query); got != want {
			t.Errorf("%s: %s selects %q, want %q", why, query, got, want)
		}
	}
	ask("no state", `{"near":"npc"}`, inspect.NoState)
	ask("no state", `{"sees":"npc"}`, inspect.NoState)
	s.put("rock", 30, "")
	s.say(sees("alice", `[[0,0,0],[50,7,0]]`), sees("bob", `"rock#pos"`))
	s.wait(lookTime)
	ask("eyes are known in a space without interests", `{"near":[40,0,0]}`, "alice 12.206555615733702 0/0, bob 10 0/0, ")
	ask("a state that all see", `{"sees":"rock"}`, "alice 0/0 sees, bob 0/0 sees, ")
	ask("a state without an interest has no place", `{"near":"rock"}`, inspect.NoPlace)
	ask("nor by a value that is none", `{"near":"rock#hp"}`, inspect.NoPlace)
	ask("nor by one that it has not", `{"near":"rock#top"}`, inspect.NoPlace)
	ask("but by a value", `{"near":"rock#pos"}`, "alice 21.18962010041709 0/0 sees, bob 0 0/0 sees, ")

	s.put("npc", 200, walker)
	s.wait(lookTime)
	ask("a state with an interest, whose axes are xz", `{"near":"npc"}`, "alice 150 2/3 sees, bob 170 2/3 sees, ")
	ask("between other axes", `{"near":"npc","axes":"y"}`, "alice 0 2/3 sees, bob 0 2/3 sees, ")
	ask("a point of two numbers has no height", `{"near":[200,7]}`, "alice 150 0/0, bob 170.14405661086138 0/0, ")
	ask("not far", `{"near":"npc","within":160}`, "alice 150 2/3 sees, ")
	ask("at the border", `{"near":"npc","within":150}`, "alice 150 2/3 sees, ")
	ask("nearer than any", `{"near":"npc","within":0}`, "")
	ask("who sees it", `{"sees":"npc"}`, "alice 150 2/3 sees, bob 170 2/3 sees, ")
	ask("of the clients that see npc, those near a place", `{"sees":"npc","near":[20,0,0],"within":15}`, "bob 10 2/3 sees, ")
	ask("a page", `{"near":"npc","max":1}`, "alice 150 2/3 sees, ")
	s.put("npc", 200, `,"audience":{"clients":["bob"]}`)
	ask("near, but not in the audience", `{"near":"npc"}`, "alice 150 2/3, bob 170 2/3 sees, ")
	ask("who sees it, is in the audience", `{"sees":"npc"}`, "bob 170 2/3 sees, ")
	s.move("npc", 5000)
	s.wait(lookTime)
	ask("far away", `{"near":"npc"}`, "alice 4950 0/3, bob 4970 0/3, ")
	ask("no client sees it", `{"sees":"npc"}`, "")
	s.say(sees("alice", `null`), sees("bob", `"ghost"`))
	ask("without an eye, or with one that is nowhere, no client is near", `{"near":"npc"}`, "")
	s.say(`{"op":"set","key":"npc","values":{"pos":null}}`)
	ask("it is nowhere", `{"near":"npc"}`, inspect.NoPlace)
	s.place("npc", math.NaN())
	ask("not a number either", `{"near":"npc","axes":"x"}`, inspect.NoPlace)
	ask("no selection", `{}`, "alice not asked for, bob not asked for, ")
}

// BenchmarkNear measures the steps of a page of clients near a state, each of which sees 500.
func BenchmarkNear(b *testing.B) {
	ops := []string{`{"op":"interest","name":"walker","at":"0","bands":[{"within":1000}]}`}
	for i := range 500 {
		ops = append(ops, fmt.Sprintf(`{"op":"put","key":"npc.%d","interest":"walker","values":[{"type":"vector2f32","value":[%d,0]}]}`, i, i))
	}
	s := crowd(b, 500, 10, ops...)
	sp := s.byName["arena"]
	for _, session := range sp.sessions {
		sp.near.bander.SetEyes(start, session.sight, interest.Point{})
	}
	for now := start; now.Before(start.Add(time.Second)); now = now.Add(lookStep) {
		s.Advance(now)
	}
	near := inspect.Place{Key: "npc.7"}
	var steps []time.Duration
	for b.Loop() {
		l := s.List("arena", inspect.Query{Near: &near, Max: 500}, describeNothing)
		for done := false; !done; {
			begun := time.Now()
			done = l.Step(start)
			steps = append(steps, time.Since(begun))
		}
		if page := l.Page(); len(page.Entries) != 500 || page.Entries[0].Near.Band != 1 {
			text, _ := json.Marshal(page.Entries[0])
			b.Fatalf("%d clients, the first is %s", len(page.Entries), text)
		}
	}
	slices.Sort(steps)
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(len(steps)), "ns/step")
	b.ReportMetric(float64(steps[len(steps)*99/100].Nanoseconds()), "p99-ns/step")
}
