package mutants

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A Mutant is a deliberate fault.
type Mutant struct {
	Name string
	File string // with slashes, relative to the root of the module
	Old  string // the replaced text; it must occur exactly once
	New  string

	// Package is the folder of the package whose tests must notice the fault, with slashes,
	// relative to the root of the module. Empty means the one whose test runs.
	Package string

	// Run is the pattern of the tests that must notice the fault. Empty means Config.Run.
	Run string

	// Args replace the arguments of Config for a fault that needs more seeds than others.
	Args []string

	// Survives is the reason why no test can notice the fault, for a fault that only costs time
	// or memory or changes nothing. Such a fault must pass the tests, so that the reason is
	// removed once it no longer holds.
	Survives string
}

// Check fails unless the old text of every fault occurs exactly once.
func Check(t *testing.T, list []Mutant) {
	t.Helper()
	names, folder := make(map[string]bool), root(t)
	for i := range list {
		m := &list[i]
		if names[m.Name] {
			t.Errorf("two faults are named %s", m.Name)
		}
		names[m.Name] = true
		m.source(t, folder)
	}
}

// source returns the file with the fault.
func (m *Mutant) source(t *testing.T, root string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(m.File)))
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), m.Old); n != 1 {
		t.Errorf("%s: the text to replace occurs %d times in %s: %q", m.Name, n, m.File, m.Old)
	}
	return strings.Replace(string(text), m.Old, m.New, 1)
}

// root returns the folder of the module.
func root(t *testing.T) string {
	t.Helper()
	file, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(strings.TrimSpace(string(file)))
}

// build compiles the test program of a package in the current folder or in another one, with the
// fault if m is not nil.
func build(t *testing.T, pkg string, m *Mutant) program {
	t.Helper()
	folder := t.TempDir()
	p := program{path: filepath.Join(folder, "mutant.test")}
	if pkg != "" {
		p.dir = filepath.Join(root(t), filepath.FromSlash(pkg))
	}
	args := []string{"test", "-c", "-ldflags", "-s -w", "-o", p.path}
	if m != nil {
		args = append(args, "-overlay", m.overlay(t, folder))
	}
	cmd := exec.Command("go", append(args, ".")...)
	cmd.Dir = p.dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("the fault does not compile: %s", out)
	}
	return p
}

// A program is a compiled test program, and where it runs; empty for the current folder.
type program struct{ path, dir string }

// overlay writes the file with the fault and an overlay for the compiler, and returns the path
// of the overlay.
func (m *Mutant) overlay(t *testing.T, folder string) string {
	t.Helper()
	root := root(t)
	file, list := filepath.Join(folder, "fault.go"), filepath.Join(folder, "overlay.json")
	data, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(root, filepath.FromSlash(m.File)): file}})
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{file: m.source(t, root), list: string(data)} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return list
}
