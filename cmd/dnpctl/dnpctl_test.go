package main

import (
	"os"
	"testing"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/buildtest"
	"github.com/dnprelay/dnprelay/internal/edgetest"
	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"dnpctl": main})
}

// TestScripts runs testdata/script, with the program that make test built, because one with the race detector takes five times as long to
// start; without make test with this binary, so that coverage counts. Each script has its own edge for each profile, in $EDGE
// and $SPEC, one whose link messages have names, in $DESCRIBING, one with a value that has components, in $ARMED, and its own NATS server with a relay, in $DNP_NATS_URL.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:  "testdata/script",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"draining": startDraining, "jsonlines": jsonLines},
		Setup: func(env *testscript.Env) error {
			tb := env.T().(testing.TB)
			if dir := buildtest.Made(); dir != "" {
				env.Setenv("PATH", dir+string(os.PathListSeparator)+env.Getenv("PATH"))
			}
			env.Setenv("EDGE", edgetest.Start(tb, edgetest.Config{}).String())
			env.Setenv("SPEC", edgetest.Start(tb, edgetest.Config{Profile: wire.Spec}).String())
			env.Setenv("DESCRIBING", edgetest.Start(tb, edgetest.Config{Describe: true}).String())
			env.Setenv("ARMED", edgetest.Start(tb, edgetest.Config{Gun: true}).String())
			env.Setenv("DNP_NATS_URL", startRelay(tb))
			return nil
		},
	})
}
