package main

import (
	"strings"
	"testing"
	"time"
)

// TestProgress: a terminal gets one line that changes after a second, a file a line every five
// seconds.
func TestProgress(t *testing.T) {
	for name, c := range map[string]struct {
		terminal bool
		want     string
	}{
		"terminal": {true, "\r100 of 1200 kB acknowledged (8 %)" + clearLine + "\r120 of 1200 kB acknowledged (10 %)" + clearLine},
		"file":     {false, "500 of 1200 kB acknowledged (41 %)\n1000 of 1200 kB acknowledged (83 %)\n"},
	} {
		var out strings.Builder
		p := progress{out: &out, terminal: c.terminal}
		start := time.Unix(0, 0)
		p.begin(start, 1_200_000)
		for at := start; at.Before(start.Add(12 * time.Second)); {
			next := p.show(at, int(at.Sub(start).Milliseconds())*100)
			if !next.After(at) {
				t.Fatalf("%s: after %v it wants to be asked again at once", name, at.Sub(start))
			}
			at = next
		}
		if got := out.String(); !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}
