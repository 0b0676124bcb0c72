package systest

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dnprelay/dnprelay/internal/buildtest"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/natstest"
	"github.com/dnprelay/dnprelay/token"
)

// A wrongConfiguration is one with which a program must not start. In the arguments, the environment and the texts,
// @NAME stands for the file NAME of wrongFiles, and NATS for the address of a NATS server whose store streams have
// one replica.
type wrongConfiguration struct {
	why, args, env string
	says           []string // all of these
	problems       int      // so many lines; 0 stands for the number of texts
}

var wrongConfigurations = []wrongConfiguration{
	{why: "a flag that does not exist", args: "relay serve --tik 5ms", says: []string{`--tik: unknown flag, did you mean "--tick"?`}},
	{why: "an unknown flag hides no other problem", args: "edge serve --flsh=1 --workers=many --auth=jwt", says: []string{"--flsh: unknown flag", "--workers: want a whole number", "--auth: want open, token or callout"}},
	{why: "a command that does not exist", args: "edge server", says: []string{`did you mean "serve"?`}},
	{why: "an argument too many", args: "relay serve now", says: []string{"unexpected argument now"}},
	{why: "a flag without its value", args: "relay serve --tick", says: []string{"--tick: needs a value"}},
	{why: "numbers and durations", args: "relay serve --shards=0 --tick=5 --replicas=six --spaces=0 --store-streams=65 --durable-rate=0 --lease-silence=1s --drain-timeout=-1s --start-timeout=25h",
		says: []string{"--shards: want 1 to 1024", "--tick: want a duration", "--replicas: want a whole number", "--spaces: want 1 to", "--store-streams: want 1 to 64", "--durable-rate: want 1 to", "--lease-silence: want 2s to", "--drain-timeout: want 0s to", "--start-timeout: want 0s to"}},
	{why: "the variable is named, which is easily overlooked", args: "relay serve", env: "DNP_TICK=soon", says: []string{`--tick: want a duration with its unit, as 5ms, 2s or 1m30s, got "soon" (from DNP_TICK)`}},
	{why: "rates of clients", args: "edge serve --address-rate=NaN --connect-rate=-1 --sessions=0 --session-send-rate=-1", says: []string{"--address-rate: want 0", "--connect-rate: want 0", "--sessions: want 1", "--session-send-rate: want 0"}},
	{why: "levels and forms of logs", args: "edge serve --log-level=loud --log-format=xml --log-addresses=some", says: []string{"--log-level: want debug, info, warn or error", "--log-format: want text or json", "--log-addresses: want full, truncated or off"}},
	{why: "names that become subjects", args: "edge serve --node=a/b --open-space=a.b --subject-prefix=a..b", says: []string{"--node: want", "--open-space: want", "--subject-prefix: want"}},

	{why: "listeners", args: "edge serve --listen=tcp://:1", says: []string{"--listen: want udp://"}},
	{why: "one address for two listeners", args: "edge serve --listen=udp://:1,udp://:1?profile=spec", says: []string{"are the same address"}},
	{why: "a probe that the profile does not have", args: "edge serve --listen=udp://:1?profile=spec&probe=ping", says: []string{"profile spec does not know the command"}},
	{why: "ports for browsers, Variants and viewers", args: "edge serve --websocket=here --webtransport=there:1 --variant=x --lludp=y --lludp-public=[::1]:9",
		says: []string{"--websocket: want", "--webtransport: want", "--webtransport: needs --tls-cert", "--variant: want", "--lludp: want", "--lludp-public: want an IPv4 address"}},
	{why: "origins and proxies", args: "edge serve --websocket-origins=game.example --trusted-proxies=10.0.0.0/40", says: []string{"--websocket-origins: want https://", "--trusted-proxies: want IP addresses"}},
	{why: "WebTransport without a certificate", args: "edge serve --webtransport=:3480", says: []string{"--webtransport: needs --tls-cert"}},
	{why: "half a certificate", args: "edge serve --tls-cert=@cert", says: []string{"--tls-cert: needs --tls-key"}},
	{why: "a certificate that is none", args: "edge serve --tls-cert=@text --tls-key=@text", says: []string{"--tls-cert: certificate: @text"}},
	{why: "the port for health", args: "relay serve --http=8413", says: []string{"--http: want ADDRESS:PORT"}},
	{why: "profiles without a port", args: "relay serve --http= --pprof", says: []string{"--pprof: needs --http"}},
	{why: "a file that is no token", args: "relay serve --http-token=@text", says: []string{"--http-token: @text: want one word of at least 22 bytes"}},
	{why: "a folder in the place of a token", args: "edge serve --http-token=@", says: []string{"--http-token: @ is a folder"}},
	{why: "a file that is no token, of relay dev", args: "relay dev --http-token=@text", says: []string{"--http-token: @text: want one word"}},

	{why: "logins without keys", args: "edge serve --auth=token", says: []string{"--auth: token needs --token-keys"}},
	{why: "a misspelt variable is named beside what is missing", args: "edge serve --auth=token", env: "DNP_TOKEN_KEY=@token.pub", says: []string{`DNP_TOKEN_KEY is of no flag, did you mean "DNP_TOKEN_KEYS"?`, "--auth: token needs --token-keys"}},
	{why: "keys without logins", args: "edge serve --token-keys=@token.pub", says: []string{"--token-keys: needs --auth token"}},
	{why: "a private key for edges", args: "edge serve --auth=token --token-keys=@token.key", says: []string{"--token-keys: file @token.key key 1: is a private key; an edge needs only the public key"}},
	{why: "no edge", args: "relay dev --edges=0", says: []string{"--edges: want 1 to 8, got 0"}},
	{why: "Redis for one edge", args: "relay dev --session-durability=log --redis=redis://a", says: []string{"--redis: needs --edges 2 or more"}},
	{why: "too many edges", args: "relay dev --edges=9", says: []string{"--edges: want 1 to 8, got 9"}},
	{why: "a console for everybody", args: "relay dev --console=0.0.0.0:8415", says: []string{"--console: want an address of this machine"}},
	{why: "no key at all", args: "relay dev --auth=token --token-keys=@text", says: []string{"--token-keys: file @text contains text outside of PEM blocks"}},

	{why: "addresses of NATS", args: "relay serve --nats-url=http://a:1,nats://b:1,c:1", says: []string{"address 1 is none", "address 3 is none"}},
	{why: "two ways to log in at NATS", args: "relay serve --nats-creds=@text --nats-nkey=@text --nats-user=u", says: []string{"--nats-nkey: conflicts with --nats-creds", "--nats-user: conflicts with", "--nats-creds: @text has no", "--nats-nkey: @text has no seed"}},
	{why: "half a login at NATS", args: "edge serve --nats-password=p --nats-cert=@cert", says: []string{"--nats-password: needs --nats-user", "--nats-cert: needs --nats-key"}},
	{why: "certificates for NATS that are none", args: "edge serve --nats-ca=@text --nats-cert=@text --nats-key=@text", says: []string{"--nats-ca: @text has no certificates", "--nats-cert: @text and @text"}},
	{why: "files that are not there", args: "relay serve --nats-ca=@none --http-token=@none --gossip-key-file=@none", says: []string{"--nats-ca: open @none", "--http-token: open @none", "--gossip-key-file: open @none"}},

	{why: "gossip addresses", args: "relay serve --gossip-bind=x --gossip-advertise=0.0.0.0 --gossip-join=a:b:c", says: []string{"--gossip-bind: want", "--gossip-advertise: want", "--gossip-join: want"}},
	{why: "gossip without keys that others reach", args: "relay serve --gossip-bind=:7946", says: []string{"--gossip-key-file: needed unless"}},
	{why: "keys that are none, although no node is named to join", args: "relay serve --gossip-key-file=@text", says: []string{"--gossip-key-file: gossip: key file @text: line 1: want a key in hex or base64"}},
	{why: "a file without a key", args: "edge serve --gossip-key-file=@empty --gossip-join=a", says: []string{"--gossip-key-file: gossip: key file @empty: holds no key"}},

	{why: "forwarding without a log", args: "edge serve --forward-listen=:7947", says: []string{"--forward-listen: needs --session-durability log"}},
	{why: "forwarding that has no keys", args: "edge serve --session-durability=log --gossip-join=a --forward-listen=:7947 --forward-advertise=192.0.2.1", says: []string{"--forward-listen: needs", "--forward-advertise: needs"}},
	{why: "Redis without a log", args: "edge serve --redis=redis://a", says: []string{"--redis: needs --session-durability log"}},
	{why: "addresses of Redis", args: "edge serve --session-durability=log --redis=redis://a,redis://a:6379", says: []string{"--redis: want two different servers"}},
	{why: "two copies of a log", args: "edge serve --session-durability=log --session-replicas=2", says: []string{"--session-replicas: want 1 or 3, got 2"}},

	{why: "OpenTelemetry", args: "edge serve", env: "OTEL_EXPORTER_OTLP_ENDPOINT=collector:4317 OTEL_EXPORTER_OTLP_PROTOCOL=http OTEL_LOGS_EXPORTER=file OTEL_TRACES_SAMPLER=half OTEL_BSP_MAX_QUEUE_SIZE=x OTEL_RESOURCE_ATTRIBUTES=x",
		says: []string{"OTEL_EXPORTER_OTLP_ENDPOINT: want http://", "OTEL_EXPORTER_OTLP_PROTOCOL: want grpc", "OTEL_LOGS_EXPORTER: want otlp", "OTEL_TRACES_SAMPLER: ", "OTEL_BSP_MAX_QUEUE_SIZE: want", "OTEL_RESOURCE_ATTRIBUTES: "}},
	{why: "flags, files and the environment at once", args: "relay serve --tick=x --gossip-key-file=@text", env: "OTEL_TRACES_SAMPLER_ARG=7 OTEL_TRACES_SAMPLER=traceidratio DNP_SHARDS=0",
		says: []string{"--tick: want a duration", "--gossip-key-file: gossip: key file", "OTEL_TRACES_SAMPLER_ARG: want a number from 0 to 1", "--shards: want 1 to"}},

	{why: "more replicas than the streams have", args: "relay serve --nats-url=NATS --http= --replicas=2", says: []string{"--replicas: too few replicas: stream DNP_STORE_0 has 1, want 2", "nats stream edit DNP_STORE_0 --replicas 2"}, problems: 1},
	{why: "other shards than the streams have", args: "relay serve --nats-url=NATS --http= --shards=32", says: []string{"was made for 64 shards, this node is configured for 32"}},
	{why: "replicas of one server", args: "edge serve --nats-url=NATS --http= --listen=udp://127.0.0.1:0 --session-durability=log --session-replicas=3", says: []string{"--session-replicas: stream DNP_LOG_0: too few replicas: want 3, and the NATS server belongs to no cluster"}},
	{why: "another number of copies than the log has", args: "edge serve --nats-url=ONECOPY --http= --listen=udp://127.0.0.1:0 --session-durability=log --session-replicas=3",
		says: []string{"--session-replicas: stream DNP_LOG_0 was made for 1 copy of each session log, this edge is configured for 3. To change the number, which ends all sessions: stop all edges, run `nats stream ls"}},

	{why: "names of spaces and keys", args: "dnpctl get a.b c..d", says: []string{"SPACE: want", "KEY: want"}},
	{why: "a message to no space", args: "dnpctl send a/b/c text", says: []string{"TARGET: want SPACE"}},
	{why: "values that are none", args: "dnpctl publish demo tower hp:float=1", says: []string{"hp"}},
	{why: "a file that replaces values", args: "dnpctl publish demo tower hp=1 --file @text --nats-url=x", says: []string{"--file: replaces values", "--nats-url: want"}},
	{why: "a payload that is not there", args: "dnpctl publish demo tower --file @none", says: []string{"--file: stat @none"}},
	{why: "a client", args: "dnpctl watch 127.0.0.1:1 --profile=x --timeout=0 --token=@@none --certificate-hash=ab --count=-1", says: []string{"--profile: want", "--timeout: want more than 0", "--token: open @none", "--certificate-hash: want 32 bytes", "--count: want 0 or more"}},
	{why: "credentials of a game server", args: "dnpctl who demo --nats-creds=@text --nats-ca=@none", says: []string{"--nats-creds: @text has no", "--nats-ca: open @none"}},
	{why: "what to measure", args: "dnpctl bench a.b 127.0.0.1:1 --clients=0 --states=4097 --rate=61 --for=1ms --tokens=@none", says: []string{"SPACE: want", "--clients: want 1 to 1000", "--states: want 1 to 4096", "--rate: want 1 to 60", "--for: want 1s to 24h", "--tokens: open @none"}},
	{why: "tokens", args: "dnpctl token issue a.b c/d --key=@token.pub --life=25h", says: []string{"--life: want more than 0", "SPACE: want", "CLIENT: want", "--key: @token.pub contains no PRIVATE KEY"}},
	{why: "a node to drain", args: "dnpctl drain e/1 --http-token=@text --wait --timeout=0", says: []string{"NODE: want the name of an edge, or ADDRESS:PORT", "--http-token: @text: want one word", "--timeout: want more than 0"}},
}

// wrongFiles makes files for wrong configurations, and returns their folder.
func wrongFiles(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	key, err := token.GenerateKey()
	private, err1 := token.EncodeKey(key)
	public, err2 := token.EncodePublic(key)
	if err := errors.Join(err, err1, err2); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"text": []byte("all: build\n\tgo build\n"), "empty": nil, "cert": public, "token.key": private, "token.pub": public} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestWrongConfigurations starts programs with configurations that cannot work. They tell all problems at once, and
// end with exit code 2.
func TestWrongConfigurations(t *testing.T) {
	t.Parallel()
	dir, server := wrongFiles(t), natstest.Start(t, 1)
	first := start(t, "relay", "serve", "--nats-url", server.URL(), "--http", "", "--replicas", "1")
	first.says("serving shards")
	log := natstest.Start(t, 1)
	edge := start(t, "edge", "serve", "--nats-url", log.URL(), "--http", "", "--listen", "udp://127.0.0.1:0", "--session-durability", "log")
	edge.says("bus reached")
	for _, p := range []*process{first, edge} {
		p.term()
		<-p.ended
	}
	fill := func(text string) string {
		return strings.NewReplacer("@@", "@"+dir+"/", "@", dir+"/", "NATS", server.URL(), "ONECOPY", log.URL()).Replace(text)
	}
	for _, c := range wrongConfigurations {
		t.Run(c.why, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			args := strings.Fields(fill(c.args))
			cmd := exec.CommandContext(ctx, buildtest.Program(t, args[0]), args[1:]...)
			cmd.Env = append(strings.Fields(c.env), "PATH="+os.Getenv("PATH"))
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			err := cmd.Run()
			if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || exit.ExitCode() != config.ExitUsage {
				t.Fatalf("%s ends with %v, want exit code 2:\n%s", c.args, err, &stderr)
			}
			checkProblems(t, &c, stderr.String(), fill)
		})
	}
}

// checkProblems requires all texts in what a program says, and no problem besides.
func checkProblems(t *testing.T, c *wrongConfiguration, got string, fill func(string) string) {
	t.Helper()
	for _, text := range c.says {
		if text := strings.ReplaceAll(text, "@", fill("@")); !strings.Contains(strings.ReplaceAll(got, fill("@")+" ", strings.TrimSuffix(fill("@"), "/")+"/ "), text) {
			t.Errorf("%s does not say %q:\n%s", c.args, text, got)
		}
	}
	want := c.problems
	if want == 0 {
		want = len(c.says)
	}
	lines := strings.Split(strings.TrimSpace(got), "\n")
	for len(lines) > 0 && strings.Contains(lines[0], "level=") { // what a node logged before it found the problem
		lines = lines[1:]
	}
	if n := len(lines) - 1; n != want && n != want+1 { // the last line names --help, and the first one is a heading if there are several
		t.Errorf("%s has %d lines of problems, want %d:\n%s", c.args, n, want, got)
	}
}
