package dnp

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/admit"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

func gate(t testing.TB, cfg admit.Config) *admit.Gate {
	t.Helper()
	g, err := admit.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// loginConfig is a Config whose peers have to log in with a message that begins with
// "let me in"; "later" has to wait.
func loginConfig() Config {
	cfg := quiet()
	cfg.Probe = ProbePing
	cfg.Login = func(_ time.Time, _ netip.AddrPort, message []byte) (LoginVerdict, any) {
		switch text := string(message); {
		case strings.HasPrefix(text, "let me in"):
			return LoginAccept, text
		case text == "later":
			return LoginWait, nil
		}
		return LoginRefuse, nil
	}
	return cfg
}

// forgedCommands are all commands that exist, and two that do not.
var forgedCommands = []byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 255}

// forge returns a datagram with this command: valid, cut, changed or random.
func forge(rng *rand.Rand, command byte) []byte {
	whole := map[byte]string{
		0: "00 0100 0000", 1: "01 00 0000", 2: "02", 3: "03 61", 4: "04 0000 61", 5: "05 0000 0000 00 0100 4d 0100 01 2a",
		6: "06 0000 00", 7: "07 0080", 8: "08 0080", 9: "09 01 0080 01 0000 07", 10: "0a 0000 00", 11: "0b 0000 0000 06 0100 4d",
		12: "0c", 255: "ff",
	}
	p := unhex(whole[command])
	switch rng.IntN(4) {
	case 0:
		p = p[:1+rng.IntN(len(p))]
	case 1:
		if i := rng.IntN(len(p)); i > 0 {
			p[i] = byte(rng.Uint32())
		}
	case 2:
		for range rng.IntN(40) {
			p = append(p, byte(rng.Uint32()))
		}
	}
	return p
}

// TestAmplification sends every sequence of one, two and three commands, with several
// bodies each, from an address that proves nothing, and waits for what the Endpoint sends
// later. Forged datagrams may guess numbers, because no application data follows here.
func TestAmplification(t *testing.T) {
	for _, c := range []struct {
		name   string
		cfg    func() Config
		factor int
	}{
		{"token and callout", loginConfig, 1},
		{"open, ping", func() Config { return proofConfig(ProbePing) }, 6},
		{"open, hello", func() Config { return proofConfig(ProbeHello) }, 6},
		{"open, spec", func() Config {
			cfg := proofConfig(ProbeHello)
			cfg.Profile = wire.Spec
			return cfg
		}, 6},
		{"login in time", func() Config { // to silentMax peers at a time
			cfg := loginConfig()
			cfg.LoginTimeout = 5 * time.Second
			return cfg
		}, 6},
		{"open, under a flood", func() Config {
			cfg := proofConfig(ProbePing)
			cfg.Gate = gate(t, admit.Config{StatefulRate: 1e-9})
			return cfg
		}, 6},
	} {
		t.Run(c.name, func(t *testing.T) {
			rng := newRand(t)
			worst, n := 0.0, 0
			for _, length := range []int{1, 2, 3} {
				sequences(length, func(commands []byte) {
					for range 4 - length/3*2 { // three commands: two bodies each
						cfg := c.cfg()
						cfg.LivenessInterval = 0        // the setting of servers
						cfg.UnprovenMax = 2 * silentMax // a larger table only takes time to make
						worst = max(worst, amplify(t, rng, cfg, commands, c.factor))
						n++
					}
				})
			}
			for _, known := range [][]string{ // sequences that were worst in random runs
				{"0001000000", "0b0000c2000601004d"}, {"0001000000", "06000000", "ff"}, {"0001000000", "04", "06000000"},
				{"0001000000", "06000000", "0001000000"}, {"0001000000", "04000061"}, {"0001000000", "04000061", "0b0100c2000601004d"},
			} {
				s := newTest(t, c.cfg())
				s.recv(known...)
				s.wait(80 * time.Second)
				in, out := len(strings.Join(known, ""))/2, len(strings.Join(s.sent, ""))/2
				if out > c.factor*in {
					t.Fatalf("%d bytes in, %d out:\n%q\n%q", in, out, known, s.sent)
				}
			}
			t.Logf("%d sequences, at most %.2f bytes out per byte in", n, worst)
		})
	}
}

// sequences calls f with every sequence of forgedCommands of this length.
func sequences(length int, f func([]byte)) {
	var walk func(commands []byte)
	walk = func(commands []byte) {
		if len(commands) == length {
			f(commands)
			return
		}
		for _, command := range forgedCommands {
			walk(append(commands[:len(commands):len(commands)], command))
		}
	}
	walk(nil)
}

func amplify(t *testing.T, rng *rand.Rand, cfg Config, commands []byte, factor int) float64 {
	t.Helper()
	s := newTest(t, cfg)
	in, forged := 0, []string{}
	for _, command := range commands {
		p := forge(rng, command)
		in += len(p)
		d := fmt.Sprintf("%x", p)
		forged = append(forged, d)
		s.recv(d)
		if rng.IntN(2) == 0 {
			s.wait(time.Duration(rng.IntN(3000)) * time.Millisecond)
		}
	}
	s.wait(80 * time.Second)
	out := len(strings.Join(s.sent, "")) / 2
	if out > factor*in {
		t.Fatalf("%d bytes in, %d out:\n%q\n%q", in, out, forged, s.sent)
	}
	return float64(out) / float64(in)
}
