package main

import (
	"testing"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/edgetest"
	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"dnpctl": main})
}

// TestScripts runs testdata/script. Each script has its own edge for each profile, in $EDGE
// and $SPEC, one whose link messages have names, in $DESCRIBING, one with a value that has components, in $ARMED, and its own NATS server with a relay, in $DNP_NATS_URL.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:  "testdata/script",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"draining": startDraining, "jsonlines": jsonLines},
		Setup: func(env *testscript.Env) error {
			tb := env.T().(testing.TB)
			env.Setenv("EDGE", edgetest.Start(tb, edgetest.Config{}).String())
			env.Setenv("SPEC", edgetest.Start(tb, edgetest.Config{Profile: wire.Spec}).String())
			env.Setenv("DESCRIBING", edgetest.Start(tb, edgetest.Config{Describe: true}).String())
			env.Setenv("ARMED", edgetest.Start(tb, edgetest.Config{Gun: true}).String())
			env.Setenv("DNP_NATS_URL", startRelay(tb))
			return nil
		},
	})
}
