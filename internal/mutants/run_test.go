package mutants

import (
	"strings"
	"testing"
)

// TestReason reads the output of test programs: only a test that failed, or a program that
// panicked, has noticed something.
func TestReason(t *testing.T) {
	for _, c := range []struct {
		name, output, first string
		noticed             bool
	}{
		{"a failure", "=== RUN   TestA\n    a_test.go:7: two holders\n--- FAIL: TestA (0.00s)\nFAIL", "a_test.go:7: two holders", true},
		{"a failure after the log of a test that passed", "=== RUN   TestA\n    a_test.go:7: median 3\n--- PASS: TestA (0.00s)\n=== RUN   TestB\n    b_test.go:1: lost\n--- FAIL: TestB (0.00s)",
			"b_test.go:1: lost", true},
		{"a failure after the seed", "=== RUN   TestA\n    a_test.go:1: repeat with -seed=3\n    a_test.go:7: lost\n--- FAIL: TestA (0.00s)", "a_test.go:7: lost", true},
		{"a failure without a line", "=== RUN   TestA\n--- FAIL: TestA (0.00s)", "--- FAIL: TestA (0.00s)", true},
		{"a panic", "=== RUN   TestA\npanic: no such link [recovered]\n\ngoroutine 7", "panic: no such link [recovered]", true},
		{"no time left", "=== RUN   TestA\npanic: test timed out after 1h0m0s\n\ngoroutine 7", "panic: test timed out after 1h0m0s", false},
		{"no program", "exec format error", "", false},
		{"all passed", "=== RUN   TestA\n    a_test.go:7: median 3\n--- PASS: TestA (0.00s)\nPASS", "", false},
	} {
		first, noticed := reason(strings.Split(c.output, "\n"))
		if first != c.first || noticed != c.noticed {
			t.Errorf("%s: %q, noticed %v, want %q, %v", c.name, first, noticed, c.first, c.noticed)
		}
	}
}

func TestFirstSeed(t *testing.T) {
	for output, want := range map[string]int{
		"=== RUN   TestA\n    a_test.go:7: seed 19: two holders, after seed 2\n--- FAIL": 19,
		"=== RUN   TestSeeds\n    a_test.go:7: 19 seeds passed\nPASS":                    0,
	} {
		if got := FirstSeed(strings.Split(output, "\n")); got != want {
			t.Errorf("%q: seed %d, want %d", output, got, want)
		}
	}
}
