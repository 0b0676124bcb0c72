package main

import (
	"bufio"
	"bytes"
	"strings"
	"testing"
)

// TestReport reads a run with a package that passes, a test that is skipped, a test
// that fails and a line of make.
func TestReport(t *testing.T) {
	input := strings.Join([]string{
		`go test -json ./...`,
		`{"Action":"start","Package":"a"}`,
		`{"Action":"output","Package":"a","Test":"TestQuiet","Output":"    x_test.go:1: quiet\n"}`,
		`{"Action":"pass","Package":"a","Test":"TestQuiet"}`,
		`{"Action":"output","Package":"a","Test":"TestRedis","Output":"=== RUN   TestRedis\n"}`,
		`{"Action":"output","Package":"a","Test":"TestRedis","Output":"    y_test.go:2: redis-server is not installed\n"}`,
		`{"Action":"output","Package":"a","Test":"TestRedis","Output":"--- SKIP: TestRedis (0.00s)\n"}`,
		`{"Action":"skip","Package":"a","Test":"TestRedis"}`,
		`{"Action":"output","Package":"a","Output":"ok  \ta\t0.1s\n"}`,
		`{"Action":"pass","Package":"a"}`,
		`{"Action":"output","Package":"b","Test":"TestBad","Output":"    z_test.go:3: want 1\n"}`,
		`{"Action":"fail","Package":"b","Test":"TestBad/part"}`,
		`{"Action":"fail","Package":"b","Test":"TestBad"}`,
		`{"Action":"fail","Package":"b","Test":"TestWorse"}`,
		`{"Action":"output","Package":"b","Output":"FAIL\tb\t0.1s\n"}`,
		`{"Action":"fail","Package":"b"}`,
	}, "\n")
	var buf bytes.Buffer
	r := newReport(bufio.NewWriter(&buf))
	if err := r.read(strings.NewReader(input)); err != nil {
		t.Fatal(err)
	}
	const want = "go test -json ./...\nok  \ta\t0.1s\n    z_test.go:3: want 1\nFAIL\tb\t0.1s\n"
	if buf.String() != want {
		t.Errorf("the report prints %q, want %q: only results and what failed", buf.String(), want)
	}
	if !r.failed {
		t.Error("a failed test does not fail the report")
	}
	if got, want := r.summary(), "skipped tests (1):\n  a TestRedis: y_test.go:2: redis-server is not installed\n"; got != want {
		t.Errorf("the summary is %q, want %q", got, want)
	}
	if got, want := r.again(), "b ^(TestBad|TestWorse)$\n"; got != want {
		t.Errorf("to run again: %q, want %q", got, want)
	}
}

// TestFailuresOfNoTest are not run again: they are of the compiler, and of a package that ends early.
func TestFailuresOfNoTest(t *testing.T) {
	for _, line := range []string{`{"Action":"build-fail","ImportPath":"c"}`, `{"Action":"fail","Package":"c"}`} {
		r := newReport(bufio.NewWriter(&bytes.Buffer{}))
		input := `{"Action":"fail","Package":"b","Test":"TestBad"}` + "\n" + line
		if err := r.read(strings.NewReader(input)); err != nil || !r.failed {
			t.Fatalf("%s: %v, failed %v", line, err, r.failed)
		}
		if got := r.again(); got != "" {
			t.Errorf("%s: to run again: %q", line, got)
		}
	}
}

// TestNothingSkipped says so.
func TestNothingSkipped(t *testing.T) {
	r := newReport(bufio.NewWriter(&bytes.Buffer{}))
	if err := r.read(strings.NewReader(`{"Action":"pass","Package":"a"}`)); err != nil || r.failed {
		t.Fatalf("a run that passes: %v, failed %v", err, r.failed)
	}
	if got := r.summary(); got != "no test was skipped\n" {
		t.Errorf("the summary is %q", got)
	}
}
