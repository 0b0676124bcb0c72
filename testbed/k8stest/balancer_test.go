//go:build linux

package k8stest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dnprelay/dnprelay/testbed/history"
)

// A bench is a balancer before nodes on loopback, whose routes are a map.
type bench struct {
	*balancer
	t      *testing.T
	file   string
	health []*httptest.Server // by node; those that are closed have no edge
	routes map[string]string  // node by table
	rules  map[string]string  // table by client
}

// newBench returns a balancer before nodes of which each has an edge.
func newBench(t *testing.T, nodes int) *bench {
	t.Helper()
	b := &bench{t: t, file: filepath.Join(t.TempDir(), "history.jsonl"), routes: map[string]string{}, rules: map[string]string{}}
	log, err := history.Create(b.file)
	if err != nil {
		t.Fatal(err)
	}
	var ways []way
	port := "0"
	for i := range nodes {
		addr := fmt.Sprint("127.83.0.", i+1)
		l, err := net.Listen("tcp4", net.JoinHostPort(addr, port))
		if err != nil {
			t.Skip("a port of several addresses of loopback: ", err)
		}
		_, port, _ = net.SplitHostPort(l.Addr().String())
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/healthz" {
				w.WriteHeader(http.StatusNotFound)
			}
		}))
		_ = s.Listener.Close()
		s.Listener = l
		s.Start()
		t.Cleanup(s.Close)
		b.health = append(b.health, s)
		ways = append(ways, way{name: fmt.Sprint("kn", i+1), addr: addr})
	}
	b.balancer = newBalancer("10.199.1.1", port, ways, log)
	b.ip = b.kernel
	return b
}

// kernel does what the commands of the balancer do in the kernel.
func (b *bench) kernel(lines ...string) error {
	for _, line := range lines {
		f := strings.Fields(line)
		switch {
		case strings.HasPrefix(line, "rule del "):
			return fmt.Errorf("there is no such rule")
		case strings.HasPrefix(line, "rule add pref ") && f[3] == f[9] && f[7] == b.address:
			b.rules[f[5]] = f[9]
		case strings.HasPrefix(line, "route replace "+b.address+"/32 via "):
			b.routes[f[8]] = f[4]
		default:
			b.t.Errorf("ip %s: not expected", line)
		}
	}
	return nil
}

// wantRoutes requires that each client of the table has the route that the table says.
func (b *bench) wantRoutes(about, want string) {
	b.t.Helper()
	if got := b.String(); got != want {
		b.t.Errorf("%s: the nodes have %q, want %q", about, got, want)
	}
	for _, f := range b.flows.flows {
		if got, want := b.routes[b.rules[f.addr.String()]], b.flows.ways[f.node].addr; got != want {
			b.t.Errorf("%s: datagrams of %s go to %q, and its node is %s", about, f.player, got, want)
		}
	}
}

func (b *bench) checks(n int) {
	b.t.Helper()
	for range n {
		if err := b.check(); err != nil {
			b.t.Fatal(err)
		}
	}
}

// phase returns the only phase of the history, which has these cuts, as PLAYER NOTE.
func (b *bench) phase(cuts ...string) history.Phase {
	b.t.Helper()
	b.log.Add(history.Record{Kind: history.Ended})
	if err := b.log.Close(); err != nil {
		b.t.Fatal(err)
	}
	text, err := os.ReadFile(b.file)
	if err != nil {
		b.t.Fatal(err)
	}
	var got []string
	for line := range strings.Lines(string(text)) {
		var r history.Record
		if err := json.Unmarshal([]byte(line), &r); err != nil {
			b.t.Fatal(err)
		}
		if r.Kind == history.Cut {
			got = append(got, r.Who+" "+r.Note)
		}
	}
	if !slices.Equal(got, cuts) {
		b.t.Errorf("the history has the cuts %q, want %q", got, cuts)
	}
	v, err := history.CheckFile(b.file, history.Everyone)
	if err != nil || len(v.Phases) != 1 {
		b.t.Fatalf("%v, %+v", err, v)
	}
	return v.Phases[0]
}

// TestBalancerCut: when a node is cut off, the balancer moves its flows with their routes, and
// the history knows whose way in was cut: those, and no others.
func TestBalancerCut(t *testing.T) {
	b := newBench(t, 2)
	if err := b.join("early", client(9)); err == nil {
		t.Error("before the first check a client has a flow")
	}
	b.checks(1)
	if !b.sees([]string{"kn1", "kn2"}) || b.sees([]string{"kn1"}) {
		t.Error("the balancer does not see the two edges")
	}
	for i := range 4 {
		if err := b.join(fmt.Sprint("player", i), client(i)); err != nil {
			t.Fatal(err)
		}
	}
	b.wantRoutes("four players", "kn1 2, kn2 2")

	b.log.Phase("node", 0)
	if err := b.cut("kn1"); err != nil {
		t.Fatal(err)
	}
	b.health[0].Close()
	b.log.Add(history.Record{Kind: history.Closed, Who: "player0.0", Note: "timeout"}) // its way in is over kn1
	b.log.Add(history.Record{Kind: history.Closed, Who: "player1.0", Note: "timeout"}) // over kn2
	b.checks(1)
	b.wantRoutes("one failed check", "kn1 2, kn2 2")
	b.checks(1)
	b.wantRoutes("two failed checks", "kn2 4")
	if count, all := b.over("kn1"); count != 0 || all != 4 {
		t.Errorf("%d of %d flows come in over kn1", count, all)
	}
	b.heal()

	p := b.phase("player0 start", "player2 start", "player0 end", "player2 end")
	if p.Cut() != 2 || p.CutEnded != 1 || p.Interruptions != 1 {
		t.Errorf("the way in of %d players cut, %d sessions ended, %d interruptions; want 2, 1, 1", p.Cut(), p.CutEnded, p.Interruptions)
	}
	if len(p.Routes) != 1 || !strings.HasSuffix(p.Routes[0], "s: kn2 4") {
		t.Errorf("the history has the routes %q, want one, of 4 flows over kn2", p.Routes)
	}
}

// TestBalancerCutMovesIn: the way of a flow that moves to a node that is cut off is cut until the
// node is back.
func TestBalancerCutMovesIn(t *testing.T) {
	b := newBench(t, 2)
	b.checks(1)
	for i := range 2 {
		if err := b.join(fmt.Sprint("player", i), client(i)); err != nil {
			t.Fatal(err)
		}
	}
	b.log.Phase("node", 0)
	if err := errors.Join(b.cut("kn1"), b.avoid("kn2", true)); err != nil {
		t.Fatal(err)
	}
	b.wantRoutes("before the health checks notice the cut", "kn1 2")
	b.heal()
	b.phase("player0 start", "player1 start", "player0 end", "player1 end")
}

// TestBalancerAvoid: no flow comes in over a node that is avoided, so a cut of it is the cut of
// no player's way.
func TestBalancerAvoid(t *testing.T) {
	b := newBench(t, 2)
	b.checks(1)
	for i := range 4 {
		if err := b.join(fmt.Sprint("player", i), client(i)); err != nil {
			t.Fatal(err)
		}
	}
	b.log.Phase("node", 0)
	if err := b.avoid("kn1", true); err != nil {
		t.Fatal(err)
	}
	b.wantRoutes("avoided", "kn2 4")
	if err := b.cut("kn1"); err != nil {
		t.Fatal(err)
	}
	b.checks(3)
	b.heal()
	if err := b.avoid("kn1", false); err != nil {
		t.Fatal(err)
	}
	b.wantRoutes("admitted again", "kn1 0, kn2 4")
	if err := b.even(); err != nil {
		t.Fatal(err)
	}
	b.wantRoutes("evenly", "kn1 2, kn2 2")
	for _, f := range []func() error{func() error { return b.avoid("kn7", true) }, func() error { return b.cut("kn7") }} {
		if f() == nil {
			t.Error("the balancer knows a node that does not exist")
		}
	}
	if p := b.phase(); p.Cut() != 0 {
		t.Errorf("the way in of %d players was cut", p.Cut())
	}
}
