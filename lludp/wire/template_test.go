package wire_test

import (
	"testing"

	"github.com/dnprelay/dnprelay/lludp/wire"
	"github.com/dnprelay/dnprelay/lludp/wire/wiretest"
)

func TestTemplates(t *testing.T) {
	for i, m := range wiretest.Messages {
		if m.Number.Frequency() == wire.NoFrequency || m.Name == "" {
			t.Errorf("%x %q is not a message", m.Number, m.Name)
		}
		if i > 0 && m.Number <= wiretest.Messages[i-1].Number {
			t.Errorf("%s is out of order", m.Name)
		}
		if n := m.Number; n.ZeroCoded() != m.Coded || n.Trusted() != m.Trusted {
			t.Errorf("%s is zero-coded %t, trusted %t; want %t, %t", m.Name, n.ZeroCoded(), n.Trusted(), m.Coded, m.Trusted)
		}
	}
	for _, c := range []wiretest.Message{
		{Number: wire.StartPingCheck, Name: "StartPingCheck", Coded: false, Trusted: false},
		{Number: wire.AgentUpdate, Name: "AgentUpdate", Coded: true, Trusted: false},
		{Number: wire.ObjectUpdate, Name: "ObjectUpdate", Coded: true, Trusted: true},
		{Number: wire.CoarseLocationUpdate, Name: "CoarseLocationUpdate", Coded: false, Trusted: true},
		{Number: wire.UseCircuitCode, Name: "UseCircuitCode", Coded: false, Trusted: false},
		{Number: wire.GenericMessage, Name: "GenericMessage", Coded: true, Trusted: false},
		{Number: wire.CloseCircuit, Name: "CloseCircuit", Coded: false, Trusted: false},
		{Number: 0xFFFF7777, Name: "", Coded: false, Trusted: false},
	} {
		if n := c.Number; wiretest.Name(n) != c.Name || n.ZeroCoded() != c.Coded || n.Trusted() != c.Trusted {
			t.Errorf("%x is %q, zero-coded %t, trusted %t; want %q, %t, %t", n, wiretest.Name(n), n.ZeroCoded(), n.Trusted(), c.Name, c.Coded, c.Trusted)
		}
	}
}
