//go:build linux

package clustertest

import (
	"strings"
	"testing"
	"time"
)

// TestReport: the report names each figure above its bar, and every violation.
func TestReport(t *testing.T) {
	r := Report{Rounds: []Round{
		{Fault: "kill", NoPublish: 3 * time.Second, Equal: 100 * time.Millisecond},
		{Fault: "kill", NoPublish: 4100 * time.Millisecond, Equal: 700 * time.Millisecond, Violations: []string{"went back"}},
		{Fault: "nats-leader", NoPublish: 9 * time.Second, NoUpdate: 900 * time.Millisecond},
	}}
	var b strings.Builder
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, want := range []string{
		"4.10 / 4.10 / 4.10", "above its bar: kill, no publish: at most 4.02 s wanted, max is 4.10 s",
		"above its bar: kill, to equal: p99 of at most 0.50 s wanted, is 0.70 s", "VIOLATION: kill: went back",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	if strings.Contains(text, "bar: nats-leader") || strings.Contains(text, "bar: kill, no update") || r.Violations() != 1 {
		t.Errorf("%d violations, and something above a bar that is not:\n%s", r.Violations(), text)
	}
}

func TestChosen(t *testing.T) {
	c := Config{Rounds: 30}
	all, err := c.chosen()
	if err != nil || len(all) != len(Faults()) || c.roundsOf(all[0]) != 30 || c.roundsOf(Fault{Few: true}) != 3 {
		t.Errorf("%d faults, %v", len(all), err)
	}
	c.Faults, c.Rounds = []string{"pause", "kill"}, 1
	some, err := c.chosen()
	if err != nil || len(some) != 2 || some[0].Name != "pause" || some[1].Name != "kill" || c.roundsOf(Fault{Few: true}) != 1 {
		t.Errorf("chosen are %+v, %v", some, err)
	}
	c.Faults = []string{"fire"}
	if _, err := c.chosen(); err == nil || !strings.Contains(err.Error(), "partition") {
		t.Errorf("a fault that does not exist: %v", err)
	}
}
