//go:build linux

package bench

import (
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"testing"
)

var seed = flag.Uint64("seed", 1, "of random numbers")

func TestSpread(t *testing.T) {
	rounds := []Round{{bare: 4}, {bare: 1}, {bare: 2}}
	bare := func(r *Round) float64 { return r.bare }
	if m, s := Median(values(rounds, bare)), Spread(values(rounds, bare)); m != 2 || s != 1.5 {
		t.Errorf("median %v and spread %v, want 2 and 1.5", m, s)
	}
	if m := Median(values(rounds[:2], bare)); m != 2.5 {
		t.Errorf("median of 4 and 1 is %v, want 2.5", m)
	}
}

// TestWriteJSON: the name of a file, standard output, or nothing.
func TestWriteJSON(t *testing.T) {
	file := filepath.Join(t.TempDir(), "figures.json")
	old := os.Stdout
	defer func() { os.Stdout = old }()
	stdout, err := os.Create(filepath.Join(t.TempDir(), "stdout"))
	if err != nil {
		t.Fatal(err)
	}
	defer stdout.Close()
	os.Stdout = stdout
	for _, name := range []string{"", file, "-"} {
		if err := WriteJSON(name, []Result{{Case: "a"}}); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{file, stdout.Name()} {
		var got []Result
		text, err := os.ReadFile(name)
		if err == nil {
			err = json.Unmarshal(text, &got)
		}
		if err != nil || len(got) != 1 || got[0].Case != "a" {
			t.Errorf("%s has %s, %v, want one result", name, text, err)
		}
	}
}
