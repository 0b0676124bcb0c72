package main

import (
	"testing"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/rogpeppe/go-internal/testscript"
)

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"dnpctl": main})
}

// TestScripts runs testdata/script. Each script has its own edge for each profile, in $EDGE
// and $SPEC, and its own NATS server with a relay, in $DNP_NATS_URL.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir:  "testdata/script",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){"draining": startDraining},
		Setup: func(env *testscript.Env) error {
			tb := env.T().(testing.TB)
			env.Setenv("EDGE", startEdge(tb, wire.Denetwork).String())
			env.Setenv("SPEC", startEdge(tb, wire.Spec).String())
			env.Setenv("DNP_NATS_URL", startRelay(tb))
			return nil
		},
	})
}
