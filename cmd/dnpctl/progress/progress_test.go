package progress

import (
	"strings"
	"testing"
	"time"
)

// TestLine: the line comes after a second, has a bar where the end is known, and is never as wide as the terminal.
func TestLine(t *testing.T) {
	start := time.Unix(0, 0)
	for _, c := range []struct {
		why    string
		after  time.Duration
		status Status
		want   string
	}{
		{"short work shows nothing", 900 * time.Millisecond, Status{Done: 1, Total: 2}, ""},
		{"a bar", time.Second, Status{Done: 500, Total: 1200, Text: "kB"}, clear + "[########............] 41 %  kB"},
		{"nothing is done", time.Second, Status{Total: 3, Text: "cases"}, clear + "[....................] 0 %  cases"},
		{"all is done, and more", time.Second, Status{Done: 9, Total: 3, Text: "cases"}, clear + "[####################] 100 %  cases"},
		{"the end is not known", 12 * time.Second, Status{Text: "waiting"}, clear + "12 s  waiting"},
		{"a long text is cut", 12 * time.Second, Status{Text: strings.Repeat("ü", 99)}, clear + "12 s  " + strings.Repeat("ü", 33)},
	} {
		var out strings.Builder
		core := core{out: &out, begun: start, width: 40}
		core.show(start.Add(c.after), c.status)
		if out.String() != c.want {
			t.Errorf("%s: %q, want %q", c.why, out.String(), c.want)
		}
		shown := out.Len()
		core.hide()
		core.hide()
		if got := out.String()[shown:]; (got == clear) != (c.want != "") {
			t.Errorf("%s: at the end the terminal gets %q, want the line cleared once, if there is one", c.why, got)
		}
	}
}

// TestElsewhere: without a terminal only the results are printed.
func TestElsewhere(t *testing.T) {
	l := Start(true)
	l.Set(Status{Text: "cases"})
	var out strings.Builder
	l.Fprintln(&out, "result")
	l.End()
	if out.String() != "result\n" {
		t.Errorf("printed %q", out.String())
	}
}
