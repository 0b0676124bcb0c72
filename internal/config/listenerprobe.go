package config

import (
	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// probeNames are the probes that an operator can choose. The fourth belongs to
// authentication by token, where the client has to speak first.
var probeNames = map[dnp.Probe]string{dnp.ProbePing: "ping", dnp.ProbeHello: "hello", dnp.ProbeNone: "none"}

func parseProbe(name string) (p dnp.Probe, ok bool) {
	for p, n := range probeNames {
		if n == name {
			return p, true
		}
	}
	return 0, false
}

func defaultProbe(profile wire.Profile) dnp.Probe {
	if profile.Long() {
		return dnp.ProbePing
	}
	return dnp.ProbeHello
}
