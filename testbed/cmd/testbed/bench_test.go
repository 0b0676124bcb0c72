//go:build linux

package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/testbed/bench"
	"github.com/dnprelay/dnprelay/testbed/bench/nearby"
)

// programs builds what a benchmark starts.
func programs(t *testing.T) (dir string) {
	t.Helper()
	dir = t.TempDir()
	build := exec.CommandContext(t.Context(), "go", "build", "-o", dir+"/", "./cmd/relay", "./cmd/edge", "github.com/nats-io/nats-server/v2")
	build.Dir = filepath.Join("..", "..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("build what the benchmark starts: %v: %s", err, out)
	}
	return dir
}

// figures reads the figures that a benchmark wrote into a file.
func figures(t *testing.T, file string, into any) (text string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(data, into)
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestBench runs small benchmarks: two carriers beside each other; interest, and a client that gets nothing because nothing is near it,
// which must not end well. Times are not looked at, because they are those of the machine.
func TestBench(t *testing.T) {
	bin, out := programs(t), t.TempDir()

	file := filepath.Join(out, "carriers.json")
	err := runBench(t.Context(), []string{"-bin", bin, "-case", "20,20,10,1", "-carrier", "udp,websocket", "-rounds", "2", "-window", "300ms", "-json", file})
	if err != nil {
		t.Fatal(err)
	}
	var results []bench.Result
	text := figures(t, file, &results)
	if len(results) != 2 || results[0].Carrier != "udp" || results[1].Carrier != "websocket" {
		t.Fatalf("want a result for each carrier: %s", text)
	}
	for _, r := range results {
		if r.Rounds != 2 || r.Updates == 0 || r.Lost > 0 {
			t.Errorf("clients by %s received nothing: %s", r.Carrier, text)
		}
	}

	interest := func(more ...string) error {
		args := []string{"-bin", bin, "-states", "300", "-clients", "5", "-field", "700", "-bands", "60,120:5:4,240:1:16", "-rounds", "2"}
		return runBenchInterest(t.Context(), append(args, more...))
	}
	file = filepath.Join(out, "figures.json")
	if err := interest("-window", "2s", "-json", file, "-svg", filepath.Join(out, "field.svg")); err != nil {
		t.Fatal(err)
	}
	var f nearby.Figures
	text = figures(t, file, &f)
	if f.States != 300 || f.Clients != 5 || f.Rounds != 2 || len(f.Crossings) != 3 {
		t.Errorf("the figures are of another load: %s", text)
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

	err = interest("-window", "500ms", "-states", "1", "-clients", "1")
	if err == nil || !strings.Contains(err.Error(), "clients were not seen to show objects in band 1") {
		t.Errorf("a client that is alone: %v, want an error that says that it sees nothing", err)
	}
}

// TestBenchRefuses: bad flags are refused before anything starts.
func TestBenchRefuses(t *testing.T) {
	flags := bench.Flags{Rounds: 1, Window: time.Second, Workers: 1}
	for want, change := range map[string]func(f *bench.Flags){
		"-rounds: want 1 to 99, got 0":        func(f *bench.Flags) { f.Rounds = 0 },
		"-window: want 100ms to 1m, got 1ms":  func(f *bench.Flags) { f.Window = time.Millisecond },
		"-workers: want 1 to 64, got 65":      func(f *bench.Flags) { f.Workers = 65 },
		"-window: want 100ms to 1m, got 1m1s": func(f *bench.Flags) { f.Window = 61 * time.Second },
	} {
		f := flags
		change(&f)
		if err := f.Validate(); err == nil || err.Error() != want {
			t.Errorf("%+v: %v, want %s", f, err, want)
		}
	}
	for want, c := range map[string]choice{
		`-case: want STATES,HZ,CLIENTS,EDGES[,LINKS], got "100,20"`:              {one: "100,20"},
		"5000 links per client: want at most 4096, and no more than states":      {one: "5000,20,10,1", model: "all"},
		`-model: want all, tenth or sine, got "some"`:                            {one: "1,20,10,1", model: "some"},
		`-carrier: want udp, websocket, webtransport, each once, got "pigeon"`:   {one: "1,20,10,1", model: "all", carriers: "pigeon"},
		"-carrier: needs -case or -idle":                                         {quick: true, carriers: "udp"},
		"-idle: want a number of clients, and no -case":                          {one: "1,20,10,1", idle: 5},
		"50001 clients: want at most 50000":                                      {idle: 50_001},
		`-case: want STATES,HZ,CLIENTS,EDGES[,LINKS], got "1,20,10,1,1,websock"`: {one: "1,20,10,1,1,websock"},
	} {
		if _, _, err := c.cases(); err == nil || err.Error() != want {
			t.Errorf("%+v: %v, want %s", c, err, want)
		}
	}
	if err := runBenchInterest(t.Context(), []string{"-bands", "100,50"}); err != errUsage {
		t.Errorf("bands that do not ascend: %v", err)
	}
	if err := runBenchInterest(t.Context(), []string{"-states", "10", "-clients", "11"}); err != errUsage {
		t.Errorf("more clients than states: %v", err)
	}
	if err := runBench(t.Context(), []string{"-quick", "-bin", t.TempDir()}); err == nil || !strings.Contains(err.Error(), "`make testbed` makes it") {
		t.Errorf("a folder without programs: %v", err)
	}
}
