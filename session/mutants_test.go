package session_test

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

var mutants = flag.Bool("mutants", false, "run the simulation over every deliberate fault (a few minutes)")

// mutantSeeds is within how many seeds a fault must be noticed.
const mutantSeeds = 450

// A mutant is a deliberate fault of one line, as replaced text, so that the code of the
// product has none of them. That the old text occurs exactly once is checked on every
// test run, so the list cannot go stale unnoticed.
type mutant struct{ name, file, old, new string }

var mutantList = []mutant{
	{"ack_before_commit", "../dnp/recvwindow.go", "(c.log.muted || !c.mayAcknowledge(n))", "c.log.muted"},
	{"ack_held_before_commit", "../dnp/logged.go", "return e.store == stored\n", "return e.store == stored || n != c.recv.next\n"},
	{"deliver_before_commit", "../dnp/recvwindow.go", "w.early[i].store == stored || !logged", "w.early[i].store != unasked || !logged"},
	{"due_is_held_twice", "../dnp/recvwindow.go", "a = arrivalEarly; c.recv.holds(n) {", "a = arrivalEarly; false {"},
	{"past_is_not_acknowledged", "../dnp/recvwindow.go", "case n < w.next || w.holds(n):\n", "case n < w.next:\n\t\treturn 0, arrivalOutside\n\tcase w.holds(n):\n"},
	{"no_write_ahead", "../dnp/logged.go", "n < min(w.next, c.log.sent)", "n < w.next"},
	{"take_down_before_commit", "../dnp/link.go", "c.linkChanged(id, LinkTakenDown)\n\t\treturn", "c.startDown(id)\n\t\treturn"},
	{"end_before_commit", "../dnp/logged.go", "!c.log.ended && c.reason != CloseMoved", "false"},
	{"no_window_edge", "../dnp/windowedge.go", "\t\tc.acked(o)\n", ""},
	{"replay_without_acks", "../dnp/replay.go", "if n < ch.Acked ||", "if false &&"},
	{"replay_sent_first", "../dnp/replay.go", "\tc.replayAcks(ch, t) // of what earlier changes sent, which made room for these\n", ""},
	{"no_fence", "memlog/memlog.go", "if last != w.Expect {", "if false && last != w.Expect {"},
	{"anything_is_absorbed", "answer.go", "c.last.Owner == s.owner && c.last.Number == s.number:", "tail > s.seq:"},
	{"unknown_counts_as_stored", "answer.go", "asked == ActionAppend && a.Verdict == OK:", "asked == ActionAppend && (a.Verdict == OK || a.Verdict == Unknown):"},
	{"stale_counts_as_stored", "answer.go", "asked == ActionAppend && a.Verdict == OK:", "asked == ActionAppend && (a.Verdict == OK || a.Verdict == Stale):"},
	{"another_write_after_unknown", "answer.go", "\t\tif s.pending == nil {\n", "\t\tif s.pending = nil; s.conn != nil {\n"},
	{"fenced_goes_on", "answer.go", "s.over(Action{Kind: ActionLost, Epoch: c.last.Epoch, Node: c.owner})", "s.seq, s.pending = c.tail, nil"},
	{"fenced_says_goodbye", "session.go", "s.conn.Close(dnp.CloseMoved)", "s.conn.Close(dnp.CloseLocal)\n\t\ts.conn.Ended()"},
	{"open_over_the_living", "answer.go", "s.phase == Opening && c.closed:", "s.phase == Opening:"},
	{"epoch_stays", "answer.go", "c.tail, c.last.Epoch+1\n\ts.phase", "c.tail, c.last.Epoch\n\ts.phase"},
	{"checkpoint_forgets_undelivered", "own.go", "Last: s.keep.first, Kept: s.keep.list}", "Last: s.keep.next}"},
	{"delivered_is_guessed", "adopt.go", "s.keep.restore(c.ckpt, c.delivered)", "s.keep.restore(c.ckpt, 1<<62)"},
	{"feed_starts_anew", "adopt.go", "conn, c.token, s.cfg", "conn, c.ckpt.Token/2, s.cfg"},
	{"checkpoint_without_changes", "own.go", "k.Changes = s.conn.Changes(s.cfg.BlockBytes)", "k.Changes = s.conn.Changes(1 << 30)\n\tif ckpt {\n\t\tk.Changes.Received = nil\n\t}"},
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
			file, overlay := filepath.Join(folder, "mutant.go"), filepath.Join(folder, "overlay.json")
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
