package systest

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/natslease"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A farm is three NATS servers, three relays and two edges, all processes, and a
// player at each edge.
type farm struct {
	*testing.T
	nats     []*process
	urls     []string
	relays   map[string]*process
	common   []string // flags of every node
	join     string
	nc       *nats.Conn
	js       jetstream.JetStream
	subjects subject.Names
	players  []*dnptest.Peer
}

// farmShard is where space s is.
var farmShard = cluster.Shard("s", 64)

func newFarm(t *testing.T) *farm {
	f := &farm{T: t, relays: map[string]*process{}}
	f.nats, f.urls = startNATSServers(t)
	key := filepath.Join(t.TempDir(), "gossip.key")
	if err := os.WriteFile(key, []byte(strings.Repeat("a1", 32)+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	gossip := freePorts(t, 3)
	f.join = strings.Join(gossip, ",")
	f.common = []string{"serve", "--nats-url", strings.Join(f.urls, ","), "--http", "127.0.0.1:0"}
	for i, addr := range gossip {
		name := fmt.Sprint("r", i+1)
		f.relays[name] = start(t, "relay", append(f.common, "--node", name, "--replicas", "3", "--tick", "1ms",
			"--gossip-bind", addr, "--gossip-join", f.join, "--gossip-key-file", key)...)
	}
	ports := freePorts(t, 2)
	for i, port := range ports {
		start(t, "edge", append(f.common, "--node", fmt.Sprint("e", i+1), "--listen", "udp://"+port, "--open-space", "s", "--workers", "1",
			"--gossip-bind", "127.0.0.1:0", "--gossip-join", f.join, "--gossip-key-file", key)...).says("bus reached")
	}
	var err error
	if f.nc, err = nats.Connect(strings.Join(f.urls, ","), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.nc.Close)
	if f.js, err = jetstream.New(f.nc); err != nil {
		t.Fatal(err)
	}
	for _, port := range ports {
		f.connect(port)
	}
	return f
}

// connect brings a player to an edge. It must stay connected, and keep its links,
// until the test ends.
func (f *farm) connect(edge string) {
	f.Helper()
	var p *dnptest.Peer
	var err error
	ended := false // of the test
	app := dnptest.App{
		Closed: func(reason string) {
			if !ended {
				f.Errorf("the player at %s was disconnected: %s", edge, reason)
			}
		},
		LinkDown: func(l *dnptest.Link) {
			if string(l.Message) != "G" {
				f.Errorf("the player at %s lost its link to %s", edge, l.Message)
			}
		},
	}
	p, err = dnptest.RunUDP(f.Context(), dnptest.Config{Behaviour: dnptest.Cpp(), Server: netip.MustParseAddrPort(edge), App: app}, netip.AddrPort{})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() {
		_ = p.Do(func(time.Time, *dnptest.Client) { ended = true }) // fails if it ended before
		p.Close()
	})
	f.players = append(f.players, p)
}

// publish publishes until it is accepted.
func (f *farm) publish(body string) {
	f.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		m, err := f.nc.Request(f.subjects.Publish("s", ""), []byte(body), 300*time.Millisecond)
		var a struct {
			Epoch uint64
			Error json.RawMessage
		}
		if err == nil && json.Unmarshal(m.Data, &a) == nil && a.Error == nil && a.Epoch != 0 {
			return
		}
		if time.Now().After(end) {
			f.Fatalf("publish %s: %v", body, err)
		}
	}
}

// see waits until both players see a value.
func (f *farm) see(message string, value []byte) {
	f.Helper()
	ctx, cancel := context.WithTimeout(f.Context(), patience)
	defer cancel()
	for i, p := range f.players {
		if err := p.Until(ctx, func(c *dnptest.Client) bool { return string(c.Value(message, 0)) == string(value) }); err != nil {
			f.Fatalf("player %d does not see %s = % x: %v", i, message, value, err)
		}
	}
}

// holder waits until the store says that a relay which runs holds the space, and
// returns it.
func (f *farm) holder() (name string, p *process) {
	f.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		s, err := f.js.Stream(f.Context(), natslease.StreamName(farmShard%4))
		if err != nil {
			continue
		}
		m, err := s.GetLastMsgForSubject(f.Context(), f.subjects.StoreOwn(farmShard))
		if err != nil {
			continue
		}
		if own := cluster.ParseHolder(m.Sequence, m.Data); !own.Released && f.relays[own.Node] != nil {
			return own.Node, f.relays[own.Node]
		}
	}
	f.Fatal("no relay holds the space")
	return "", nil
}

// TestProcesses kills the holder of a space, lets the next one drain, and kills a NATS
// server, under two players who must not notice more than a pause.
func TestProcesses(t *testing.T) {
	f := newFarm(t)
	f.publish(towerPut)
	f.publish(`{"op":"put","key":"keep","message":"K","values":[{"type":"uint16","value":5}]}`)
	f.publish(`{"op":"put","key":"gone","message":"G","values":[{"type":"uint16","value":1}]}`)
	f.see("G", u16(1))
	f.publish(`{"op":"remove","key":"gone"}`)
	f.see("T", f32(93.5))
	f.see("K", u16(5))
	f.stored("keep")
	f.refused()

	name, holder := f.holder()
	holder.kill()
	delete(f.relays, name)
	f.publish(`{"op":"set","key":"tower","values":{"hp":1}}`)
	f.see("T", f32(1))

	name, holder = f.holder()
	holder.term()
	holder.ends(0)
	delete(f.relays, name)
	f.publish(`{"op":"set","key":"tower","values":{"hp":2}}`)
	f.see("T", f32(2))

	f.nats[f.leader()].kill()
	f.publish(`{"op":"set","key":"tower","values":{"hp":3}}`)
	f.see("T", f32(3))
	f.see("K", u16(5)) // nobody said it again
	f.see("G", nil)    // nor did it come back
}

// stored waits until a state is in the store: everything that was put before it is then,
// too, as the oldest change is stored first.
func (f *farm) stored(key string) {
	f.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		s, err := f.js.Stream(f.Context(), natslease.StreamName(farmShard%4))
		if err != nil {
			continue
		}
		info, err := s.Info(f.Context(), jetstream.WithSubjectFilter(f.subjects.StoreKeyframeAll(farmShard)))
		if err == nil && len(info.State.Subjects) >= 3 {
			return
		}
	}
	f.Fatalf("%s is not stored", key)
}

// leader returns the index of the NATS server that leads the stream of the space.
func (f *farm) leader() int {
	f.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		s, err := f.js.Stream(f.Context(), natslease.StreamName(farmShard%4))
		if err != nil {
			continue
		}
		if c := s.CachedInfo().Cluster; c != nil && c.Leader != "" {
			return int(c.Leader[len(c.Leader)-1] - '1')
		}
	}
	f.Fatal("the stream has no leader")
	return 0
}

// refused starts relays that do not fit the others: with another key, and with another
// number of shards. Each says why in one line; the others do not mind.
func (f *farm) refused() {
	f.Helper()
	key := filepath.Join(f.TempDir(), "other.key")
	if err := os.WriteFile(key, []byte(strings.Repeat("b2", 32)+"\n"), 0o600); err != nil {
		f.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		says string
	}{
		{[]string{"--gossip-key-file", key, "--gossip-bind", "127.0.0.1:0", "--gossip-join", f.join}, "key"},
		{[]string{"--shards", "32"}, "64"},
	} {
		p := start(f.T, "relay", append(append(f.common, "--node", "stranger", "--log-level", "error"), c.args...)...)
		p.ends(1, c.says)
		if n := strings.Count(p.output.String(), "\n"); n != 1 {
			f.Errorf("%q says it in %d lines, want one:\n%s", c.args, n, p.output)
		}
	}
}
