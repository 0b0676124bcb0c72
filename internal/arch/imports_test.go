package arch

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// rules says which packages a package may import besides the standard library:
// those of this module by folder, others by the start of their path. What a
// standard package may do to a pure one is in pure_test.go.
//
// Dependencies point downwards: cmd, internal/edge and internal/relay, the
// rules of dnp, replication, cluster and session, dnp/netstate, dnp/wire.
// Adapters (natsbus, natslog, gossip, natslease, redisaffinity) are imported by
// commands only. replication and session know nothing of each other.
var rules = map[string][]string{
	"dnp/wire":     {},
	"dnp/netstate": {"dnp/wire"},
	"dnp/linkmsg":  {},
	"dnp/message":  {"dnp/wire"},
	"dnp/command":  {"dnp/wire"},
	"dnp/outbox":   {"dnp/wire"},
	"dnp/admit":    {"dnp/wire"},
	"dnp":          {"dnp/admit", "dnp/netstate", "dnp/wire"},
	"dnp/udp":      {"dnp", "golang.org/x/net", "golang.org/x/sys"},
	"dnp/dnptest":  {"dnp/netstate", "dnp/wire", "github.com/x448/float16"}, // a twin of the reference clients, so nothing of dnp itself

	"godot/variant": {},

	"bus":          {},
	"bus/membus":   {"bus", "cluster", "subject"},
	"bus/natsbus":  {"bus", "bus/natsconn", "subject", "internal/turn", "github.com/nats-io/nats.go"},
	"bus/natsconn": {"github.com/nats-io/nats.go"},
	"subject":      {},

	"interest": {"internal/turn/heap"},

	"replication":         {"interest", "replication/view", "internal/turn/heap", "dnp/linkmsg", "dnp/netstate", "dnp/wire", "subject", "github.com/x448/float16"},
	"replication/view":    {"dnp/netstate", "dnp/wire"},
	"replication/payload": {"interest", "replication", "subject", "godot/variant", "dnp/netstate", "dnp/wire", "github.com/x448/float16"},

	"lludp/zerocode": {},
	"lludp/wire":     {"lludp/zerocode"},
	"lludp":          {"lludp/wire"},

	"cluster":                {"cluster/lease", "dnp/wire", "internal/format"},
	"cluster/lease":          {"internal/fence", "internal/format"},
	"cluster/memaffinity":    {"cluster"},
	"cluster/forward":        {"cluster", "dnp/admit", "dnp/wire"},
	"cluster/forward/socket": {"cluster", "cluster/forward", "dnp/udp", "internal/telemetry"},
	"cluster/gossip":         {"cluster", "internal/turn", "github.com/hashicorp/memberlist"},
	"cluster/natslease":      {"cluster", "cluster/lease", "internal/fence", "internal/jetstream", "internal/turn", "subject", "github.com/nats-io/nats.go"},
	"cluster/redisaffinity":  {"cluster", "internal/turn", "github.com/redis/go-redis/v9"},

	"sessionlog":           {"dnp", "dnp/command", "dnp/wire", "internal/fence", "internal/format"},
	"sessionlog/memlog":    {"sessionlog", "internal/fence"},
	"sessionlog/quorumlog": {"sessionlog", "dnp/wire", "internal/fence"},
	"sessionlog/logtest":   {"sessionlog", "internal/fence"}, // the conformance suite, for tests only
	"sessionlog/natslog":   {"sessionlog", "subject", "internal/fence", "internal/jetstream", "internal/outage", "internal/turn", "github.com/nats-io/nats.go", "golang.org/x/time/rate"},
	"sessionlog/natsfrom":  {"sessionlog", "subject", "internal/fence", "internal/jetstream", "internal/outage", "github.com/nats-io/nats.go"},

	"client": {"internal/cork", "dnp", "dnp/command", "dnp/linkmsg", "dnp/netstate", "dnp/outbox", "dnp/udp", "dnp/wire", "github.com/coder/websocket", "github.com/quic-go/quic-go", "github.com/quic-go/webtransport-go", "github.com/x448/float16"}, // bots and tools import it, so nothing else that is internal

	"publisher":          {"publisher/layout", "bus/natsconn", "dnp/command", "dnp/wire", "replication", "replication/payload", "subject", "github.com/nats-io/nats.go", "go.opentelemetry.io/otel/trace"}, // game servers import it, so nothing internal
	"publisher/layout":   {"dnp/wire"},
	"examples/bots":      {"client"},
	"examples/arena":     {"client", "publisher"},
	"examples/lap":       {"dnp"},
	"examples/publisher": {"publisher"},
	"examples/web":       {}, // a page that edges embed

	"dnprelaytest": {"bus/natsbus", "internal/edge", "internal/natsembed", "internal/relay", "subject"}, // tests of games import it
	"token":        {"internal/auth", "subject"},                                                        // login services import it

	"internal/auth": {"subject", "internal/turn/heap", "github.com/golang-jwt/jwt/v5"},
	"internal/edge": {
		"internal/edge/carrier", "internal/edge/fanout", "internal/edge/login", "internal/edge/takeover", "internal/inspect", "internal/inspect/desk", "internal/turn", "internal/version", "internal/auth", "dnp", "dnp/admit", "dnp/udp", "dnp/netstate", "dnp/wire", "replication", "replication/view", "replication/payload",
		"bus", "subject", "cluster", "cluster/forward", "sessionlog", "internal/fence", "internal/outage", "internal/telemetry", "golang.org/x/sync",
	},
	"internal/edge/takeover": {
		"internal/auth", "dnp", "dnp/wire", "replication", "cluster", "cluster/forward", "sessionlog", "internal/fence", "internal/turn/heap",
	},
	"internal/edge/fanout": {
		"internal/auth", "internal/inspect", "dnp", "dnp/command", "dnp/netstate", "dnp/wire", "interest", "replication", "replication/payload", "replication/view", "bus", "subject", "cluster", "internal/turn/heap",
	},
	"internal/edge/carrier":             {"internal/auth", "internal/turn", "dnp", "dnp/admit"},
	"internal/edge/carrier/carriertest": {"internal/edge/carrier"}, // an edge for tests of listeners
	"internal/edge/adapter":             {"client", "internal/edge/carrier"},
	"internal/edge/websocket":           {"internal/cork", "internal/edge/carrier", "github.com/coder/websocket"},
	"internal/edge/webtransport":        {"internal/edge/carrier", "internal/turn", "github.com/quic-go/quic-go", "github.com/quic-go/webtransport-go", "golang.org/x/sys"},
	"internal/edge/variant":             {"client", "dnp/admit", "godot/variant", "internal/edge/adapter", "internal/edge/carrier", "internal/edge/variant/protocol", "internal/edge/websocket", "internal/telemetry", "internal/turn"},
	"internal/edge/variant/protocol":    {"dnp/netstate", "dnp/wire", "godot/variant", "replication/payload"}, // pure
	"internal/edge/certificate":         {"internal/turn"},
	"internal/edge/lludp":               {"internal/edge/adapter", "internal/edge/carrier", "internal/edge/lludp/viewer", "internal/auth", "internal/telemetry", "internal/turn", "client", "dnp/udp", "dnp/wire", "lludp/wire"},
	"internal/edge/lludp/viewertest":    {"lludp", "lludp/wire"}, // a viewer for tests
	"internal/edge/lludp/viewer":        {"lludp", "lludp/wire", "dnp/wire"},
	"internal/edge/login":               {"internal/auth", "internal/turn", "dnp", "dnp/admit", "bus", "subject"},
	"internal/relay": {
		"internal/inspect", "internal/inspect/desk", "internal/turn", "internal/turn/heap", "internal/version", "dnp/netstate", "dnp/wire", "replication", "replication/view", "replication/payload",
		"bus", "subject", "cluster", "cluster/lease", "sessionlog", "internal/fence", "internal/outage", "internal/telemetry", "golang.org/x/sync",
	},

	"internal/backup":       {"replication", "replication/payload", "subject"}, // pure
	"internal/inspect":      {"interest", "subject"},                           // pure
	"internal/inspect/desk": {"internal/inspect", "internal/telemetry", "bus"}, // a shell
	"internal/inspect/ask":  {"internal/inspect", "internal/turn", "subject", "github.com/nats-io/nats.go"},
	"internal/top":          {"internal/inspect", "charm.land/bubbletea/v2", "github.com/charmbracelet/x/ansi"}, // pure
	"internal/console":      {"internal/inspect", "internal/inspect/ask", "internal/turn", "bus/natsbus", "dnp/linkmsg", "dnp/netstate", "dnp/wire", "replication", "replication/payload", "bus", "subject", "cluster", "github.com/coder/websocket"},
	"internal/turn":         {}, // for shells
	"internal/turn/heap":    {}, // pure

	"internal/latency":            {}, // pure
	"internal/version":            {},
	"internal/config":             {"internal/version", "cluster", "subject", "replication", "replication/payload", "dnp", "dnp/wire", "github.com/alecthomas/kong"},
	"internal/telemetry":          {"internal/version", "go.opentelemetry.io", "github.com/prometheus/client_golang", "golang.org/x/time"},
	"internal/telemetry/otlptest": {"go.opentelemetry.io", "google.golang.org/protobuf"}, // a collector for tests

	"internal/conform":   {"dnp/linkmsg", "dnp/wire", "github.com/x448/float16"},                       // proves clients, those that are made of dnp, too
	"internal/edgetest":  {"dnp", "dnp/command", "dnp/linkmsg", "dnp/netstate", "dnp/udp", "dnp/wire"}, // an edge for tests of clients
	"internal/natsembed": {"subject", "github.com/nats-io/nats-server/v2", "github.com/nats-io/nats.go"},
	"internal/natsroles": {"subject"},
	"internal/jetstream": {"internal/fence", "internal/turn", "github.com/nats-io/nats.go"},
	"internal/fence":     {}, // the verdicts on fenced writes
	"internal/cork":      {}, // for shells
	"internal/format":    {}, // the formats that this program reads and writes
	"internal/outage":    {}, // for shells
	"internal/natstest":  {"go.uber.org/goleak", "github.com/nats-io/nats-server/v2", "github.com/nats-io/nats.go"},
	"internal/simnet":    {"internal/turn/heap"},
	"internal/proc":      {},
	"internal/proctest":  {"golang.org/x/sys"}, // runs programs that are measured or tested
	"internal/arch":      {},
	"internal/promises":  {}, // tests only
	"internal/buildtest": {}, // the programs, for tests
	"internal/mutants":   {}, // runs the go command, for tests only

	"scripts/godot4":  {}, // writes the addon for Godot 4
	"scripts/readme":  {}, // runs the blocks of READMEs
	"scripts/release": {}, // makes archives
}

// free are the folders whose packages put everything together.
var free = []string{"cmd/", "deploy/", "internal/compose", "internal/systest", "testbed/"}

func TestImports(t *testing.T) {
	for _, s := range sources(t) {
		report(t, checkImports(s))
	}
}

func checkImports(s source) (findings []string) {
	if slices.ContainsFunc(free, func(dir string) bool { return strings.HasPrefix(s.dir+"/", dir) }) {
		return nil
	}
	may, ok := rules[s.dir]
	if !ok {
		return []string{fmt.Sprintf("%s: package %s has no line in the import table", s.file, s.dir)}
	}
	for _, spec := range s.ast.Imports {
		if name := importPath(spec); !standard(name) && !allowed(name, may) {
			findings = append(findings, fmt.Sprintf("%s imports %s, which is not in its line of the import table", s.file, name))
		}
	}
	return findings
}

// standard reports whether an import path is of the standard library.
func standard(name string) bool {
	first, _, _ := strings.Cut(name, "/")
	return !strings.Contains(first, ".")
}

func allowed(name string, may []string) bool {
	if own, ok := strings.CutPrefix(name, module); ok {
		return slices.Contains(may, own)
	}
	return slices.ContainsFunc(may, func(m string) bool { return name == m || strings.HasPrefix(name, m+"/") })
}

func TestImportsNotice(t *testing.T) {
	for _, c := range []struct{ file, src string }{
		{"dnp/wire/x.go", `import _ "` + module + `dnp"`},
		{"replication/x.go", `import _ "` + module + `session"`},
		{"internal/edge/x.go", `import _ "` + module + `bus/natsbus"`},
		{"dnp/udp/x.go", `import _ "golang.org/x/network"`},
		{"dnp/dnptest/x.go", `import _ "` + module + `dnp"`},
		{"dnp/util/x.go", ``},
		{"commander/x.go", ``},
	} {
		if checkImports(parse(t, c.file, "package x\n"+c.src)) == nil {
			t.Errorf("%s with %q passes", c.file, c.src)
		}
	}
}
