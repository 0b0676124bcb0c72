package mutants

import (
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

var hunt = flag.Bool("mutants", false, "compile every mutant and run its test (half an hour)")

// mutantsMax is how many mutants there may be, with those of the client in TypeScript. A new one replaces another.
const mutantsMax = 80

// typeScriptList is the list of the mutants of the client in TypeScript, each of which has a line of its own.
const typeScriptList = "clients/typescript/test/mutants.test.ts"

// A mutant is a deliberate fault in one function.
type mutant struct {
	Name string

	// Guards is the promise that the fault breaks, after the page that makes it: SECURITY, INTERFACES or DESIGN.
	Guards string

	// In is the folder of the package, with slashes, relative to the root of the module. Func is "function" or
	// "Type.method".
	In, Func string

	// Old occurs once in the declaration of the function. New replaces it.
	Old, New string

	// By is the test that must notice the fault: the folder of its package, a dot, and its name.
	By string

	// Args are arguments of that test, for a simulation that needs more than its usual seeds.
	Args []string
}

// TestMutantsApply checks that every mutant has a promise, a place and a test.
func TestMutantsApply(t *testing.T) {
	names := make(map[string]bool)
	for i := range list {
		m := &list[i]
		if names[m.Name] {
			t.Errorf("two mutants are named %s", m.Name)
		}
		names[m.Name] = true
		if !promise.MatchString(m.Guards) {
			t.Errorf("%s: it guards %q; want SECURITY, INTERFACES or DESIGN, a colon, and what that page promises", m.Name, m.Guards)
		}
		if _, err := m.apply(); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
		folder, test := m.test()
		if found, err := declarations(folder, test, true); err != nil || len(found) != 1 {
			t.Errorf("%s: %s has no test %s (%v)", m.Name, folder, test, err)
		}
	}
	script, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(typeScriptList)))
	if err != nil {
		t.Fatal(err)
	}
	n := strings.Count(string(script), "guards: ")
	if n == 0 || len(list)+n > mutantsMax {
		t.Errorf("%d mutants here and %d in %s; want some there, and at most %d in all", len(list), n, typeScriptList, mutantsMax)
	}
}

var promise = regexp.MustCompile(`^(SECURITY|INTERFACES|DESIGN): \S.*[^.]$`)

// TestMutants compiles every mutant and wants its test to notice it. Mutants with the same package of tests follow one
// another, after that package has passed without a fault.
func TestMutants(t *testing.T) {
	if !*hunt {
		t.Skip("needs -mutants, because every mutant is compiled")
	}
	all := slices.Clone(list)
	slices.SortStableFunc(all, func(a, b mutant) int {
		x, _ := a.test()
		y, _ := b.test()
		return cmp.Compare(x, y)
	})
	passed := make(map[string]bool)
	for i := range all {
		m := &all[i]
		t.Run(m.Name, func(t *testing.T) {
			if key := fmt.Sprint(m.By, m.Args); !passed[key] {
				if out, err := m.run(); err != nil {
					t.Fatalf("%s fails without a fault: %v\n%s", m.By, err, out)
				}
				passed[key] = true
			}
			overlay, err := m.overlay(t.TempDir())
			if err != nil {
				t.Fatal(err)
			}
			start := time.Now()
			out, err := m.run("-overlay", overlay)
			first, noticed := failure(out)
			if err == nil || !noticed {
				t.Fatalf("%s did not notice it: %v\n%s", m.By, err, out)
			}
			t.Logf("%-40s %4.0f s  %s: %s", m.Name, time.Since(start).Seconds(), m.By, first)
		})
	}
}

// run runs the test of the mutant, with flags for the go command.
func (m *mutant) run(flags ...string) (string, error) {
	folder, test := m.test()
	args := append([]string{"test"}, flags...)
	args = append(args, "-count", "1", "-failfast", "-vet", "off", "-timeout", "1h", "-run", "^"+test+"$", "./"+folder, "-args")
	cmd := exec.Command("go", append(args, m.Args...)...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	if strings.Contains(string(out), "[no tests to run]") {
		err = errors.New("there is no such test")
	}
	return string(out), err
}

// test returns the folder and the name of the test that must notice the mutant.
func (m *mutant) test() (folder, name string) {
	dot := strings.LastIndexByte(m.By, '.')
	return m.By[:max(dot, 0)], m.By[dot+1:]
}

// overlay writes the changed file into a folder, and returns the path of the overlay for the compiler.
func (m *mutant) overlay(folder string) (string, error) {
	f, err := m.apply()
	if err != nil {
		return "", err
	}
	changed, overlay := filepath.Join(folder, "changed.go"), filepath.Join(folder, "overlay.json")
	text, err := json.Marshal(map[string]map[string]string{"Replace": {f.path: changed}})
	return overlay, errors.Join(err, os.WriteFile(changed, []byte(f.text), 0o600), os.WriteFile(overlay, text, 0o600))
}

// A source is the text of a file, or of a function in it.
type source struct {
	path, text string
	from, to   int // the declaration of the function
}

// apply returns the file with the fault.
func (m *mutant) apply() (source, error) {
	found, err := declarations(m.In, m.Func, false)
	switch {
	case err != nil:
		return source{}, err
	case len(found) != 1:
		return source{}, fmt.Errorf("%s has %d functions %s, want one: was it renamed, or moved to another package?", m.In, len(found), m.Func)
	}
	f := found[0]
	declaration := f.text[f.from:f.to]
	if n := strings.Count(declaration, m.Old); n != 1 {
		return source{}, fmt.Errorf("the old text occurs %d times in %s of %s, want once: %q", n, m.Func, f.path, m.Old)
	}
	f.text = f.text[:f.from] + strings.Replace(declaration, m.Old, m.New, 1) + f.text[f.to:]
	return f, nil
}
