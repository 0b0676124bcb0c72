package wire

import "testing"

func TestTemplates(t *testing.T) {
	for i, m := range templates {
		if m.number.Frequency() == NoFrequency || m.name == "" {
			t.Errorf("%x %q is not a message", m.number, m.name)
		}
		if i > 0 && m.number <= templates[i-1].number {
			t.Errorf("%s is out of order", m.name)
		}
	}
	for _, c := range []struct {
		number         Number
		name           string
		coded, trusted bool
	}{
		{StartPingCheck, "StartPingCheck", false, false},
		{AgentUpdate, "AgentUpdate", true, false},
		{ObjectUpdate, "ObjectUpdate", true, true},
		{CoarseLocationUpdate, "CoarseLocationUpdate", false, true},
		{UseCircuitCode, "UseCircuitCode", false, false},
		{GenericMessage, "GenericMessage", true, false},
		{CloseCircuit, "CloseCircuit", false, false},
		{0xFFFF7777, "", false, false},
	} {
		if n := c.number; n.Name() != c.name || n.ZeroCoded() != c.coded || n.Trusted() != c.trusted {
			t.Errorf("%x is %q, zero-coded %t, trusted %t; want %q, %t, %t", n, n.Name(), n.ZeroCoded(), n.Trusted(), c.name, c.coded, c.trusted)
		}
	}
}
