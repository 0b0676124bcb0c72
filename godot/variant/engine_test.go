package variant

import (
	"bufio"
	"bytes"
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
	rnd := newRand(t)
	var in bytes.Buffer
	var sent []string
	for range 400 {
		w := NewWriter(Godot3, nil)
		randomValue(rnd, &w, 0)
		sent = append(sent, hex.EncodeToString(w.Bytes()))
		fmt.Fprintln(&in, sent[len(sent)-1])
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "variants")
	if err := os.WriteFile(file, in.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, godot, "-s", script)
	cmd.Dir = dir
	cmd.Env = append(cmd.Environ(), "HOME="+dir, "VARIANTS="+file)
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
		v, err := Decode(Godot3, unhex(t, line))
		if clean := hex.EncodeToString(v.Append(nil)); err != nil || clean != sent[n] || len(line) != len(clean) {
			t.Errorf("the Writer wrote\n%s, the engine\n%s, %v", sent[n], line, err)
		}
		n++
	}
	if n != len(sent) {
		t.Errorf("%d answers, want %d:\n%s", n, len(sent), out)
	}
}
