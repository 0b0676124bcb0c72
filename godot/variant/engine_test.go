package variant

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestEngine lets a real Godot 3 read the output of Writers, and reads the output of the
// engine. The bytes must be equal, except for the padding in node paths, where the engine
// leaves memory. It needs the Debian package godot3-server.
func TestEngine(t *testing.T) {
	godot, err := exec.LookPath("godot3-server")
	if err != nil {
		t.Skip("godot3-server is not installed: apt-get install godot3-server")
	}
	script, err := filepath.Abs("testdata/reencode.gd")
	if err != nil {
		t.Fatal(err)
	}
	reencodes(t, Godot3, newRand(t), func(ctx context.Context, file string) *exec.Cmd {
		cmd := exec.CommandContext(ctx, godot, "-s", script)
		cmd.Dir = filepath.Dir(file)
		cmd.Env = append(cmd.Environ(), "HOME="+cmd.Dir, "VARIANTS="+file)
		return cmd
	})
}

// TestEngine4 is TestEngine for a web build of Godot 4, in Chromium. It needs Node and what `make godot4-test` installs.
func TestEngine4(t *testing.T) {
	const web = "../../clients/godot/web/"
	if _, err := os.Stat(web + "node_modules"); err != nil {
		t.Skip("the web build of Godot 4 is not installed: make godot4-test")
	}
	for _, name := range []string{"node", cmp.Or(os.Getenv("CHROMIUM"), "chromium")} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skip(err)
		}
	}
	rnd := newRand(t)
	rnd.single = true
	reencodes(t, Godot4, rnd, func(ctx context.Context, file string) *exec.Cmd {
		return exec.CommandContext(ctx, "node", web+"reencode.mjs", file)
	})
}

// reencodes has an engine read values and write them again.
func reencodes(t *testing.T, d Dialect, rnd random, engine func(ctx context.Context, file string) *exec.Cmd) {
	t.Helper()
	var in bytes.Buffer
	var sent []string
	for range 400 {
		w := NewWriter(d, nil)
		randomValue(rnd, &w, 0)
		sent = append(sent, hex.EncodeToString(w.Bytes()))
		fmt.Fprintln(&in, sent[len(sent)-1])
	}
	file := filepath.Join(t.TempDir(), "variants")
	if err := os.WriteFile(file, in.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := engine(ctx, file)
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v: %v\n%s", cmd, err, out)
	}
	n := 0
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		line, ok := strings.CutPrefix(lines.Text(), "variant ")
		if !ok {
			continue // a message of the engine
		}
		v, err := Decode(d, unhex(t, line))
		if clean := hex.EncodeToString(v.Append(nil)); err != nil || clean != sent[n] || len(line) != len(clean) {
			t.Errorf("the Writer wrote\n%s, the engine\n%s, %v", sent[n], line, err)
		}
		n++
	}
	if n != len(sent) {
		t.Errorf("%d answers, want %d:\n%s", n, len(sent), out)
	}
}

// patience is how long an engine may take. No result depends on it.
const patience = 2 * time.Minute
