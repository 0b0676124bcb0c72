package config_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/version"
)

// program is a program with one command, and its output.
type program struct {
	t        *testing.T
	Serve    *serve
	commands struct {
		Serve serve `cmd:""`
	}
	stdout, stderr strings.Builder
}

type serve struct {
	config.NATS `group:"Cluster"`
	config.Node `group:"Cluster"`
	config.Edge `group:"Edge"`
	config.Sharding
	config.Relay   `group:"Relay"`
	config.Admin   `set:"http=127.0.0.1:8413"`
	config.Logging `group:"Logs"`

	ran bool
	err error
}

func (s *serve) Run(_ context.Context, log *slog.Logger) error {
	s.ran = true
	log.Info("serving", "node", s.Name)
	return s.err
}

func run(t *testing.T, fail error, args ...string) (*program, int) {
	p := &program{t: t}
	p.commands.Serve.err = fail
	code := config.Program{Name: "prog", Commands: &p.commands, Stdout: &p.stdout, Stderr: &p.stderr}.Main(args)
	p.Serve = &p.commands.Serve
	return p, code
}

func (p *program) wantErr(reason string, lines ...string) {
	p.t.Helper()
	got := p.stderr.String()
	for _, line := range lines {
		if !strings.Contains(got, line) {
			p.t.Errorf("%s: no %q in\n%s", reason, line, got)
		}
	}
}

func TestDefaults(t *testing.T) {
	t.Setenv("POD_NAME", "edge-0")
	p, code := run(t, nil, "serve")
	if code != config.ExitOK || !p.Serve.ran {
		t.Fatalf("exit code %d, ran %v:\n%s", code, p.Serve.ran, p.stderr.String())
	}
	s := p.Serve
	if len(s.Listen) != 1 || s.Listen[0].String() != "udp://:3413" || s.Flush != 5*time.Millisecond ||
		s.Tick != 10*time.Millisecond || s.Shards != 64 || s.Name != "edge-0" || s.HTTP != "127.0.0.1:8413" {
		t.Errorf("defaults are %+v", s)
	}
	p.wantErr("logs go to standard error", "level=INFO msg=serving node=edge-0")
}

func TestEnvironment(t *testing.T) {
	t.Setenv("DNP_LISTEN", "udp://:1,udp://:2?profile=spec")
	t.Setenv("DNP_NATS_URL", "nats://a:1,tls://b:2")
	t.Setenv("DNP_TICK", "0")
	t.Setenv("DNP_FLUSH", "1ms")
	t.Setenv("DNP_HTTP", "")
	t.Setenv("DNP_LOG_FORMAT", "json")
	p, code := run(t, nil, "serve", "--flush=2ms")
	s := p.Serve
	if code != config.ExitOK || len(s.Listen) != 2 || s.NATSURL != "nats://a:1,tls://b:2" || s.Tick != 0 || s.HTTP != "" {
		t.Errorf("exit code %d, %+v\n%s", code, s, p.stderr.String())
	}
	if s.Flush != 2*time.Millisecond {
		t.Errorf("flush %v: a flag wins over the environment", s.Flush)
	}
	p.wantErr("--log-format json", `"msg":"serving"`)
}

func TestEveryProblemAtOnce(t *testing.T) {
	t.Setenv("DNP_FLUSH", "abc")
	p, code := run(t, nil, "serve", "--listen", "udp://x:1", "--listen=udp://:1", "--listen=udp://:1", "--shards=0",
		"--tick=5", "--workers=many", "--log-level=loud", "--nats-url=nowhere", "--nats-creds=/nonexistent",
		"--subject-prefix=a..b", "--node=a/b", "--open-space=a.b", "--client-states=all", "--http=8413", "--pprof")
	if code != config.ExitUsage || p.Serve.ran {
		t.Errorf("exit code %d, ran %v", code, p.Serve.ran)
	}
	p.wantErr("all problems are listed", "prog: 13 problems:\n",
		`  --listen: "udp://x:1": want an IP address of this machine, got "x"`,
		`  --flush: want a duration with its unit, as 5ms, 2s or 1m30s, got "abc" (from DNP_FLUSH)`,
		`  --shards: want 1 to 1024, got 0`, `  --tick: want a duration`, `  --workers: want a whole number, got "many"`,
		`  --log-level: want debug, info, warn or error, got "loud"`, `  --nats-url: want nats://`,
		`  --nats-creds: open /nonexistent`, `  --subject-prefix: want`, `  --node: want`,
		`  --open-space: want`, `  --client-states: want off, game or space, got "all"`,
		`  --http: want ADDRESS:PORT, got "8413"`, "prog serve --help explains every flag.\n")
}

func TestProblemsOfFlags(t *testing.T) {
	for _, c := range []struct{ reason, args, want string }{
		{"one unknown flag", "serve --flsh=1ms", `prog: --flsh: unknown flag, did you mean "--flush"?`},
		{"an unknown flag beside another problem", "serve --flsh=1ms --shards=x", "prog: 2 problems:\n  --flsh: unknown flag, did you mean \"--flush\"?\n  --shards: want a whole number"},
		{"an unknown flag that is like no other", "serve --elephant=1", "prog: --elephant: unknown flag\n"},
		{"two unknown flags and their values", "serve --one 1 --two=2 --shards=x",
			"prog: 3 problems:\n  --one: unknown flag\n  --two: unknown flag\n  --shards: want a whole number"},
		{"no command", "", "Usage: prog <command> [flags]"},
		{"unknown command", "server", `prog: unexpected argument server, did you mean "serve"?`},
		{"unexpected argument", "serve now", "prog: unexpected argument now"},
		{"flag without value", "serve --flush", "prog: --flush: needs a value"},
		{"flag without value before another", "serve --flush --pprof", "prog: --flush: needs a value"},
		{"same listener twice", "serve --listen=udp://:1,udp://:1?profile=spec", "udp://:1 and udp://:1?profile=spec are the same address"},
		{"pprof without a server", "serve --pprof --http=", "prog: --pprof: needs --http"},
	} {
		p, code := run(t, nil, strings.Fields(c.args)...)
		if code != config.ExitUsage {
			t.Errorf("%s: exit code %d, want 2", c.reason, code)
		}
		p.wantErr(c.reason, c.want)
	}
}

func TestHelp(t *testing.T) {
	p, code := run(t, nil, "serve", "--help")
	out := strings.Join(strings.Fields(p.stdout.String()), " ")
	if code != config.ExitOK || p.Serve.ran {
		t.Errorf("exit code %d, ran %v", code, p.Serve.ran)
	}
	for _, want := range []string{"--flush=5ms", "$DNP_FLUSH", "$DNP_NATS_URL", "(default udp://:3413)", "$DNP_HTTP", "127.0.0.1:8413"} {
		if !strings.Contains(out, want) {
			t.Errorf("help does not mention %s:\n%s", want, out)
		}
	}
}

func TestVersion(t *testing.T) {
	t.Setenv("DNP_VERSION", "not the variable of a flag")
	for _, args := range [][]string{{"--version"}, {"serve", "--version"}, {"serve", "--tick=never", "--version"}} {
		p, code := run(t, nil, args...)
		if code != config.ExitOK || p.Serve.ran || p.stdout.String() != "prog "+version.Long()+"\n" || p.stderr.Len() > 0 {
			t.Errorf("%q: exit code %d, ran %v, %q, %q", args, code, p.Serve.ran, p.stdout.String(), p.stderr.String())
		}
	}
}

func TestExitCodes(t *testing.T) {
	p, code := run(t, errors.Join(errors.New("port 1 is in use"), errors.New("and so is 2")), "serve")
	if code != config.ExitFailed || !strings.HasSuffix(p.stderr.String(), "\nprog: port 1 is in use; and so is 2\n") {
		t.Errorf("exit code %d, want one line that says why:\n%s", code, p.stderr.String())
	}
	p, code = run(t, &config.UsageError{Problem: "value hp: want a number"}, "serve")
	if code != config.ExitUsage {
		t.Errorf("exit code %d, want 2 for a problem with arguments", code)
	}
	p.wantErr("the problem is printed", "prog: value hp: want a number\n")
}

// TestMisspeltEnvironment requires that a program warns of variables whose names are almost those
// of flags, and says nothing of those that may be for other programs.
func TestMisspeltEnvironment(t *testing.T) {
	t.Setenv("DNP_TIKC", "5ms")
	t.Setenv("DNP_NATS_URLS", "x")
	t.Setenv("DNP_ELEPHANT", "1")
	t.Setenv("DNP_FLUSH", "1ms")
	p, code := run(t, nil, "serve")
	if code != config.ExitOK || !p.Serve.ran {
		t.Errorf("exit code %d, ran %v: a variable that is not read is no problem", code, p.Serve.ran)
	}
	p.wantErr("near misses", `environment variable DNP_TIKC is of no flag, did you mean \"DNP_TICK\"?`,
		`environment variable DNP_NATS_URLS is of no flag, did you mean \"DNP_NATS_URL\"?`, "level=WARN")
	if got := p.stderr.String(); strings.Contains(got, "ELEPHANT") || strings.Contains(got, "DNP_FLUSH") {
		t.Errorf("the program warns of other variables:\n%s", got)
	}
}

func TestLogLevelInCapitals(t *testing.T) {
	p, code := run(t, nil, "serve", "--log-level", "Warn")
	if code != config.ExitOK || strings.Contains(p.stderr.String(), "serving") {
		t.Errorf("exit code %d, with --log-level Warn the program logs\n%s", code, p.stderr.String())
	}
}

func TestLogLevel(t *testing.T) {
	var out strings.Builder
	log := config.Logging{LogLevel: "warn", LogFormat: "text"}.Logger(&out)
	log.Info("small")
	log.Warn("large")
	if got := out.String(); strings.Contains(got, "small") || !strings.Contains(got, "large") {
		t.Errorf("level warn wrote %q", got)
	}
}
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
		"serve --token-keys=flags_test.go": "prog: --token-keys: needs --auth token",
		"serve --address-rate=NaN":         "prog: --address-rate: want 0 to",
		"serve --auth=callout --shards=64": "",
	} {
		p, code := run(t, nil, strings.Fields(args)...)
		if (code == config.ExitUsage) != (want != "") || !strings.Contains(p.stderr.String(), want) {
			t.Errorf("%s: exit code %d, %s", args, code, p.stderr.String())
		}
	}
}
