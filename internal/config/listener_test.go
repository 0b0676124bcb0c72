package config

import (
	"strings"
	"testing"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

func TestListener(t *testing.T) {
	for _, c := range []struct {
		text    string
		addr    string
		profile wire.Profile
		probe   dnp.Probe
		again   string // of String
	}{
		{"udp://:3413", "[::]:3413", wire.Denetwork, dnp.ProbePing, "udp://:3413"},
		{"udp://[::]:3413", "[::]:3413", wire.Denetwork, dnp.ProbePing, "udp://:3413"},
		{"udp://0.0.0.0:3413", "0.0.0.0:3413", wire.Denetwork, dnp.ProbePing, "udp://0.0.0.0:3413"},
		{"udp://localhost:0", "127.0.0.1:0", wire.Denetwork, dnp.ProbePing, "udp://127.0.0.1:0"},
		{"udp://[::1]:3414?profile=spec", "[::1]:3414", wire.Spec, dnp.ProbeHello, "udp://[::1]:3414?profile=spec"},
		{"udp://[::ffff:127.0.0.1]:5", "127.0.0.1:5", wire.Denetwork, dnp.ProbePing, "udp://127.0.0.1:5"},
		{"udp://:1?probe=none&profile=denetwork", "[::]:1", wire.Denetwork, dnp.ProbeNone, "udp://:1?probe=none"},
		{"udp://:1?profile=spec&probe=none", "[::]:1", wire.Spec, dnp.ProbeNone, "udp://:1?profile=spec&probe=none"},
		{"udp://:1?probe=hello", "[::]:1", wire.Denetwork, dnp.ProbeHello, "udp://:1?probe=hello"},
	} {
		l, err := ParseListener(c.text)
		if err != nil || l.Addr.String() != c.addr || l.Profile != c.profile || l.Probe != c.probe {
			t.Errorf("%s: %v, %v, probe %d, %v", c.text, l.Addr, l.Profile, l.Probe, err)
		}
		if l.String() != c.again {
			t.Errorf("%s: prints as %s, want %s", c.text, l, c.again)
		}
		if again, err := ParseListener(l.String()); err != nil || again != l {
			t.Errorf("%s: %v becomes %v when its text is parsed, %v", c.text, l, again, err)
		}
	}
}

func TestListenerErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                                 "want udp://",
		":3413":                            "want udp://",
		"tcp://:3413":                      "want udp://",
		"udp:3413":                         "want udp://",
		"udp://user@:3413":                 "want udp://",
		"udp://:3413/path":                 "want udp://",
		"udp://:3413#x":                    "want udp://",
		"udp://:":                          "want a port",
		"udp://127.0.0.1":                  "want a port",
		"udp://:65536":                     "want a port",
		"udp://game.example:1":             "want an IP address",
		"udp://:1?x=1":                     `unknown option "x"`,
		"udp://:1?profile=old":             `unknown profile "old"`,
		"udp://:1?profile=":                `unknown profile ""`,
		"udp://:1?probe=pong":              `unknown probe "pong"`,
		"udp://:1?probe=none&probe=ping":   "given 2 times",
		"udp://:1?profile=spec&probe=ping": "does not know the command",
		"udp://:1?a;b":                     "cannot be read",
	} {
		_, err := ParseListener(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want an error with %q", text, err, want)
		}
	}
}

func FuzzListener(f *testing.F) {
	f.Add("udp://:3413?profile=spec&probe=none")
	f.Add("udp://[fe80::1%25eth0]:1")
	f.Fuzz(func(t *testing.T, text string) {
		l, err := ParseListener(text)
		if err != nil {
			return
		}
		if again, err := ParseListener(l.String()); err != nil || again != l {
			t.Errorf("%q became %v, which became %v, %v", text, l, again, err)
		}
	})
}
