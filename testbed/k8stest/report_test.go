//go:build linux

package k8stest

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/testbed/history"
	"github.com/dnprelay/dnprelay/testbed/play"
)

// phases returns the phase of a scenario with these records about some players.
func phases(t *testing.T, about func(who string) bool, name string, more []history.Record) []history.Phase {
	t.Helper()
	list := append([]history.Record{{Kind: history.PhaseIs, Note: name}}, more...)
	list = append(list, history.Record{At: 9e6, Kind: history.Ended})
	var b strings.Builder
	for _, r := range list {
		line, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(line, '\n'))
	}
	v, err := history.Check(strings.NewReader(b.String()), about)
	if err != nil {
		t.Fatal(err)
	}
	return v.Phases
}

// row returns the row of a scenario with these records. The way in of a is cut.
func row(t *testing.T, name string, more ...history.Record) Row {
	t.Helper()
	more = append([]history.Record{{At: 1e6, Kind: history.Cut, Who: "a", Note: history.CutStart}}, more...)
	return newRow(&phases(t, history.Everyone, name, more)[0], 50)
}

// slowRows returns the rows of a scenario with 25 players that speak often and 25 slow ones.
func slowRows(t *testing.T, name string, list ...history.Record) []Row {
	t.Helper()
	var players []*play.Player
	for i := range 50 {
		players = append(players, &play.Player{Name: playerName("p", i)})
	}
	return newRows(phases(t, history.Speaker, name, list), phases(t, history.Listener, name, list), players)
}

// lost are a message of a party that an edge acknowledges, and that never arrives.
func lost(who string) []history.Record {
	return []history.Record{{At: 2e6, Kind: history.Said, Who: who, N: 1}, {At: 3e6, Kind: history.Acked, Who: who, N: 1}}
}

// TestRow: the table counts players whose way in is cut apart, and judges the others.
func TestRow(t *testing.T) {
	closed := func(who string) history.Record {
		return history.Record{At: 4e6, Kind: history.Closed, Who: who, Note: "timeout"}
	}
	for _, c := range []struct {
		about, durability string
		r                 Row
		cut, ended        int
		want              string // violations
	}{
		{"a session ends with the way of its player", "log", row(t, fullCut, closed("a.0")), 1, 1, ""},
		{"so do its messages", "log", row(t, fullCut, append(lost("a.0"), closed("a.0"))...), 1, 1, ""},
		{"a session whose way is well", "log", row(t, fullCut, closed("b.0")), 1, 0, "1 interruptions"},
		{"sessions need no log then", "none", row(t, fullCut, closed("b.0")), 1, 0, ""},
		{"messages of a session that lives on", "log", row(t, fullCut, lost("a.0")...), 1, 0, "1 messages lost, 0 doubled, 0 out of order; 0 of them excused"},
		{"a way that must not be cut", "log", row(t, avoidCut), 1, 0, "the way in of 1 players was cut, although no flow comes in over the node"},
		{"nothing happens", "none", row(t, nothing, closed("b.0")), 1, 0, "1 interruptions"},
	} {
		if c.r.Cut != c.cut || c.r.CutEnded != c.ended {
			t.Errorf("%s: the way in of %d players cut, %d sessions ended; want %d, %d", c.about, c.r.Cut, c.r.CutEnded, c.cut, c.ended)
		}
		want := ""
		if c.want != "" {
			want = c.r.Name + ", players that speak every 250ms: " + c.want
		}
		if got := strings.Join(c.r.violations(c.durability), "; "); got != want {
			t.Errorf("%s: violations %q, want %q", c.about, got, want)
		}
	}
	if a, b := len(heads), len(row(t, nothing).cells()); a != b {
		t.Errorf("the table has %d heads and %d cells", a, b)
	}
}

// TestSlowRows: slow players have a row and bars of their own, and may see a gap that is as long as
// those of the others after they have said something.
func TestSlowRows(t *testing.T) {
	stale := func(who string, d time.Duration) history.Record {
		return history.Record{At: 8e6, Kind: history.Stale, Who: who, D: d.Microseconds()}
	}
	often, slow := playerName("p", 0), playerName("p", 1)
	closed := func(who string) history.Record {
		return history.Record{At: 4e6, Kind: history.Closed, Who: who + ".0", Note: "timeout"}
	}
	for _, c := range []struct {
		about       string
		list        []history.Record
		often, slow string // violations
	}{
		{"nothing", nil, "", ""},
		{"one that speaks often is interrupted", []history.Record{closed(often)}, "1 interruptions", ""},
		{"a slow one is interrupted", []history.Record{closed(slow)}, "", "1 interruptions"},
		{"it loses a message", lost(slow + ".0"), "", "1 messages lost, 0 doubled, 0 out of order; 0 of them excused"},
		{"it hears nothing until it speaks", []history.Record{stale(often, 300*time.Millisecond), stale(slow, 2300*time.Millisecond)}, "", ""},
		{"for longer", []history.Record{stale(often, 300*time.Millisecond), stale(slow, 2301*time.Millisecond)}, "", "the p99 of gaps is 2.301s, at most 2.3s wanted"},
		{"the others may hear nothing for longer", []history.Record{stale(often, 5*time.Second)}, "", ""},
	} {
		for i, r := range slowRows(t, "x", c.list...) {
			speak, want := []string{"every 250ms", "every 2s"}[i], []string{c.often, c.slow}[i]
			if want != "" {
				want = "x, players that speak " + speak + ": " + want
			}
			if got := strings.Join(r.violations("log"), "; "); got != want || r.speak() != speak || r.Players != 25 {
				t.Errorf("%s: violations %q of %d players that speak %s, want %q of 25, %s", c.about, got, r.Players, r.speak(), want, speak)
			}
		}
	}
}

// TestSlowFlows: a balancer spreads slow players over two nodes as it does the others.
func TestSlowFlows(t *testing.T) {
	table := newFlowTable([]way{{name: "kn1"}, {name: "kn2"}})
	table.checked(0, true)
	table.checked(1, true)
	slow := make([]int, 2)
	for i := range 48 {
		name := playerName("p", i)
		table.add(name, netip.Addr{})
		if history.Listener(name) {
			slow[table.flows[i].node]++
		}
	}
	if !slices.Equal(slow, []int{12, 12}) {
		t.Errorf("slow players by node: %v, want 12 of 24 on each", slow)
	}
}

// TestScenarios: the documentation names rows by their numbers.
func TestScenarios(t *testing.T) {
	for number, name := range map[int]string{1: nothing, 9: fullCut, 10: avoidCut} {
		if len(scenarios) < number || scenarios[number-1].name != name {
			t.Errorf("row %d is not %q", number, name)
		}
	}
}
