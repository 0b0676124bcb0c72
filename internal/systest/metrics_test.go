package systest

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/bus/natsbus"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/subject"
)

var updateMetrics = flag.Bool("update-metrics", false, "write deploy/METRICS.md")

const (
	deploy     = "../../deploy/"
	alertsFile = "../../helm/relay/files/alerts/dnprelay.yaml"
)

// A metric is one metric of /metrics, as several processes show it.
type metric struct {
	help, kind string
	labels     map[string]map[string]bool // values by label, without those of buckets
	processes  map[string]bool
}

var (
	metricComment = regexp.MustCompile(`^# (HELP|TYPE) (\S+) (.*)$`)
	metricSample  = regexp.MustCompile(`^([a-z_A-Z0-9]+)(?:\{(.*)\})? \S+`)
	metricLabel   = regexp.MustCompile(`([a-z_A-Z0-9]+)="((?:[^"\\]|\\.)*)"`)
)

// scrape adds the metrics of a process. Buckets, sums and counts belong to their histogram.
func scrape(t *testing.T, process, url string, all map[string]*metric) {
	t.Helper()
	answer, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	defer http.DefaultClient.CloseIdleConnections()
	if answer.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(answer.Body)
		t.Fatalf("%s: %s: %s", url, answer.Status, body)
	}
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		if m := metricComment.FindStringSubmatch(lines.Text()); m != nil {
			if all[m[2]] == nil {
				all[m[2]] = &metric{labels: map[string]map[string]bool{}, processes: map[string]bool{}}
			}
			if m[1] == "HELP" {
				all[m[2]].help = m[3]
			} else {
				all[m[2]].kind = m[3]
			}
			continue
		}
		m := metricSample.FindStringSubmatch(lines.Text())
		if m == nil {
			t.Fatalf("%s: %q", url, lines.Text())
		}
		one := all[m[1]]
		if one == nil {
			one = all[regexp.MustCompile(`_(bucket|sum|count)$`).ReplaceAllString(m[1], "")]
		}
		one.processes[process] = true
		for _, l := range metricLabel.FindAllStringSubmatch(m[2], -1) {
			if one.labels[l[1]] == nil {
				one.labels[l[1]] = map[string]bool{}
			}
			one.labels[l[1]][l[2]] = true
		}
	}
}

// nodeMetrics returns the metrics of a relay and an edge of a cluster and of relay dev, all with
// traces and with a space, a state and a client of unusual names. The edge has durable sessions
// and could forward to others, so that it shows all metrics of an edge.
func nodeMetrics(t *testing.T) map[string]*metric {
	t.Helper()
	_, urls := startNATSServers(t)
	nats := strings.Join(urls, ",")
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1") // so that there are metrics about traces
	key := keyFile(t, 0xa1)
	ports := freePorts(t, 7)
	r := start(t, "relay", "serve", "--node", "r1", "--nats-url", nats, "--http", ports[0],
		"--gossip-bind", ports[3], "--gossip-join", ports[4], "--gossip-key-file", key)
	e := start(t, "edge", "serve", "--node", "e1", "--nats-url", nats, "--http", ports[1], "--listen", "udp://"+ports[5], "--open-space", "zanzibar",
		"--gossip-bind", ports[4], "--gossip-join", ports[3], "--gossip-key-file", key,
		"--session-durability", "log", "--session-replicas", "3", "--redis", "redis://"+miniredis.RunT(t).Addr(), "--forward-listen", "127.0.0.1:0",
		"--websocket", "127.0.0.1:0", "--lludp", "127.0.0.1:0")
	d := start(t, "relay", "dev", "--listen", "udp://"+ports[6], "--nats-listen", "127.0.0.1:0", "--http", ports[2], "--open-space", "zanzibar")
	r.says("serving shards")
	e.says("bus reached")
	d.says("dnpctl watch")
	play(t, nats, ports[1], ports[5])
	play(t, "", ports[2], ports[6]) // relay dev has a demo
	all := map[string]*metric{}
	for process, port := range map[string]string{"relay serve": ports[0], "edge serve": ports[1], "relay dev": ports[2]} {
		scrape(t, process, "http://"+port+"/metrics", all)
	}
	return all
}

// play connects a client to an edge and changes states until the edge has flushed. url is that
// of the NATS server to publish on.
func play(t *testing.T, url, web, edge string) {
	t.Helper()
	runClient(t, netip.MustParseAddrPort(edge), dnptest.Cpp(), dnptest.App{})
	publish := func(int) {}
	if url != "" {
		b, err := natsbus.Connect(natsbus.Config{URL: url})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(b.Close)
		publish = func(n int) {
			body := fmt.Appendf(nil, `{"op":"put","key":"zanzibar","message":"T","values":[{"name":"n","type":"uint32","value":%d}]}`, n)
			done := make(chan error, 1)
			b.Request(bus.Msg{Subject: subject.Names{}.Publish("zanzibar", ""), Data: body}, time.Second, func(_ bus.Msg, err error) { done <- err })
			<-done // whatever the result, the next publish follows
		}
	}
	end := time.Now().Add(patience)
	for n := 0; ; n++ {
		publish(n)
		all := map[string]*metric{}
		scrape(t, "", "http://"+web+"/metrics", all)
		if _, ok := all["dnp_edge_flush_delay_seconds"]; ok {
			return
		}
		if time.Now().After(end) {
			t.Fatal("the edge does not flush")
		}
	}
}

// TestMetrics checks the labels of all metrics, and that queries and documentation name only
// existing metrics.
func TestMetrics(t *testing.T) {
	all := nodeMetrics(t)
	t.Run("labels", func(t *testing.T) { checkLabels(t, all) })
	t.Run("documentation", func(t *testing.T) { checkMetricsFile(t, all) })
	t.Run("queries", func(t *testing.T) {
		for where, exprs := range deployedQueries(t) {
			for _, expr := range exprs {
				for _, problem := range checkQuery(expr, all) {
					t.Errorf("%s: %s: %s", where, expr, problem)
				}
			}
		}
	})
	t.Run("notices", func(t *testing.T) {
		for _, bad := range []string{
			`rate(dnp_edge_nonsense_total[5m])`, `sum by (colour) (dnp_edge_sessions)`, `dnp_edge_drops_total{reason="boredom"}`,
			`dnp_edge_drops_total{reason=~"rate|late"}`, `dnp_edge_sessions{reason="late"}`,
		} {
			if checkQuery(bad, all) == nil {
				t.Errorf("%s passes", bad)
			}
		}
	})
}

// labelNames are all labels that a metric of ours may have. Each has a fixed, small number of
// values; names of spaces, states and clients are not among them, because their number has no
// bound.
var labelNames = []string{"direction", "reason", "outcome", "answer", "fate", "kind", "phase", "copy", "server", "rank", "le"}

func checkLabels(t *testing.T, all map[string]*metric) {
	for name, m := range all {
		if !strings.HasPrefix(name, "dnp_") {
			continue
		}
		if words := strings.Fields(m.help); len(words) < 4 || slices.Contains([]string{"Their", "Its", "Those", "These"}, words[0]) {
			t.Errorf("%s: the help %q says nothing by itself", name, m.help)
		}
		for label, values := range m.labels {
			if !slices.Contains(labelNames, label) {
				t.Errorf("%s has the label %q", name, label)
			}
			if len(values) > 60 {
				t.Errorf("%s has %d values of %q", name, len(values), label)
			}
			for v := range values {
				if strings.Contains(v, "zanzibar") || v == "" || strings.HasPrefix(v, "c-") {
					t.Errorf("%s{%s=%q} has a name of the game", name, label, v)
				}
			}
		}
	}
}

// checkMetricsFile compares deploy/METRICS.md with the metrics.
func checkMetricsFile(t *testing.T, all map[string]*metric) {
	var b strings.Builder
	b.WriteString("# Metrics\n\nNodes show these metrics at `/metrics`, and those of the Go runtime (`go_…`) and the process (`process_…`). Counters grow from the start of the process.\n\n")
	b.WriteString("| metric | kind | labels | of | meaning |\n|---|---|---|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if m := all[name]; strings.HasPrefix(name, "dnp_") {
			labels := slices.DeleteFunc(slices.Sorted(maps.Keys(m.labels)), func(l string) bool { return l == "le" })
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s | %s |\n", name, m.kind, strings.Join(labels, ", "), strings.Join(servers(m), ", "), m.help)
		}
	}
	if *updateMetrics {
		if err := os.WriteFile(deploy+"METRICS.md", []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(deploy + "METRICS.md"); err != nil || string(got) != b.String() {
		t.Errorf("deploy/METRICS.md differs from the metrics of the nodes (%v); go test ./internal/systest -run TestMetrics -update-metrics writes it", err)
	}
}

// servers returns the nodes of a cluster that show m.
func servers(m *metric) (list []string) {
	for _, p := range slices.Sorted(maps.Keys(m.processes)) {
		if node, ok := strings.CutSuffix(p, " serve"); ok {
			list = append(list, node)
		}
	}
	return list
}

// deployedQueries returns the PromQL of dashboards and alerts, by file.
func deployedQueries(t *testing.T) map[string][]string {
	t.Helper()
	folder := t.TempDir()
	if out, err := exec.Command("go", "run", deploy+"dashboards", folder).CombinedOutput(); err != nil {
		t.Fatalf("go run ./deploy/dashboards: %v\n%s", err, out)
	}
	files, err := filepath.Glob(folder + "/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("no dashboards (%v)", err)
	}
	all := map[string][]string{}
	for _, file := range append(files, alertsFile) {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		name := filepath.Base(file)
		if all[name] = queriesOf(t, file, text); len(all[name]) < 10 {
			t.Errorf("%s has only %d queries", name, len(all[name]))
		}
	}
	return all
}

var alertExpr = regexp.MustCompile(`(?m)^        expr: \|-\n((?:          .*\n)+)`)

func queriesOf(t *testing.T, file string, text []byte) (list []string) {
	t.Helper()
	if strings.HasSuffix(file, ".yaml") {
		for _, m := range alertExpr.FindAllSubmatch(text, -1) {
			list = append(list, string(m[1]))
		}
		return list
	}
	var dashboard struct {
		Panels []struct{ Targets []struct{ Expr string } }
	}
	if err := json.Unmarshal(text, &dashboard); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			list = append(list, target.Expr)
		}
	}
	return list
}

var (
	queryMetric  = regexp.MustCompile(`\b((?:dnp|go|process)_[a-z0-9_]+)(?:\{([^}]*)\})?`)
	queryMatcher = regexp.MustCompile(`([a-z_]+)(=~|!~|!=|=)"([^"]*)"`)
	queryBy      = regexp.MustCompile(`\bby \(([^)]*)\)`)
)

// scraped are the labels that Prometheus adds.
var scraped = []string{"job", "instance", "namespace"}

// checkQuery lists the metrics, labels and values of a query that no node shows.
func checkQuery(expr string, all map[string]*metric) (problems []string) {
	labels := map[string]bool{}
	found := queryMetric.FindAllStringSubmatch(expr, -1)
	for _, q := range found {
		m := all[q[1]]
		if m == nil && strings.HasSuffix(q[1], "_bucket") {
			m = all[strings.TrimSuffix(q[1], "_bucket")]
		}
		if m == nil {
			problems = append(problems, "no node shows "+q[1])
			continue
		}
		for l := range m.labels {
			labels[l] = true
		}
		problems = append(problems, checkMatchers(q[1], q[2], m)...)
	}
	for _, by := range queryBy.FindAllStringSubmatch(expr, -1) {
		for l := range strings.SplitSeq(by[1], ",") {
			if l = strings.TrimSpace(l); !labels[l] && !slices.Contains(scraped, l) {
				problems = append(problems, "none of its metrics has the label "+l)
			}
		}
	}
	if len(found) == 0 && !strings.HasPrefix(strings.TrimSpace(expr), "up{") {
		problems = append(problems, "it has none of our metrics")
	}
	return problems
}

func checkMatchers(name, matchers string, m *metric) (problems []string) {
	for _, match := range queryMatcher.FindAllStringSubmatch(matchers, -1) {
		label, values := match[1], strings.Split(match[3], "|")
		if slices.Contains(scraped, label) {
			continue
		}
		for _, v := range values {
			if !m.labels[label][v] {
				problems = append(problems, fmt.Sprintf("%s never has %s=%q", name, label, v))
			}
		}
	}
	return problems
}

// TestRunbook wants a section of the runbook for each alert, and no others.
func TestRunbook(t *testing.T) {
	rules, err := os.ReadFile(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	book, err := os.ReadFile(deploy + "RUNBOOK.md")
	if err != nil {
		t.Fatal(err)
	}
	const base = "https://github.com/dnprelay/dnprelay/blob/main/deploy/RUNBOOK.md#"
	sections := map[string]string{}
	for section := range strings.SplitSeq(string(book), "\n## ") {
		name, text, _ := strings.Cut(section, "\n")
		sections[strings.ToLower(name)] = text
	}
	alerts := regexp.MustCompile(`- alert: (\S+)`).FindAllStringSubmatch(string(rules), -1)
	urls := regexp.MustCompile(`runbook_url: (\S+)`).FindAllStringSubmatch(string(rules), -1)
	if len(alerts) != len(urls) || len(sections) != len(alerts)+1 {
		t.Errorf("%d alerts, %d of them with a runbook, %d sections", len(alerts), len(urls), len(sections)-1)
	}
	for i, a := range alerts {
		if want := base + strings.ToLower(a[1]); urls[min(i, len(urls)-1)][1] != want {
			t.Errorf("%s has the runbook %s, want %s", a[1], urls[i][1], want)
		}
		text := sections[strings.ToLower(a[1])]
		for _, part := range []string{"**Means:**", "**Look at:**", "**Do:**"} {
			if !strings.Contains(text, part) {
				t.Errorf("the section of %s has no %s", a[1], part)
			}
		}
	}
	for _, m := range regexp.MustCompile(`dnp_[a-z0-9_]+`).FindAllString(string(book), -1) {
		if m != "dnp_" && !strings.Contains(metricsFile(t), "`"+m+"`") {
			t.Errorf("the runbook names %s, which is not in METRICS.md", m)
		}
	}
	for _, link := range regexp.MustCompile(`\]\(#([a-z]+)\)`).FindAllStringSubmatch(string(book), -1) {
		if _, ok := sections[link[1]]; !ok {
			t.Errorf("the runbook refers to #%s, which does not exist", link[1])
		}
	}
}

func metricsFile(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile(deploy + "METRICS.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestAlerts fires every alert with promtool, if it is installed.
func TestAlerts(t *testing.T) {
	out, err := exec.Command("../../scripts/alerts-test").CombinedOutput()
	switch {
	case err != nil:
		t.Errorf("%v\n%s", err, out)
	case strings.Contains(string(out), "skipped"):
		t.Skip(string(out))
	}
}
