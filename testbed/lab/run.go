//go:build linux

package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/internal/bench"
)

func progress(format string, args ...any) {
	fmt.Fprintf(os.Stderr, time.Now().Format("15:04:05 ")+format+"\n", args...)
}

// Series are the names of the series.
func Series() (names []string) {
	for _, c := range Cases() {
		if !slices.Contains(names, c.Name) {
			names = append(names, c.Name)
		}
	}
	return append(names, "disturbed", "overload")
}

// Run measures the series with a name, or all if it is empty. The results have what was
// measured also with an error.
func Run(ctx context.Context, cfg bench.Config, only string) ([]bench.Result, error) {
	if only != "" && !slices.Contains(Series(), only) {
		return nil, fmt.Errorf("there is no series %q; there are %s", only, strings.Join(Series(), ", "))
	}
	runner := bench.New(cfg)
	results, err := RunCases(ctx, runner, slices.DeleteFunc(Cases(), func(c bench.Case) bool { return only != "" && c.Name != only }))
	failed := []error{err}
	for _, s := range []struct {
		name string
		run  func() ([]bench.Result, error)
	}{
		{"disturbed", func() ([]bench.Result, error) { return Disturbed(ctx, runner, cfg.Rounds) }},
		{"overload", func() ([]bench.Result, error) { return Overload(ctx, runner) }},
	} {
		if ctx.Err() == nil && (only == "" || only == s.name) {
			more, err := s.run()
			results, failed = append(results, more...), append(failed, err)
		}
	}
	return results, errors.Join(failed...)
}

// RunCases measures cases one after the other. A case that fails does not end the run.
func RunCases(ctx context.Context, runner *bench.Runner, cases []bench.Case) (results []bench.Result, err error) {
	for _, c := range cases {
		if ctx.Err() != nil {
			return results, errors.Join(err, ctx.Err())
		}
		r, failed := runner.Case(ctx, c)
		if failed != nil {
			err = errors.Join(err, failed)
			progress("%v", failed)
			continue
		}
		results = append(results, r)
		progress("%s: %.2f M updates per edge CPU second", r.Case, r.PerEdgeCPU/1e6)
	}
	return results, err
}

// Profile returns a function for bench.Config.Watch that writes CPU and allocation profiles
// of the first edge into a folder.
func Profile(dir string) func(s *bench.Scene, d time.Duration) error {
	return func(s *bench.Scene, d time.Duration) error {
		name := strings.NewReplacer("×", "x", "/", "-").Replace(s.Case.String())
		base := "http://" + s.Stack.HTTP[0] + "/debug/pprof/"
		err := fetch(fmt.Sprintf("%sprofile?seconds=%d", base, max(1, int(d.Seconds()))), filepath.Join(dir, name+".cpu.pprof"))
		if err == nil {
			err = fetch(base+"allocs", filepath.Join(dir, name+".allocs.pprof"))
		}
		return err
	}
}

func fetch(url, file string) error {
	answer, err := http.Get(url)
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	defer answer.Body.Close()
	data, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s answers %s", url, answer.Status)
	}
	if err != nil {
		return fmt.Errorf("profile: %w", err)
	}
	return os.WriteFile(file, data, 0o644)
}
