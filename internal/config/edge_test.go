package config_test

import (
	"strings"
	"testing"

	"github.com/dnprelay/dnprelay/internal/config"
)

func TestEdgeFlags(t *testing.T) {
	p, code := run(t, nil, "serve")
	s := p.Serve
	if code != config.ExitOK || s.Auth != "open" || s.Sessions != 65536 || s.SessionsPerAddress != 64 || s.AddressRate != 5 ||
		s.ConnectRate != 0 || s.SessionDatagramRate != 200 || s.SessionByteRate != 65536 ||
		s.SessionSendRate != 256<<10 || s.OfferRate != 4<<20 {
		t.Errorf("exit code %d, defaults are %+v", code, s)
	}
	t.Setenv("DNP_ADDRESS_RATE", "fast")
	p, code = run(t, nil, strings.Fields("serve --auth=jwt --token-keys=/nonexistent --sessions=0 --sessions-per-address=-1 "+
		"--connect-rate=-1 --session-datagram-rate=x --session-byte-rate=-2 --session-send-rate=-3 --offer-rate=-4")...)
	if code != config.ExitUsage {
		t.Errorf("exit code %d", code)
	}
	p.wantErr("all problems are listed", "prog: 10 problems:\n", `  --auth: want open, token or callout, got "jwt"`,
		"  --token-keys: open /nonexistent", "  --sessions: want 1 to", "  --sessions-per-address: want 0 to",
		`  --address-rate: want a number, got "fast" (from DNP_ADDRESS_RATE)`, "  --connect-rate: want 0 to 10000000 per second, got -1",
		`  --session-datagram-rate: want a whole number`, "  --session-byte-rate: want 0 to",
		"  --session-send-rate: want 0 to 1073741824, got -3", "  --offer-rate: want 0 to 1073741824, got -4")
}

func TestTokenKeysAndAuth(t *testing.T) {
	for args, want := range map[string]string{
		"serve --auth=token":               "prog: --auth: token needs --token-keys",
		"serve --token-keys=edge_test.go":  "prog: --token-keys: needs --auth token",
		"serve --address-rate=NaN":         "prog: --address-rate: want 0 to",
		"serve --auth=callout --shards=64": "",
	} {
		p, code := run(t, nil, strings.Fields(args)...)
		if (code == config.ExitUsage) != (want != "") || !strings.Contains(p.stderr.String(), want) {
			t.Errorf("%s: exit code %d, %s", args, code, p.stderr.String())
		}
	}
}
