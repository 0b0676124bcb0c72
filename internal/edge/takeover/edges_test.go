package takeover

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/format"
	"github.com/dnprelay/dnprelay/internal/simnet"
)

// TestSuccessors: sessions go to edges that are ready, each to the same one whichever edge
// chooses.
func TestSuccessors(t *testing.T) {
	e := newTestEdge(t)
	want := func(why string, names ...string) {
		t.Helper()
		if got := e.view.ready(); !slices.Equal(got, names) {
			t.Errorf("%s: the successors are %v, want %v", why, got, names)
		}
	}
	want("no edge is there")
	if node := e.view.successor("X"); node != "" {
		t.Errorf("no edge is there, and the successor is %q", node)
	}
	e.roster(map[string]cluster.Phase{"e1": cluster.PhaseReady, "e2": cluster.PhaseReady, "e3": cluster.PhaseDraining, "e4": cluster.PhaseStarting})
	want("not itself, and none that leaves or starts", "e2")
	if node := e.view.successor("X"); node != "e2" {
		t.Errorf("the successor is %q, want the only one that is ready", node)
	}
	old := e.view
	e.roster(map[string]cluster.Phase{"e1": cluster.PhaseReady, "e3": cluster.PhaseReady})
	want("e2 is gone, e3 is ready", "e3")
	if !e.view.gone["e2"] || e.view.inRoster("e2") || e.view.gone["e9"] {
		t.Error("e2 was there and is gone; e9 was never there")
	}
	if old.gone["e2"] || !old.inRoster("e2") {
		t.Error("an older view changed")
	}
}

// TestPorts: sessions go to edges that listen on the port of their clients, or do not say where they listen.
func TestPorts(t *testing.T) {
	edge := func(name string, phase cluster.Phase, ports ...uint16) cluster.Member {
		m := cluster.Member{Name: name, Role: cluster.RoleEdge, Phase: phase, Addresses: []cluster.Address{{Service: cluster.ServiceForward, Addr: netip.MustParseAddrPort("10.0.0.1:7947")}}}
		for _, port := range ports {
			m.Addresses = append(m.Addresses, cluster.Address{Service: cluster.ServiceDNP, Addr: netip.AddrPortFrom(netip.MustParseAddr("10.0.0.1"), port)})
		}
		return m
	}
	self := edge("e1", cluster.PhaseDraining, 3413)
	for _, c := range []struct {
		why       string
		others    []cluster.Member
		ready     string // for port 3413
		may       bool
		elsewhere string
	}{
		{"no other edge", nil, "[]", false, "[]"},
		{"the same port", []cluster.Member{edge("e2", cluster.PhaseReady, 3413)}, "[e2]", true, "[]"},
		{"one of its ports", []cluster.Member{edge("e2", cluster.PhaseReady, 5000, 3413)}, "[e2]", true, "[]"},
		{"it has not told its ports", []cluster.Member{edge("e2", cluster.PhaseReady)}, "[e2]", true, "[]"},
		{"other ports", []cluster.Member{edge("e2", cluster.PhaseReady, 3414, 3415), edge("e3", cluster.PhaseStarting, 3416)}, "[]", false, "[e2 at 3414 3415 e3 at 3416]"},
		{"one of two", []cluster.Member{edge("e2", cluster.PhaseReady, 3414), edge("e3", cluster.PhaseReady, 3413)}, "[e3]", true, "[]"},
		{"the right one starts", []cluster.Member{edge("e2", cluster.PhaseReady, 3414), edge("e3", cluster.PhaseStarting, 3413)}, "[]", true, "[]"},
		{"the right one leaves", []cluster.Member{edge("e2", cluster.PhaseReady, 3414), edge("e3", cluster.PhaseDraining, 3413)}, "[]", false, "[e2 at 3414]"},
		{"a relay has no clients", []cluster.Member{{Name: "r", Role: cluster.RoleRelay, Phase: cluster.PhaseReady}}, "[]", false, "[]"},
	} {
		v, _ := NewView("e1").With(cluster.NewRoster(append(c.others, self)))
		_, may := v.MaySucceed([]uint16{3413})
		if got := fmt.Sprint(v.readyAt(3413)); got != c.ready || may != c.may {
			t.Errorf("%s: %s is ready and %v may be soon, want %s and %v", c.why, got, may, c.ready, c.may)
		}
		if got := fmt.Sprint(v.Elsewhere(3413)); got != c.elsewhere {
			t.Errorf("%s: elsewhere are %s, want %s", c.why, got, c.elsewhere)
		}
	}
	v, _ := NewView("e1").With(cluster.NewRoster([]cluster.Member{self, edge("e2", cluster.PhaseReady, 3414)}))
	if _, may := v.MaySucceed([]uint16{3413, 3414}); !may {
		t.Error("another edge may take the sessions of one of two ports, and is no candidate")
	}
}

// TestInherited: each claim of a dead edge goes to one edge, and those of an
// earlier process to the next one.
func TestInherited(t *testing.T) {
	claims := []string{"A", "B", "C", "D", "E", "F", "G", "H"}
	var all []string
	for _, self := range []string{"e1", "e2", "e3"} {
		v, _ := NewView(self).With(cluster.NewRoster([]cluster.Member{
			{Name: "e1", Role: cluster.RoleEdge, Phase: cluster.PhaseReady}, {Name: "e2", Role: cluster.RoleEdge, Phase: cluster.PhaseReady},
			{Name: "e3", Role: cluster.RoleEdge, Phase: cluster.PhaseReady},
		}))
		all = append(all, v.inherited("e4", claims)...)
		if got := v.inherited(self, claims); !slices.Equal(got, claims) {
			t.Errorf("%s takes over %v of its earlier process, want all", self, got)
		}
	}
	if slices.Sort(all); !slices.Equal(all, claims) {
		t.Errorf("the edges take over %v, want each claim once", all)
	}
}

// TestCandidates: an edge is a successor for as long as its answer counts, and is asked
// again in time. An answer about other spaces does not count.
func TestCandidates(t *testing.T) {
	var c candidates
	now, ready := simnet.Epoch, []string{"e2", "e3"}
	asks := func(why string, spaces []string, want ...string) {
		t.Helper()
		if got := c.update(now, ready, spaces); !slices.Equal(got, want) {
			t.Errorf("%s: it asks %v, want %v", why, got, want)
		}
	}
	successor := func(why, want string) {
		t.Helper()
		if got := c.successor(now, "X", slices.Clone(ready)); got != want {
			t.Errorf("%s: the successor is %q, want %q", why, got, want)
		}
	}
	refused := errors.New("refused")
	asks("at first", []string{"s"}, "e2", "e3")
	asks("they have not answered", []string{"s"})
	successor("they have not answered", "")
	c.answered(now, "e2", []string{"s"}, nil)
	c.answered(now, "e3", []string{"s"}, refused)
	successor("e2 is prepared", "e2")
	now = now.Add(candidatePause)
	asks("e3 refused a while ago", []string{"s"}, "e3")
	now = now.Add(preparedTime/2 - candidatePause)
	asks("e2 in time", []string{"s"}, "e2")
	c.answered(now, "e3", []string{"s"}, nil)
	now = now.Add(preparedTime / 2)
	successor("the answer of e2 is too old", "e3")
	asks("there is another space", []string{"s", "t"}, "e2", "e3")
	if c.answered(now, "e2", []string{"s"}, nil) {
		t.Error("an answer about one space counts for two")
	}
	successor("not for the second space", "")
	c.answered(now, "e2", []string{"s", "t"}, nil)
	successor("for both", "e2")
	asks("one space ended", []string{"t"})
	if !c.answered(now, "e3", []string{"s", "t"}, nil) {
		t.Error("an answer about both spaces does not count for one")
	}
	ready = []string{"e3"}
	asks("e2 left", []string{"t"})
	successor("e2 left", "e3")
	c.failed(now, "e3")
	successor("e3 does not take what it is given", "")
}

// TestHope: an edge that leaves waits for others that start, for a while for others that may
// come back, and not at all where none can come.
func TestHope(t *testing.T) {
	var h Hope
	want := func(why string, at time.Duration, gossip, candidates, hope bool) {
		t.Helper()
		if got := h.Update(simnet.Epoch.Add(at), gossip, candidates); got != hope {
			t.Errorf("%s: hope is %v", why, got)
		}
	}
	want("there is another edge", 0, true, true, true)
	want("it is gone", time.Second, true, false, true)
	want("for almost too long", time.Second+hopePatience-time.Millisecond, true, false, true)
	want("it is back", time.Second+hopePatience, true, true, true)
	want("it is gone again", time.Minute, true, false, true)
	want("not for long", time.Minute+hopePatience-time.Millisecond, true, false, true)
	want("for too long", time.Minute+hopePatience, true, false, false)
	h = Hope{}
	want("gossip does not say which edges are there", 0, false, false, false)
}

// TestFormat: sessions are written in the newest format that all members read, and in the
// oldest while no roster says what they read.
func TestFormat(t *testing.T) {
	e := newTestEdge(t)
	writes := e.workers[0].t.log.Format
	if got := writes(); got != format.Oldest {
		t.Errorf("without a roster it writes format %d, want %d", got, format.Oldest)
	}
	e.view, _ = e.view.With(cluster.NewRoster([]cluster.Member{
		{Name: "e1", Role: cluster.RoleEdge, Format: 7}, {Name: "e2", Role: cluster.RoleEdge, Format: 5},
	}))
	if got := writes(); got != 5 {
		t.Errorf("it writes format %d, want the 5 that both read", got)
	}
}
