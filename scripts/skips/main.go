// Skips makes the output of `go test -json` readable: it prints a line for each
// package, the output of each test that fails, and at the end the tests that were
// skipped with their reasons. It also writes this list to the file that its first
// argument names, and to the second the tests to run again: for each package with tests
// that failed, a line with its name and a pattern for -run. After a failure that belongs to no
// test, such as one of the compiler, that file is empty. The exit code is 1 after a failure.
//
//	make -k test ARGS=-json | go run ./scripts/skips tmp/skipped.txt tmp/failed.txt
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
)

// An event is what `go doc test2json` says of a line of `go test -json`.
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
}

func main() {
	out := bufio.NewWriter(os.Stdout)
	r := newReport(out)
	err := r.read(os.Stdin)
	skipped := r.summary()
	fmt.Fprint(out, skipped)
	for i, text := range []string{skipped, r.again()} {
		if err == nil && len(os.Args) > i+1 {
			err = os.WriteFile(os.Args[i+1], []byte(text), 0o644)
		}
	}
	out.Flush()
	if err != nil {
		fmt.Fprintln(os.Stderr, "skips:", err)
	}
	if err != nil || r.failed {
		os.Exit(1)
	}
}

// A report collects what a run of tests did.
type report struct {
	out     *bufio.Writer
	output  map[string][]string // by package and test, until the test ends
	skipped []string
	failed  bool
	tests   map[string][]string // by package, those that failed, without their parts
	other   bool                // something else failed
}

func newReport(out *bufio.Writer) *report {
	return &report{out: out, output: map[string][]string{}, tests: map[string][]string{}}
}

// read takes events until the end of the input. Lines that are no event pass
// unchanged: make prints the commands that it runs.
func (r *report) read(in io.Reader) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil || e.Action == "" {
			fmt.Fprintln(r.out, lines.Text())
		} else {
			r.event(e)
		}
		r.out.Flush()
	}
	return lines.Err()
}

func (r *report) event(e event) {
	name := e.Package + " " + e.Test
	switch {
	case e.Action == "build-output":
		fmt.Fprint(r.out, e.Output)
	case e.Action == "build-fail":
		r.failed, r.other = true, true
	case e.Action == "output":
		r.line(name, e)
	case e.Action == "skip" && e.Test != "":
		r.skipped = append(r.skipped, name+": "+reason(r.output[name]))
		delete(r.output, name)
	case e.Action == "fail":
		r.fail(e)
		fmt.Fprint(r.out, strings.Join(r.output[name], ""))
		delete(r.output, name)
	case e.Action == "pass":
		delete(r.output, name)
	}
}

// fail notes what failed. A package fails after its tests.
func (r *report) fail(e event) {
	r.failed = true
	switch {
	case e.Test == "":
		r.other = r.other || len(r.tests[e.Package]) == 0
	case !strings.Contains(e.Test, "/"):
		r.tests[e.Package] = append(r.tests[e.Package], e.Test)
	}
}

// again lists the tests that failed, a line for each package.
func (r *report) again() string {
	var b strings.Builder
	if r.other {
		return ""
	}
	for _, name := range slices.Sorted(maps.Keys(r.tests)) {
		fmt.Fprintf(&b, "%s ^(%s)$\n", name, strings.Join(r.tests[name], "|"))
	}
	return b.String()
}

// line prints the result of a package and keeps other output until it is known
// whether anybody wants to read it.
func (r *report) line(name string, e event) {
	if e.Test == "" && (strings.HasPrefix(e.Output, "ok ") || strings.HasPrefix(e.Output, "FAIL\t") || strings.HasPrefix(e.Output, "? ")) {
		fmt.Fprint(r.out, e.Output)
		return
	}
	r.output[name] = append(r.output[name], e.Output)
}

// reason is what a skipped test printed, on one line.
func reason(output []string) string {
	var words []string
	for _, l := range output {
		l = strings.TrimSpace(l)
		if l != "" && !strings.HasPrefix(l, "=== ") && !strings.HasPrefix(l, "--- ") {
			words = append(words, l)
		}
	}
	return strings.Join(words, " ")
}

// summary lists the skipped tests.
func (r *report) summary() string {
	if len(r.skipped) == 0 {
		return "no test was skipped\n"
	}
	slices.Sort(r.skipped)
	return fmt.Sprintf("skipped tests (%d):\n  %s\n", len(r.skipped), strings.Join(r.skipped, "\n  "))
}
