package systest

import (
	"context"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/internal/natstest"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats.go"
)

// A shutdown is a relay and an edge with a player, over three NATS servers that a test spoils
// before it ends the nodes.
type shutdown struct {
	*testing.T
	nats        []*process
	urls        []string
	nc          *nats.Conn
	relay, edge *process
	webs        []string // of relay and edge
	addr        netip.AddrPort
	relayArgs   []string
	player      *dnptest.Peer
}

// The drain timeouts of the nodes, and what a node may take besides: it announces its end, says
// what is not done, and ends. Machines of tests are slow.
const (
	relayDrain   = 3 * time.Second
	edgeDrain    = 5 * time.Second
	shutdownRest = 6 * time.Second
)

func newShutdown(t *testing.T) *shutdown {
	s := &shutdown{T: t}
	s.nats, s.urls = startNATSServers(t)
	url := strings.Join(s.urls, ",")
	ports := freePorts(t, 5)
	s.webs = ports[:2]
	s.addr = netip.MustParseAddrPort(ports[2])
	s.relayArgs = []string{"serve", "--nats-url", url, "--http", s.webs[0], "--replicas", "3", "--drain-timeout", relayDrain.String()}
	s.relay = start(t, "relay", append(s.relayArgs, "--node", "r1")...)
	s.edge = start(t, "edge", "serve", "--nats-url", url, "--node", "e1", "--http", s.webs[1], "--listen", "udp://"+ports[2], "--open-space", "s",
		"--session-durability", "log", "--session-replicas", "3", "--redis", "", "--drain-timeout", edgeDrain.String(), "--drain-linger", "0s",
		"--gossip-bind", ports[3], "--gossip-join", ports[4])
	s.relay.says("serving shards")
	s.edge.says("bus reached")
	var err error
	if s.nc, err = nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.nc.Close)
	eventually(t, "the relay accepts a state", func() bool {
		m, err := s.nc.Request(subject.Names{}.Publish("s", ""), []byte(towerPut), time.Second)
		return err == nil && strings.HasPrefix(string(m.Data), `{"epoch"`)
	})
	s.player = runClient(t, s.addr, dnptest.Cpp(), dnptest.App{})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := s.player.Until(ctx, func(c *dnptest.Client) bool { return c.Phase() == dnptest.Connected && len(c.Links()) > 0 }); err != nil {
		t.Fatal(err)
	}
	return s
}

// deleteStreams deletes the streams whose names begin so.
func (s *shutdown) deleteStreams(prefix string) {
	s.Helper()
	js := jetStream(s.T, s.nc)
	names := js.StreamNames(s.Context())
	for name := range names.Name() {
		if strings.HasPrefix(name, prefix) {
			natstest.DeleteStream(s.T, js, name)
		}
	}
}

// endsWithin ends a node and wants it to end within a time, with exit code 0 or with code 1 and
// this in the last line.
func (s *shutdown) endsWithin(p *process, limit time.Duration, undone string) {
	s.Helper()
	begin := time.Now()
	p.term()
	select {
	case <-p.ended:
		s.Logf("ended after %v", time.Since(begin))
	case <-time.After(limit):
		p.signal(syscall.SIGQUIT)
		<-p.ended
		s.Errorf("the process has not ended after %v:\n%s", limit, p.output)
		return
	}
	code := 0
	if undone != "" {
		code = 1
	}
	lines := strings.Split(strings.TrimSpace(p.output.String()), "\n")
	if last := lines[len(lines)-1]; p.cmd.ProcessState.ExitCode() != code || !strings.Contains(last, undone) {
		s.Errorf("exit code %d, want %d, and %q in the last line of\n%s", p.cmd.ProcessState.ExitCode(), code, undone, p.output)
	}
}

// TestShutdown ends a relay and an edge with a session while NATS does all kinds of things. Both
// end within their drain timeouts, and say what they could not do.
func TestShutdown(t *testing.T) {
	t.Parallel()
	for _, x := range []struct {
		name        string
		edge, relay string // what is not done
		spoil       func(s *shutdown)
	}{
		{"all is well", "", "", func(*shutdown) {}},
		{"no quorum", "1 sessions were neither", "64 shards were not handed over", func(s *shutdown) { s.nats[0].kill(); s.nats[1].kill() }},
		{"no server", "1 sessions were neither", "64 shards were not handed over", func(s *shutdown) {
			for _, p := range s.nats {
				p.kill()
			}
		}},
		{"frozen servers", "1 sessions were neither", "64 shards were not handed over", func(s *shutdown) {
			for _, p := range s.nats {
				p.signal(syscall.SIGSTOP)
			}
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel() // most of it is waiting
			s := newShutdown(t)
			x.spoil(s)
			s.endsWithin(s.edge, edgeDrain+shutdownRest, x.edge)
			s.endsWithin(s.relay, relayDrain+shutdownRest, x.relay)
		})
	}
}

// TestSecondSignal ends a relay that drains without NATS at once.
func TestSecondSignal(t *testing.T) {
	t.Parallel()
	s := newShutdown(t)
	for _, p := range s.nats {
		p.signal(syscall.SIGSTOP)
	}
	s.relay.term()
	s.relay.says("a second signal ends the process at once")
	s.relay.signal(syscall.SIGINT) // SIGTERM again, so soon, would be a repetition
	s.relay.ends(1, "ended at once by a second signal")
}

// ready waits until a node says at /readyz whether it is ready, and what it misses.
func (s *shutdown) ready(node int, ready bool, missing string) {
	s.Helper()
	eventually(s.T, fmt.Sprintf("/readyz of node %d says ready %v without %q", node, ready, missing), func() bool {
		h, status := readiness(s.T, s.webs[node])
		return h.Ready == ready && (status == http.StatusOK) == ready && (len(h.Missing) == 0) == (missing == "") && strings.Contains(strings.Join(h.Missing, " "), missing)
	})
}

// TestReadyWithoutQuorum stops two of three servers. The relay is not ready, and says which
// streams take no writes; the edge stays ready, because it serves its players, and says so, too.
func TestReadyWithoutQuorum(t *testing.T) {
	t.Parallel()
	s := newShutdown(t)
	s.ready(0, true, "")
	s.ready(1, true, "")
	s.nats[0].kill()
	s.nats[1].kill()
	s.ready(0, false, "DNP_STORE_0")
	s.ready(1, true, "DNP_LOG_")
	s.nats[2].signal(syscall.SIGSTOP)
	s.ready(0, false, "nats")
	s.ready(1, true, "nats")
}

// TestStreamsVanish deletes all streams under a relay and an edge. Both make them again and say
// so, what the relay has is stored again, and new players come in.
func TestStreamsVanish(t *testing.T) {
	t.Parallel()
	s := newShutdown(t)
	s.deleteStreams("DNP_")
	s.relay.says("a stream was made again")
	s.edge.says("a stream was made again")
	const replaced = "dnp_streams_replaced_total"
	value := func(node int) string {
		for line := range strings.Lines(get(t, "http://"+s.webs[node]+"/metrics")) {
			if value, ok := strings.CutPrefix(line, replaced+" "); ok {
				return strings.TrimSpace(value)
			}
		}
		return ""
	}
	eventually(t, "the relay counts the streams of the store", func() bool { return value(0) == "4" })
	eventually(t, "the edge counts 12 streams of the copies, and DNP_FROM", func() bool { return value(1) == "13" })
	s.ready(0, true, "")
	s.ready(1, true, "")
	s.relay.says("held_again=")
	sees := func(c *dnptest.Client) bool {
		return slices.ContainsFunc(c.Links(), func(l *dnptest.Link) bool { return string(l.Message) == "T" })
	}
	eventually(t, "a player who comes later sees the state", func() bool { // the edge rejects players until the log answers
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		return runClient(t, s.addr, dnptest.Cpp(), dnptest.App{}).Until(ctx, sees) == nil
	})
	s.relay.term()
	s.relay.ends(0)
	start(t, "relay", append(s.relayArgs, "--node", "r2")...).says("serving shards")
	eventually(t, "the next relay has loaded the state", func() bool {
		m, err := s.nc.Request(subject.Names{}.Get("s", ""), nil, time.Second)
		return err == nil && strings.Contains(string(m.Data), `"tower"`)
	})
}
