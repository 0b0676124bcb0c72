package systest

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dnprelay/dnprelay/internal/bench/nearby"
)

// TestBenchInterest runs a small bench-interest, and one whose client gets nothing because nothing is near it, which must not end
// well. Times are not looked at, because they are those of the machine.
func TestBenchInterest(t *testing.T) {
	t.Parallel()
	dir, err := binaries()
	if err != nil {
		t.Fatal(err)
	}
	out := t.TempDir()
	run := func(more ...string) (string, error) {
		args := append([]string{"bench-interest", "--states", "300", "--clients", "5", "--field", "700", "--bands", "60,120:5:4,240:1:16", "--rounds", "2"}, more...)
		text, err := exec.CommandContext(t.Context(), filepath.Join(dir, "dnpctl"), args...).CombinedOutput()
		return string(text), err
	}
	text, err := run("--window", "2s", "--json", filepath.Join(out, "figures.json"), "--svg", filepath.Join(out, "field.svg"))
	if err != nil {
		t.Fatalf("%v: %s", err, text)
	}
	data, err := os.ReadFile(filepath.Join(out, "figures.json"))
	if err != nil {
		t.Fatal(err)
	}
	var f nearby.Figures
	if err := json.Unmarshal(data, &f); err != nil {
		t.Fatal(err)
	}
	if f.States != 300 || f.Clients != 5 || f.Rounds != 2 || len(f.Crossings) != 3 {
		t.Errorf("the figures are of another load: %s", data)
	}
	if f.LinkIDs != f.Pairs || f.Pairs < 5 || f.Pairs >= 5*300 {
		t.Errorf("clients used %d LinkIds for %d objects, want one for each, and not for all 1,500: %s", f.LinkIDs, f.Pairs, text)
	}
	if f.KiBP95 == 0 || f.KiBP95 > f.KiBAll/3 {
		t.Errorf("clients receive %.1f KiB/s, want far less than the %.1f of everything: %s", f.KiBP95, f.KiBAll, text)
	}
	if picture, err := os.ReadFile(filepath.Join(out, "field.svg")); err != nil || strings.Count(string(picture), "h1.5") != 300 {
		t.Errorf("the picture does not have 300 objects: %v", err)
	}

	text, err = run("--window", "500ms", "--states", "1", "--clients", "1")
	if err == nil || !strings.Contains(text, "clients were not seen to show objects in band 1") {
		t.Errorf("a client that is alone: %v, want an error that says that it sees nothing: %s", err, text)
	}
}
