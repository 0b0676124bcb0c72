package config

import "github.com/dnprelay/dnprelay/dnp/wire"

// A Probe is how a client proves that it receives what is sent to its address.
type Probe uint8

const (
	ProbePing  Probe = iota // an empty part of a long message, which clients acknowledge and ignore
	ProbeHello              // a link with a random LinkId, which clients accept or refuse
	ProbeNone               // the connection request is trusted
)

var probeNames = [...]string{ProbePing: "ping", ProbeHello: "hello", ProbeNone: "none"}

func parseProbe(name string) (p Probe, ok bool) {
	for i, n := range probeNames {
		if n == name {
			return Probe(i), true
		}
	}
	return 0, false
}

func defaultProbe(profile wire.Profile) Probe {
	if profile.Long() {
		return ProbePing
	}
	return ProbeHello
}
