package wire

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestTemplates compares what is known about messages with a list of the template, which testdata has, and with what it says about
// numbers between and behind them.
func TestTemplates(t *testing.T) {
	text, err := os.ReadFile("testdata/template.txt")
	if err != nil {
		t.Fatal(err)
	}
	listed := make(map[Number]bool)
	for line := range strings.Lines(string(text)) {
		var n Number
		var name, trust, coding string
		if _, err := fmt.Sscanf(line, "%x %s %s %s", &n, &name, &trust, &coding); err != nil || n.Frequency() == NoFrequency {
			t.Fatalf("%q is not a message: %v", line, err)
		}
		listed[n] = true
		if n.Trusted() != (trust == "Trusted") || n.ZeroCoded() != (coding == "Zerocoded") {
			t.Errorf("%s: trusted %t, zero-coded %t; want %s, %s", name, n.Trusted(), n.ZeroCoded(), trust, coding)
		}
	}
	if len(listed) != 478 {
		t.Errorf("the template has %d messages, want 478", len(listed))
	}
	for _, base := range []Number{0, 0xFF00, 0xFFFF0000, 0xFFFF7700, 0xFFFFFF00} {
		for n := base; n < base+0x200 && n >= base; n++ {
			if !listed[n] && (n.Trusted() || n.ZeroCoded()) {
				t.Errorf("%x is in no template: trusted %t, zero-coded %t", n, n.Trusted(), n.ZeroCoded())
			}
		}
	}
}
