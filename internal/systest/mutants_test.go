package systest

import (
	"flag"
	"regexp"
	"testing"

	"github.com/dnprelay/dnprelay/internal/mutants"
)

var hunt = flag.Bool("mutants", false, "run the simulations over every deliberate fault (some minutes)")

func TestMutantsApply(t *testing.T) { mutants.Check(t, mutantList) }

func TestMutants(t *testing.T) {
	if !*hunt {
		t.Skip("deliberate faults take -mutants, because each is compiled")
	}
	mutants.Run(t, mutants.Config{Run: chaosRun, Args: []string{"-seed", "1", "-rounds", "60"}, Rounds: roundsBegun}, mutantList)
}

var aRound = regexp.MustCompile(`^=== RUN +Test\w+/\d+$`)

// roundsBegun counts the seeds that were tried.
func roundsBegun(lines []string) (n int) {
	for _, line := range lines {
		if aRound.MatchString(line) {
			n++
		}
	}
	return n
}
