//go:build linux

package torture

import (
	"slices"
	"strings"
	"testing"

	"github.com/dnprelay/dnprelay/testbed/play"
	"github.com/dnprelay/dnprelay/testbed/rig"
)

// TestChosen: without names, a run has the phases that are possible, and says what it leaves
// out. Names are not judged: a run that cannot have them fails.
func TestChosen(t *testing.T) {
	for _, c := range []struct {
		nats, rounds int
		phases       string
		has, lacks   string // names
		root, spaces bool
		count        int // of the first phase
	}{
		{nats: 1, root: true, has: "kill drain steady", lacks: "nats-kill nats-stop-edge nats-cut", count: 100},
		{nats: 3, has: "kill nats-kill nats-kill-edge nats-stop nats-stop-edge steady", lacks: "nats-cut nats-cut-edge", count: 100},
		{nats: 3, root: true, has: "kill nats-kill nats-cut nats-cut-edge", count: 100, spaces: true},
		{nats: 3, rounds: 7, phases: "nats-kill", has: "nats-kill", lacks: "kill steady", count: 7},
		{nats: 3, phases: "steady nats-cut", has: "steady nats-cut", lacks: "kill", count: 1, spaces: true},
		{nats: 1, phases: "nats-cut-edge", has: "nats-cut-edge", count: 1, spaces: true},
	} {
		said := ""
		cfg := Config{MatchConfig: play.MatchConfig{Config: rig.Config{NATS: c.nats}, Progress: func(_ string, args ...any) { said += args[0].(string) + "," }}, Scale: 0.5, Rounds: c.rounds}
		cfg.Phases = strings.Fields(c.phases)
		list, spaces, err := cfg.chosen(c.root)
		var names []string
		for _, p := range list {
			names = append(names, p.Name)
		}
		for want := range strings.FieldsSeq(c.has) {
			if !slices.Contains(names, want) {
				t.Errorf("%+v has %q, not %s", c, names, want)
			}
		}
		for name := range strings.FieldsSeq(c.lacks) {
			if slices.Contains(names, name) || c.phases == "" && !strings.Contains(said, name+",") {
				t.Errorf("%+v has %q, and says that it leaves out %q; want it without %s", c, names, said, name)
			}
		}
		if err != nil || spaces != c.spaces || list[0].Count != c.count {
			t.Errorf("%+v: namespaces: %v, %d faults of %s, %v", c, spaces, list[0].Count, names[0], err)
		}
	}
}
