package systest

import (
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/internal/natstest"
)

// outageLinesMax is how many lines a node may log about one outage of NATS and its end.
const outageLinesMax = 5

// TestOutageLines stops NATS and starts it again: for a moment, and for so long that relays lose their shards. Each
// node logs a few lines about it, and what is over is no warning.
func TestOutageLines(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		servers int
		silence string // the lease silence of relays
		lost    bool   // they lose their shards in the outage
	}{
		{"short", 1, "1m", false},
		{"long", 1, "6s", true},
		{"cluster", 3, "6s", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			o := newOutage(t, c.servers, c.silence)
			o.calm()
			before := o.lines()
			var stopping sync.WaitGroup // at once: while two of three servers run, the others elect, which is another outage
			for i := range c.servers {
				stopping.Go(func() { o.nats.Stop(i) })
			}
			stopping.Wait()
			eventually(t, "the nodes miss NATS", func() bool {
				return !slices.ContainsFunc(o.webs, func(web string) bool { h, _ := readiness(t, web); return !slices.Contains(h.Missing, "nats") })
			})
			if err := o.player.Do(func(now time.Time, c *dnptest.Client) { _ = c.Send(now, []byte("hello")) }); err != nil { // the client may be too slow to be heard
				t.Fatal(err)
			}
			if c.lost {
				eventually(t, "the relays lose their shards", func() bool {
					return o.metric(0, "dnp_relay_shards") == 0 && o.metric(1, "dnp_relay_shards") == 0
				})
			}
			o.nats.RestartAll(t)
			o.wait()
			o.check(before)
		})
	}
}

// An outage is two relays and an edge with a durable session.
type outage struct {
	*testing.T
	nats   *natstest.Cluster
	nodes  []*process
	player *dnptest.Peer
	webs   []string
}

func newOutage(t *testing.T, servers int, silence string) *outage {
	o := &outage{T: t, nats: natstest.Start(t, servers)}
	ports, key, join := freePorts(t, 4), keyFile(t, 0x31), freePorts(t, 3)
	o.webs = ports[:3]
	replicas := "1"
	if servers == 3 {
		replicas = "3"
	}
	common := func(i int, node string) []string {
		return []string{"serve", "--node", node, "--nats-url", o.nats.URL(), "--http", o.webs[i],
			"--gossip-bind", join[i], "--gossip-join", strings.Join(join, ","), "--gossip-key-file", key}
	}
	for i, node := range []string{"r1", "r2"} {
		o.nodes = append(o.nodes, start(t, "relay", append(common(i, node), "--ingress", "wildcard", "--lease-silence", silence, "--replicas", replicas)...))
	}
	o.nodes = append(o.nodes, start(t, "edge", append(common(2, "e1"), "--listen", "udp://"+ports[3], "--open-space", "s", "--session-durability", "log",
		"--session-replicas", replicas, "--redis", "redis://"+miniredis.RunT(t).Addr(), "--forward-listen", "127.0.0.1:0")...))
	o.nodes[0].says("serving shards")
	o.nodes[1].says("serving shards")
	o.nodes[2].says("bus reached")
	o.wait()
	o.player = runClient(t, netip.MustParseAddrPort(ports[3]), dnptest.Cpp(), dnptest.App{})
	eventually(t, "the edge has a session", func() bool { return o.metric(2, "dnp_edge_sessions") == 1 })
	return o
}

// wait waits until all nodes are ready and miss nothing, and the relays have all shards.
func (o *outage) wait() {
	o.Helper()
	eventually(o.T, "the nodes are ready", func() bool {
		for _, web := range o.webs {
			if h, _ := readiness(o.T, web); !h.Ready || len(h.Missing) > 0 {
				return false
			}
		}
		return o.metric(0, "dnp_relay_shards")+o.metric(1, "dnp_relay_shards") == 64
	})
}

// troubles are the beginnings of warnings about NATS, with the lines about their ends.
var troubles = map[string]string{
	"bus lost":                          "bus reached again",
	"the durable store does not answer": "the durable store answers again",
	"loading shards from the durable store fails or takes long": "shards are loaded from the durable store again",
	"the session log does not answer":                           "the session log answers again",
}

// calm waits until the nodes have said that troubles of their start are over: a store that begins may be slow.
func (o *outage) calm() {
	o.Helper()
	eventually(o.T, "no trouble of the start is left", func() bool {
		for _, p := range o.nodes {
			text := p.output.String()
			for begins, ends := range troubles {
				if strings.Count(text, begins) > strings.Count(text, ends) {
					return false
				}
			}
		}
		return true
	})
}

// metric returns a number of a node.
func (o *outage) metric(node int, name string) float64 {
	return shown(o.T, o.webs[node], name)
}

// lines returns how many lines each node has logged.
func (o *outage) lines() (counts []int) {
	for _, p := range o.nodes {
		counts = append(counts, strings.Count(p.output.String(), "\n"))
	}
	return counts
}

// elsewhere matches lines about gossip and Redis, which do not use NATS. On a machine without time for them they fail
// meanwhile, so they have a bound of their own.
var elsewhere = regexp.MustCompile(`msg="?(gossip|Redis)\b`)

// check requires that each node has logged a few lines since then, the last of them about the end of the outage. A
// warning whose end is still to come counts for two lines.
func (o *outage) check(before []int) {
	o.Helper()
	for i, p := range o.nodes {
		all := func() []string { return strings.SplitAfter(p.output.String(), "\n")[before[i]:] }
		said := func() []string { return slices.DeleteFunc(all(), elsewhere.MatchString) }
		eventually(o.T, p.cmd.Args[0]+" says that the outage is over", func() bool { return strings.Contains(strings.Join(said(), ""), "bus reached again") })
		if i < 2 && strings.Contains(strings.Join(said(), ""), "shards lost") {
			eventually(o.T, "a relay says that it has shards", func() bool { return strings.Contains(strings.Join(said(), ""), "serving shards") })
		}
		if others := slices.DeleteFunc(all(), func(line string) bool { return !elsewhere.MatchString(line) }); len(others) > outageLinesMax {
			o.Errorf("%s has %d lines about gossip and Redis in one outage of NATS, want at most %d:\n%s", p.cmd.Args[0], len(others), outageLinesMax, strings.Join(others, ""))
		}
		text := strings.TrimSpace(strings.Join(said(), ""))
		lines := strings.Count(text, "\n") + 1
		if n := max(lines, 2*strings.Count(text, "level=WARN")+strings.Count(text, "level=ERROR")); n > outageLinesMax {
			o.Errorf("%s has %d lines about one outage, or will have %d, want at most %d:\n%s", p.cmd.Args[0], lines, n, outageLinesMax, text)
		}
		for line := range strings.Lines(text) {
			if strings.Contains(line, "again") && !strings.Contains(line, "trying again") && !strings.Contains(line, "level=INFO") {
				o.Errorf("what is over is a warning: %s", line)
			}
		}
		o.Logf("%s:\n%s", p.cmd.Args[0], text)
	}
}
