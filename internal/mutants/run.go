package mutants

import (
	"cmp"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A Config says how to run the tests over faults.
type Config struct {
	Run  string   // the pattern of the tests that must notice
	Args []string // further arguments of the test program

	// Rounds returns the number of seeds that were tried, from the output of the test program;
	// 0 if that is unknown.
	Rounds func(lines []string) int
}

// Run fails unless every fault is noticed. It compiles each fault once, and first runs the
// tests of each pattern without a fault. At the end it prints a table with the number of seeds
// that each fault needed.
func Run(all *testing.T, cfg Config, list []Mutant) {
	clean := make(map[string]program) // by package
	passed := make(map[string]bool)
	var table []string
	for i := range list {
		m := &list[i]
		all.Run(m.Name, func(t *testing.T) {
			run := cmp.Or(m.Run, cfg.Run)
			if key := m.Package + " " + run; !passed[key] {
				if _, ok := clean[m.Package]; !ok {
					clean[m.Package] = build(all, m.Package, nil)
				}
				if lines, err := cfg.try(clean[m.Package], run, nil); err != nil {
					t.Fatalf("%s fails without a fault:\n%s", run, strings.Join(lines, "\n"))
				}
				passed[key] = true
			}
			line := cfg.hunt(t, m, run)
			t.Log(line)
			table = append(table, line)
		})
	}
	all.Logf("fault, seeds, what was noticed:\n%s", strings.Join(table, "\n"))
}

// hunt runs the tests over one fault and returns its line of the table.
func (cfg *Config) hunt(t *testing.T, m *Mutant, run string) string {
	lines, err := cfg.try(build(t, m.Package, m), run, m.Args)
	reason, noticed := reason(lines)
	seeds := 0
	if cfg.Rounds != nil {
		seeds = cfg.Rounds(lines)
	}
	switch {
	case err == nil && m.Survives == "":
		t.Errorf("not noticed by %s, %d seeds", run, seeds)
	case err == nil:
		return fmt.Sprintf("%-32s  survives: %s", m.Name, m.Survives)
	case !noticed:
		t.Errorf("%s reported no failure: %v\n%s", run, err, strings.Join(lines, "\n"))
	case m.Survives != "":
		t.Errorf("noticed, although %q: %s", m.Survives, reason)
	}
	return fmt.Sprintf("%-32s %5d  %s: %s", m.Name, seeds, strings.Trim(run, "^$"), reason)
}

// FirstSeed is a Config.Rounds for programs that try the seeds from 1 on and report the first
// failing one as "seed N".
func FirstSeed(lines []string) int {
	for _, line := range lines {
		if m := aSeed.FindStringSubmatch(line); m != nil {
			n, _ := strconv.Atoi(m[1])
			return n
		}
	}
	return 0
}

var aSeed = regexp.MustCompile(`\bseed (\d+)\b`)

// tryTimeout bounds one run of the tests. It is for runs that never end: the longest takes some
// minutes on two cores, and many times that on a machine that does other work, too.
const tryTimeout = time.Hour

// try runs the tests until the first fails.
func (cfg *Config) try(p program, run string, more []string) (lines []string, err error) {
	args := slices.Concat([]string{"-test.v", "-test.failfast", "-test.timeout", tryTimeout.String(), "-test.run", run}, cfg.Args, more)
	cmd := exec.Command(p.path, args...)
	cmd.Dir = p.dir
	out, err := cmd.CombinedOutput()
	return strings.Split(string(out), "\n"), err
}

// failure matches a line in which a test reports a failure.
var failure = regexp.MustCompile(`^\s+\w+_test\.go:\d+: `)

// reason returns the first failure, and whether a test reported one. A program that did not start
// has noticed nothing, nor has one whose time was over: the machine may have been slow.
func reason(lines []string) (first string, noticed bool) {
	for _, line := range lines {
		if strings.HasPrefix(line, "panic: ") {
			return line, !strings.HasPrefix(line, "panic: test timed out")
		}
	}
	for _, line := range lines {
		switch {
		case strings.Contains(line, "--- FAIL: "):
			return cmp.Or(first, strings.TrimSpace(line)), true
		case strings.Contains(line, "--- PASS: "), strings.HasPrefix(line, "=== RUN"), strings.Contains(line, "repeat with"):
			first = ""
		case failure.MatchString(line) && first == "":
			first = strings.TrimSpace(line)
		}
	}
	return "", false
}
