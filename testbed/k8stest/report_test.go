//go:build linux

package k8stest

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/dnprelay/dnprelay/testbed/history"
)

// row returns the row of a scenario with these records. The way in of a is cut.
func row(t *testing.T, name string, more ...history.Record) Row {
	t.Helper()
	list := append([]history.Record{
		{Kind: history.PhaseIs, Note: name},
		{At: 1e6, Kind: history.Cut, Who: "a", Note: history.CutStart},
	}, more...)
	list = append(list, history.Record{At: 9e6, Kind: history.Ended})
	var b strings.Builder
	for _, r := range list {
		line, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		b.Write(append(line, '\n'))
	}
	v, err := history.Check(strings.NewReader(b.String()))
	if err != nil {
		t.Fatal(err)
	}
	return newRow(&v.Phases[0], 50)
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
			want = c.r.Name + ": " + c.want
		}
		if got := strings.Join(c.r.violations(c.durability), "; "); got != want {
			t.Errorf("%s: violations %q, want %q", c.about, got, want)
		}
	}
	if a, b := len(heads), len(row(t, nothing).cells()); a != b {
		t.Errorf("the table has %d heads and %d cells", a, b)
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
