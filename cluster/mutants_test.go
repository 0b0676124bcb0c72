package cluster_test

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

var mutants = flag.Bool("mutants", false, "run the simulation over every deliberate fault (a minute or two)")

// mutantSeeds is within how many seeds a fault must be noticed.
const mutantSeeds = 500

// A mutant is a deliberate fault of one line. The faults are replaced text and
// not code behind build tags, so that the code of the product has none of them
// and reads as if they did not exist; that the old text occurs exactly once is
// checked on every test run, so the list cannot go stale unnoticed.
type mutant struct{ name, file, old, new string }

var mutantList = []mutant{
	{"store_without_chain", "leasehold.go", "ExpectBeat: h.chain,", "ExpectBeat: 0,"},
	{"beat_without_fence", "leasehold.go", "Kind: ActionBeat, Expect: h.epoch,", "Kind: ActionBeat, Expect: 0,"},
	{"taken_is_ignored", "leasehold.go", "case a.Own.Seq > h.epoch:\n", "case false:\n"},
	{"stale_is_ignored", "leasehold.go", "case Stale:\n\t\th.doubt = true", "case Stale:\n\t\th.next = now.Add(l.cfg.Beat)"},
	{"unknown_counts_as_stored", "leasehold.go", "h.doubt = asked != ActionBeat\n\t\th.next = now", "l.written(now, asked, a.Seq)"},
	{"any_beat_counts_as_stored", "leasehold.go", "&& a.Beat.Write == h.storing {", "{"},
	{"silence_never_ends_holding", "leasehold.go", "now.Sub(l.hold.renewed) >= l.cfg.Silence", "now.Sub(l.hold.renewed) >= 10*l.cfg.Silence"},
	{"silence_ends_holding_early", "leasehold.go", "now.Sub(l.hold.renewed) >= l.cfg.Silence", "now.Sub(l.hold.renewed) >= l.cfg.Silence/3"},
	{"always_durable", "leasehold.go", "l.setDurable(now.Before(l.durableUntil()))\n}\n\nfunc (l *Lease) holdDeadline", "}\n\nfunc (l *Lease) holdDeadline"},
	{"renews_too_late", "leasehold.go", "l.sent, l.sent.Add(l.cfg.Beat)\n\tif", "l.sent, l.sent.Add(8*l.cfg.Beat)\n\tif"},
	{"higher_epoch_is_ignored", "lease.go", "epoch > l.hold.epoch {", "epoch > 2*l.hold.epoch { // of a million and more"},
	{"no_wait", "leasefollow.go", "f.confirmed = !l.sent.Before(f.quiet.Add(l.cfg.Wait)) &&", "f.confirmed = "},
	{"outage_counts_as_silence", "leasefollow.go", "f.silent, f.series = true, time.Time{}", "f.silent = false"},
	{"reads_do_not_confirm", "leasefollow.go", "case l.known && (l.free() || f.confirmed):", "case l.known && (l.free() || !now.Before(f.quiet.Add(l.cfg.Wait))):"},
	{"acquire_without_beat", "simstore_test.go", "a.Kind == cluster.ActionAcquire && a.ExpectBeat != s.beat.Seq {", "false {"},
	{"target_waits", "leasefollow.go", `return l.own.To == "" || l.own.To == l.cfg.Node`, `return l.own.To == ""`},
	{"own_trace_is_foreign", "leasefollow.go", "return l.own.Node == l.cfg.Node && l.own.ID == l.cfg.ID", "return false"},
	{"trusts_the_past", "leasefollow.go", "if l.known && l.inPast(now, a) {", "if l.known && l.inPast(now, a) && f.past.IsZero() {"},
	{"free_for_everybody", "leasefollow.go", "return l.own.Node == l.cfg.Node && l.own.ID == l.cfg.ID", "return l.own.ID != l.cfg.ID"},
}

func TestMutantsApply(t *testing.T) {
	for _, m := range mutantList {
		m.source(t)
	}
}

// source returns the file with the fault.
func (m mutant) source(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(m.file)
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(text), m.old); n != 1 {
		t.Errorf("%s: the text to replace occurs %d times in %s: %q", m.name, n, m.file, m.old)
	}
	return strings.Replace(string(text), m.old, m.new, 1)
}

func TestMutants(t *testing.T) {
	if !*mutants {
		t.Skip("deliberate faults take -mutants, because each is compiled")
	}
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range mutantList {
		t.Run(m.name, func(t *testing.T) {
			folder := t.TempDir()
			file, overlay := filepath.Join(folder, m.file), filepath.Join(folder, "overlay.json")
			list, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(here, m.file): file}})
			if err != nil {
				t.Fatal(err)
			}
			for name, data := range map[string]string{file: m.source(t), overlay: string(list)} {
				if err := os.WriteFile(name, []byte(data), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			program := filepath.Join(folder, "mutant.test")
			if out, err := exec.Command("go", "test", "-c", "-o", program, "-overlay", overlay, ".").CombinedOutput(); err != nil {
				t.Fatalf("the fault does not compile: %s", out)
			}
			out, err := exec.Command(program, "-test.run", "^TestSimulation$", "-seeds", strconv.Itoa(mutantSeeds), "-test.timeout", "2m").CombinedOutput()
			if err == nil {
				t.Fatalf("not noticed within %d seeds", mutantSeeds)
			}
			_, line, _ := strings.Cut(string(out), "seed ")
			line, _, _ = strings.Cut(line, "\n")
			t.Logf("noticed by seed %s", line)
		})
	}
}
