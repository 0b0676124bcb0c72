package logtest

import (
	"fmt"
	"testing"

	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// survivors is how many writes each writer of survive gets into its log.
const survivors = 60

// survive: writers that do what a session does with each answer get every write into
// the log once and in order, in whatever trouble the store is.
func survive(t *testing.T, s *Store) {
	if s.Trouble == nil {
		t.Skip("this store has no trouble")
	}
	seq := uint64(0)
	var all []string
	counts := map[fence.Verdict]int{}
	for k := range survivors {
		s.Trouble(k)
		w := write("SURVIVE", seq, fmt.Sprintf("write %d", k))
		if k%20 == 19 {
			w.Rollup, all = true, nil
		}
		seq = s.insist(t, w, counts)
		all = append(all, string(w.Data))
	}
	s.Peace()
	for s.read(t, s.B, "SURVIVE").Verdict != fence.OK {
	}
	s.want(t, s.B, "SURVIVE", "each once, in order", all...)
	t.Logf("%d writes, answers to attempts: %v", survivors, counts)
}

// insist writes until it is certain that w is stored, as sessionlog.Session does.
func (s *Store) insist(t *testing.T, w sessionlog.Write, counts map[fence.Verdict]int) uint64 {
	t.Helper()
	for {
		a := s.append(t, s.Hasty, w)[0]
		counts[a.Verdict]++
		switch a.Verdict {
		case fence.OK:
			return a.Seq
		case fence.Busy, fence.Unreachable:
			continue
		}
		r := s.read(t, s.Hasty, w.Log)
		if r.Verdict != fence.OK || len(r.Entries) == 0 {
			continue
		}
		last := r.Entries[len(r.Entries)-1]
		switch {
		case last.Seq > w.Expect && string(last.Data) == string(w.Data):
			return last.Seq // its answer was lost
		case last.Seq > w.Expect:
			t.Fatalf("%q wants to follow %d, but %q is there: nobody else writes", w.Data, w.Expect, last.Data)
		}
	}
}
