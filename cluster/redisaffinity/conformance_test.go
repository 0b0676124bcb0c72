package redisaffinity

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/memaffinity"
)

// A peer is the affinity of one node under test. All nodes of a test share a store.
type peer struct {
	cluster.Affinity
	name     string
	kill     func()      // the node dies: its claims stay, its lease ends
	replaced chan string // calls of OnReplaced, as "name node epoch"; has room for 100
	settle   func()      // waits until the server that does not break has all claims of the node; nil if none breaks
	fault    func()      // breaks the other server; nil if none breaks
}

// settle waits until a fault cannot take a claim with it that is nowhere else yet.
func settle(all []peer) {
	for _, n := range all {
		if n.settle != nil {
			n.settle()
		}
	}
}

// midway breaks a server of a test.
func midway(all []peer) {
	if settle(all); all[0].fault != nil {
		all[0].fault()
	}
}

// An opener returns running nodes over an empty store, which end with the test. renew is
// the interval at which they renew their claims.
type opener func(t *testing.T, renew time.Duration, names ...string) []peer

// never is an interval of renewals: a renewal shows that a node serves its session, and ends
// the attempts of others to take it over.
const never = time.Hour

func TestConformanceMini(t *testing.T) {
	conform(t, func(t *testing.T, renew time.Duration, names ...string) []peer {
		m := miniredis.RunT(t)
		return peers(t, stores{urls: []string{"redis://" + m.Addr()}, pass: m.FastForward}, renew, names)
	})
}

func TestConformanceReal(t *testing.T) {
	conform(t, func(t *testing.T, renew time.Duration, names ...string) []peer {
		return peers(t, stores{urls: []string{startServer(t).url()}}, renew, names)
	})
}

// The stores of the nodes of a test are one server, or two.
type stores struct {
	urls  []string
	away  []bool              // by server; those that do not answer at first, if any
	pass  func(time.Duration) // lets time pass there; nil if it does by itself
	adapt func(*Affinity)     // may be nil
	good  int                 // the server that does not break, if fault is not nil
	fault func()              // breaks the other one; may be nil
}

// peers runs nodes, and waits until they see the servers.
func peers(t *testing.T, s stores, renew time.Duration, names []string) (all []peer) {
	var nodes []*node
	for _, name := range names {
		n := startAll(t, s.urls, name, func(c *Config) { c.Renew = renew }, s.adapt)
		nodes = append(nodes, n)
		all = append(all, peer{Affinity: n, name: name, replaced: n.replaced, kill: func() {
			n.kill()
			if s.pass != nil {
				s.pass(n.cfg.LeaseTTL)
			}
		}})
	}
	t.Cleanup(func() {
		for _, n := range nodes {
			if t.Failed() {
				t.Logf("%s: %+v", n.cfg.Node, n.Servers())
			}
		}
	})
	for _, n := range nodes {
		n.sees(t, s.away...)
	}
	if s.fault != nil {
		for i, n := range nodes {
			all[i].fault, all[i].settle = s.fault, func() { n.wrote(t, s.good) }
		}
	}
	return all
}

// TestConformanceMemory holds the affinity of simulations to the same suite.
func TestConformanceMemory(t *testing.T) {
	conform(t, func(_ *testing.T, _ time.Duration, names ...string) (all []peer) {
		now := time.Unix(1000, 0)
		hub := memaffinity.New(func() time.Time { return now })
		for _, name := range names {
			n := hub.Node(name)
			replaced := make(chan string, 100)
			n.OnReplaced(func(name string, by cluster.Served) { replaced <- fmt.Sprintf("%s %s %d", name, by.Node, by.Epoch) })
			all = append(all, peer{Affinity: n, name: name, kill: n.Leave, replaced: replaced})
		}
		return all
	})
}

// conform runs the conformance suite of cluster.Affinity.
func conform(t *testing.T, open opener) {
	for _, c := range []struct {
		name string
		test func(*testing.T, opener)
	}{
		{"ClaimFind", claimFind}, {"Epochs", epochs}, {"Try", try}, {"Death", death}, {"Many", many},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, open) })
	}
}

// find asks and waits.
func (n peer) find(t *testing.T, name string) cluster.Served {
	t.Helper()
	return wait(t, func(answer func(cluster.Served, error)) { n.Find(name, answer) })
}

func (n peer) try(t *testing.T, name string, seen cluster.Served) cluster.Served {
	t.Helper()
	return wait(t, func(answer func(cluster.Served, error)) { n.Try(name, seen, answer) })
}

func wait(t *testing.T, ask func(func(cluster.Served, error))) cluster.Served {
	t.Helper()
	type result struct {
		s   cluster.Served
		err error
	}
	c := make(chan result, 2)
	ask(func(s cluster.Served, err error) { c <- result{s, err} })
	select {
	case r := <-c:
		if r.err != nil {
			t.Fatal(r.err)
		}
		return r.s
	case <-time.After(patience):
		t.Fatal("the question is not answered")
		return cluster.Served{}
	}
}

// until asks until the answer is as wanted: claims are written some time after the call.
func (n peer) until(t *testing.T, name string, want cluster.Served, why string) {
	t.Helper()
	var got cluster.Served
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if got = n.find(t, name); got == want {
			return
		}
	}
	t.Fatalf("%s finds %+v, want %+v: %s", n.name, got, want, why)
}

func served(n peer, epoch uint64) cluster.Served {
	return cluster.Served{Node: n.name, Epoch: epoch, Alive: true}
}

func claimFind(t *testing.T, open opener) {
	all := open(t, never, "a", "b")
	a, b := all[0], all[1]
	if got := b.find(t, "S1"); got != (cluster.Served{}) {
		t.Errorf("a session without a claim is served by %+v", got)
	}
	a.Claim("S1", 1)
	b.until(t, "S1", served(a, 1), "a claims it")
	a.until(t, "S1", served(a, 1), "a claims it")
	midway(all)
	if got := b.find(t, "S1"); got != served(a, 1) {
		t.Errorf("the claim is %+v, but a claims it still", got)
	}
	b.Release("S1", 1)
	b.Release("S1", 2)
	a.Release("S1", 3)
	b.Claim("S2", 1)
	a.until(t, "S2", served(b, 1), "b claims it")
	if got := a.find(t, "S1"); got != served(a, 1) {
		t.Errorf("the claim is %+v after releases by another node and of another epoch", got)
	}
	a.Release("S1", 1)
	b.until(t, "S1", cluster.Served{}, "a released it")
}

// epochs checks that the later epoch wins whatever the order of claims, and that the earlier claimant is
// told.
func epochs(t *testing.T, open opener) {
	all := open(t, 50*time.Millisecond, "a", "b")
	a, b := all[0], all[1]
	a.Claim("S", 1)
	b.until(t, "S", served(a, 1), "a claims it")
	b.Claim("S", 2)
	b.until(t, "S", served(b, 2), "b adopted it")
	midway(all)
	a.Claim("S", 1)
	select {
	case got := <-a.replaced:
		if got != "S b 2" {
			t.Errorf("a is told %q, want \"S b 2\"", got)
		}
	case <-time.After(patience):
		t.Error("a is not told that b claims the session in a later epoch")
	}
	if got := a.find(t, "S"); got != served(b, 2) {
		t.Errorf("the claim of an earlier epoch replaced the later one: %+v", got)
	}
	a.Release("S", 1)
	a.Claim("T", 1)
	b.until(t, "T", served(a, 1), "the calls of a take effect in order")
	if got := a.find(t, "S"); got != served(b, 2) {
		t.Errorf("the release of an earlier epoch removed the later claim: %+v", got)
	}
	a.Claim("S", 3)
	b.until(t, "S", served(a, 3), "a took it back")
	if got := <-b.replaced; got != "S a 3" { // by a renewal
		t.Errorf("b is told %q, want \"S a 3\"", got)
	}
}

// try checks that one of several nodes gets the permission to take a session over.
func try(t *testing.T, open opener) {
	all := open(t, never, "a", "b", "c")
	a, b, c := all[0], all[1], all[2]
	a.Claim("S", 1)
	b.until(t, "S", served(a, 1), "a claims it")
	settle(all)
	seen := served(a, 1)
	if got := b.try(t, "S", seen); got.Trying != "b" {
		t.Errorf("b does not get the permission: %+v", got)
	}
	midway(all)
	if got := c.try(t, "S", seen); got.Trying != "b" || got.Node != "a" {
		t.Errorf("c is answered %+v although b tries", got)
	}
	if got := c.find(t, "S"); got.Trying != "b" {
		t.Errorf("c does not see that b tries: %+v", got)
	}
	if got := b.try(t, "S", seen); got.Trying != "b" {
		t.Errorf("b does not get its permission again: %+v", got)
	}
	b.Claim("S", 2)
	c.until(t, "S", served(b, 2), "b adopted it, which ends the attempt")
	if got := c.try(t, "S", seen); got.Trying != "" || got.Node != "b" || got.Epoch != 2 {
		t.Errorf("c has seen an old claim and is answered %+v", got)
	}
	if got := c.try(t, "NEW", cluster.Served{}); got.Trying != "c" {
		t.Errorf("c does not get the permission for a session without a claim: %+v", got)
	}
}

func death(t *testing.T, open opener) {
	all := open(t, never, "a", "b")
	a, b := all[0], all[1]
	a.Claim("S", 4)
	b.until(t, "S", served(a, 4), "a claims it")
	midway(all)
	a.kill()
	b.until(t, "S", cluster.Served{Node: "a", Epoch: 4}, "a is dead, but its claim stays")
	if got := claimed(t, b, "a"); !slices.Equal(got, []string{"S"}) {
		t.Errorf("a claimed %q", got)
	}
}

func many(t *testing.T, open opener) {
	const n = 1000
	all := open(t, never, "a", "b")
	a, b := all[0], all[1]
	var want []string
	for i := range n {
		name := fmt.Sprintf("S%04d", i)
		if i == n/2 {
			midway(all)
		}
		a.Claim(name, 1)
		want = append(want, name)
	}
	a.Claim("LAST", 1)
	a.Release("LAST", 1)
	for end := time.Now().Add(patience); ; {
		got := claimed(t, b, "a")
		if slices.Equal(got, want) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("a claimed %d, want %d", len(got), n)
		}
	}
	if got := claimed(t, a, "b"); len(got) > 0 {
		t.Errorf("b claimed %q", got)
	}
}

func claimed(t *testing.T, n peer, node string) (all []string) {
	t.Helper()
	done := make(chan error, 1)
	n.Claimed(node, func(names []string) { all = append(all, names...) }, func(err error) { done <- err })
	select {
	case err := <-done:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(patience):
		t.Fatal("the question is not answered")
	}
	slices.Sort(all)
	return all
}
