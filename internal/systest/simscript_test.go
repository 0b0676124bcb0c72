package systest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// fakeGo stands for the go command: what it builds does nothing, and well.
const fakeGo = `#!/bin/sh
while [ "$1" != -o ]; do shift; done
printf '#!/bin/sh\n' >"$2"
chmod +x "$2"
`

// TestSimScript: a run that has not simulated what it was told to is no success.
func TestSimScript(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not installed")
	}
	script, err := os.ReadFile("../../scripts/sim")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{"scripts/sim": string(script), "go": fakeGo, "internal/systest/x": "", "sessionlog/x": ""} {
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args string // SECONDS and ROUNDS
		ok   bool
		want string // of what it says
	}{
		{"600 100", true, "100 rounds of chaos"},
		{"600 120", true, "150 rounds of chaos"},
		{"0", true, ""},
		{"0 100", false, "sim: 0 s were over after 0 of 100 rounds"},
	} {
		run := exec.Command(bash, append([]string{filepath.Join(dir, "scripts/sim")}, strings.Fields(c.args)...)...)
		run.Env = append(os.Environ(), "GO="+filepath.Join(dir, "go"), "SEED=1")
		out, err := run.CombinedOutput()
		if (err == nil) != c.ok || !strings.Contains(string(out), c.want) {
			t.Errorf("scripts/sim %s: %v, %q; want success %v, and %q", c.args, err, out, c.ok, c.want)
		}
	}
}
