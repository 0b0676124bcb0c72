package telemetry_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/dnprelay/dnprelay/internal/telemetry"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open returns the telemetry of a node in the environment of the test.
func open(t *testing.T) *telemetry.Telemetry {
	t.Helper()
	tel, err := telemetry.Open("edge", "edge-7", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tel.Close)
	return tel
}

// A node is a server under test.
type node struct {
	t    *testing.T
	base string
	tel  *telemetry.Telemetry
	stop func() error
}

func start(t *testing.T, cfg telemetry.Config) *node {
	t.Helper()
	cfg.Telemetry = open(t)
	if cfg.Health == nil {
		cfg.Health = func() telemetry.Health { return telemetry.Health{Ready: true} }
	}
	s, err := telemetry.Listen("127.0.0.1:0", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Show(cfg); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	n := &node{t: t, base: "http://" + s.Addr().String(), tel: cfg.Telemetry, stop: func() error { cancel(); return <-done }}
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := n.stop(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return n
}

func (n *node) get(path string) (int, string) {
	n.t.Helper()
	r, err := http.Get(n.base + path)
	if err != nil {
		n.t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		n.t.Fatal(err)
	}
	return r.StatusCode, string(body)
}

func (n *node) want(reason, path string, code int, parts ...string) {
	n.t.Helper()
	gotCode, body := n.get(path)
	if gotCode != code {
		n.t.Errorf("%s: %s answers %d, want %d", reason, path, gotCode, code)
	}
	for _, part := range parts {
		if !strings.Contains(body, part) {
			n.t.Errorf("%s: no %q in %s:\n%s", reason, part, path, body)
		}
	}
}

func TestHealth(t *testing.T) {
	var health atomic.Pointer[telemetry.Health]
	health.Store(&telemetry.Health{Missing: []string{"nats", "store"}})
	n := start(t, telemetry.Config{Health: func() telemetry.Health { return *health.Load() }})

	n.want("alive, although nothing works", "/livez", 200, "ok")
	n.want("not ready yet", "/readyz", 503, `{"ready":false,"missing":["nats","store"]}`)
	health.Store(&telemetry.Health{Ready: true, Missing: []string{"nats"}})
	n.want("an edge stays ready without NATS", "/readyz", 200, `{"ready":true,"missing":["nats"]}`)
	health.Store(&telemetry.Health{Ready: true})
	n.want("an empty list is a list", "/readyz", 200, `{"ready":true,"missing":[]}`)
	n.want("pprof is off by default", "/debug/pprof/", 404)
	n.want("other paths do not exist", "/", 404)
}

func TestMetrics(t *testing.T) {
	var datagrams atomic.Uint64
	n := start(t, telemetry.Config{Metrics: []telemetry.Metric{
		telemetry.Counter("dnp.edge.datagrams", "{datagram}", "Datagrams received.", datagrams.Load),
		telemetry.Counter("dnp.edge.io", "By", "Bytes received.", func() uint64 { return 1 << 40 }),
		telemetry.CounterBy("dnp.edge.drops", "{datagram}", "Datagrams dropped.", "reason", func(observe func(string, uint64)) {
			observe("short", 2)
			observe("unknown", 3)
		}),
		telemetry.Gauge("dnp.edge.sessions", "{session}", "Sessions.", func() float64 { return 12 }),
		telemetry.GaugeBy("dnp.relay.durable.age", "s", "Age.", "shard", func(observe func(string, float64)) { observe("1", 0.25) }),
	}})
	datagrams.Store(7)
	n.want("names get their units", "/metrics", 200,
		"# HELP dnp_edge_datagrams_total Datagrams received.\n# TYPE dnp_edge_datagrams_total counter\ndnp_edge_datagrams_total 7\n",
		"dnp_edge_io_bytes_total 1.099511627776e+12\n",
		`dnp_edge_drops_total{reason="short"} 2`, `dnp_edge_drops_total{reason="unknown"} 3`,
		"# TYPE dnp_edge_sessions gauge\ndnp_edge_sessions 12\n",
		`dnp_relay_durable_age_seconds{shard="1"} 0.25`,
		`service_name="edge"`, `service_instance_id="edge-7"`,
		"go_goroutines ", "process_cpu_seconds_total ")
	datagrams.Store(8)
	n.want("numbers are read when asked for", "/metrics", 200, "dnp_edge_datagrams_total 8\n")
}

// TestDrain requires that POST /drain answers what happens to sessions.
func TestDrain(t *testing.T) {
	n := start(t, telemetry.Config{Drain: func(tell func(telemetry.Drain)) { tell(telemetry.Drain{Sessions: telemetry.SessionsClosed}) }})
	r, err := http.Post(n.base+"/drain", "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	body, err := io.ReadAll(r.Body)
	if want := "{\"sessions\":\"closed\"}\n"; err != nil || r.StatusCode != http.StatusAccepted || string(body) != want {
		t.Errorf("POST /drain answers %s, %q, %v; want 202, %q", r.Status, body, err, want)
	}
}

func TestMetricTwice(t *testing.T) {
	m := telemetry.Counter("dnp.edge.datagrams", "{datagram}", "", func() uint64 { return 0 })
	s, err := telemetry.Listen("", nil)
	if err != nil {
		t.Fatal(err)
	}
	err = s.Show(telemetry.Config{Telemetry: open(t), Metrics: []telemetry.Metric{m, m}})
	if err == nil || !strings.Contains(err.Error(), "dnp.edge.datagrams exists twice") {
		t.Errorf("got %v, want the name of the metric that exists twice", err)
	}
}

func TestPages(t *testing.T) {
	n := start(t, telemetry.Config{Pages: map[string]func(context.Context) (any, error){
		"rooms": func(context.Context) (any, error) { return map[string]int{"hall": 3}, nil },
		"slow": func(ctx context.Context) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		},
	}})
	n.want("a page", "/debug/rooms", 200, `{"hall":3}`)
	n.want("a node that does not answer", "/debug/slow", 503, "does not answer in time")
	n.want("another page", "/debug/doors", 404)
}

func TestPprof(t *testing.T) {
	n := start(t, telemetry.Config{Pprof: true})
	n.want("pprof is on when wanted", "/debug/pprof/", 200, "goroutine")
}

func TestPortInUse(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	_, err = telemetry.Listen(taken.Addr().String(), nil)
	want := "health and metrics: " + taken.Addr().String() + " is in use by another program; --http chooses another address"
	if err == nil || err.Error() != want {
		t.Errorf("got %v\nwant %s", err, want)
	}
}

func TestNowhere(t *testing.T) {
	s, err := telemetry.Listen("", nil)
	if err != nil || s.Show(telemetry.Config{Telemetry: open(t)}) != nil || s.Addr() != nil {
		t.Fatalf("an empty address opens nothing, got %v, %v", s.Addr(), err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Run(ctx); err != nil {
		t.Error(err)
	}
}
