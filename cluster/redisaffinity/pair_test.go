package redisaffinity

import (
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/dnprelay/dnprelay/cluster"
)

// TestConformanceTwoMini holds two servers without a fault to the suite.
func TestConformanceTwoMini(t *testing.T) {
	conform(t, func(t *testing.T, renew time.Duration, names ...string) []peer {
		m, n := miniredis.RunT(t), miniredis.RunT(t)
		pass := func(d time.Duration) { m.FastForward(d); n.FastForward(d) }
		return peers(t, stores{urls: []string{"redis://" + m.Addr(), "redis://" + n.Addr()}, pass: pass}, renew, names)
	})
}

// TestConformanceTwo holds two servers to the suite, of which one is at fault.
func TestConformanceTwo(t *testing.T) {
	for _, f := range []struct {
		name   string
		before func(*server) // before there are nodes
		midway func(*server)
	}{
		{"dead from the start", (*server).stop, nil},
		{"there later", (*server).stop, (*server).start},
		{"killed", nil, (*server).stop},
		{"restarted empty", nil, func(s *server) { s.stop(); s.start() }},
		{"stopped", nil, func(s *server) { s.signal(syscall.SIGSTOP) }},
	} {
		for bad := range ServersMax {
			t.Run(fmt.Sprintf("%s, server %d", f.name, bad), func(t *testing.T) {
				t.Parallel()
				conform(t, func(t *testing.T, renew time.Duration, names ...string) []peer {
					servers := startServers(t)
					away := make([]bool, ServersMax)
					if f.before != nil {
						f.before(servers[bad])
						away[bad] = true
					}
					// The other server has the time of a slow machine.
					impatient := func(a *Affinity) { a.servers[bad].cfg.Timeout = 200 * time.Millisecond }
					return peers(t, stores{urls: urls(servers), away: away, adapt: impatient, good: 1 - bad, fault: func() {
						if f.midway != nil {
							f.midway(servers[bad])
						}
					}}, renew, names)
				})
			})
		}
	}
}

func startServers(t testing.TB) []*server { return []*server{startServer(t), startServer(t)} }

func urls(servers []*server) (all []string) {
	for _, s := range servers {
		all = append(all, s.url())
	}
	return all
}

// patient is for tests whose leases and claims must outlive a slow machine.
func patient(c *Config) { c.Renew, c.LeaseTTL = never, 2*patience }

// TestTurns takes each server away in turn, after the one that was away before has everything again. No
// question fails and no claim is missing at any time.
func TestTurns(t *testing.T) {
	servers := startServers(t)
	a := startAll(t, urls(servers), "a", patient, nil).sees(t)
	want := map[string]bool{}
	check := func(when string) {
		t.Helper()
		for name := range want {
			if got, err := a.find(t, name); err != nil || got != (cluster.Served{Node: "a", Epoch: 1, Alive: true}) {
				t.Fatalf("%s: %s is %+v, %v", when, name, got, err)
			}
		}
	}
	for round := range 6 {
		bad := servers[round%2]
		if bad.stop(); round >= 2 {
			bad.start() // once it was empty before it was gone
		}
		name := fmt.Sprint("S", round)
		a.Claim(name, 1)
		a.wrote(t, 1-round%2)
		want[name] = true
		check("one server is away")
		if round < 2 {
			bad.start()
		}
		check("one server may be empty")
		c := client(t, bad.url())
		until(t, "the claims do not come back to the server that lost them", func() bool {
			there, err := c.Keys(t.Context(), "dnp:s:*").Result()
			return err == nil && len(there) == len(want)
		})
		check("both servers have everything")
	}
}

// TestSlowPair checks that a server that is stopped fails no question, and that only those that are under
// way wait for it.
func TestSlowPair(t *testing.T) {
	for bad := range ServersMax {
		servers := startServers(t)
		impatient := func(a *Affinity) { a.servers[bad].cfg.Timeout = 200 * time.Millisecond }
		a := startAll(t, urls(servers), "a", patient, impatient).sees(t)
		a.Claim("S", 3)
		want := cluster.Served{Node: "a", Epoch: 3, Alive: true}
		a.wrote(t, 1-bad)
		servers[bad].signal(syscall.SIGSTOP)
		const n = asksMax / 2
		answers := make(chan error, 2*n)
		ask := func() {
			for range n {
				a.Find("S", func(got cluster.Served, err error) {
					if err == nil && got != want {
						err = fmt.Errorf("the answer is %+v", got)
					}
					answers <- err
				})
			}
			for range n {
				select {
				case err := <-answers:
					if err != nil {
						t.Fatal(err)
					}
				case <-time.After(patience):
					t.Fatal("a question is not answered")
				}
			}
		}
		ask()
		a.sees(t, bad == 0, bad == 1)
		before := a.Servers()[bad].Stats.Trips
		ask()
		if trips := a.Servers()[bad].Stats.Trips; before > 2*askers+4 || trips > before+askers { // each asker may have had one under way, which counts at its end
			t.Errorf("%d round trips to a stopped server, and then %d: later ones should end with the first", before, trips-before)
		}
		servers[bad].signal(syscall.SIGCONT)
		a.sees(t)
	}
}

// TestStaleClaim lets an edge reach one server only, so the other server has an older claim.
func TestStaleClaim(t *testing.T) {
	for stale := range ServersMax {
		m := []*miniredis.Miniredis{miniredis.RunT(t), miniredis.RunT(t)}
		both := []string{"redis://" + m[0].Addr(), "redis://" + m[1].Addr()}
		a, c := startAll(t, both, "a", patient, nil).sees(t), startAll(t, both, "c", patient, nil).sees(t)
		b := startAll(t, both[1-stale:][:1], "b", patient, nil).ready(t)
		a.Claim("S", 1)
		for i := range m {
			until(t, "the claim is not in each server", func() bool { return m[i].HGet("dnp:s:{S}", "own") == "a" })
		}
		b.Claim("S", 2)
		until(t, "the later claim is never written", func() bool { return m[1-stale].HGet("dnp:s:{S}", "own") == "b" })
		want := cluster.Served{Node: "b", Epoch: 2, Alive: true}
		if got, err := c.find(t, "S"); got != want || err != nil {
			t.Errorf("c finds %+v, %v, want the later claim %+v", got, err, want)
		}
		answer := make(chan cluster.Served, 1)
		c.Try("S", cluster.Served{Node: "a", Epoch: 1, Alive: true}, func(s cluster.Served, _ error) { answer <- s })
		if got := <-answer; got != want {
			t.Errorf("c, which has seen the older claim, is answered %+v, want the later one without a permission: %+v", got, want)
		}
		a.Claim("S", 1)
		if got := <-a.replaced; got != "S b 2" {
			t.Errorf("a is told %q, want \"S b 2\", because one server knows it", got)
		}
	}
}

// TestMissing checks what an operator sees of a pair.
func TestMissing(t *testing.T) {
	servers := startServers(t)
	j := &journal{}
	a := startAll(t, urls(servers), "a", quick(j), func(a *Affinity) {
		for _, s := range a.servers {
			s.cfg.Timeout = patience // a dead server refuses connections at once
		}
	})
	missing := func(why string, want ...string) {
		t.Helper()
		until(t, fmt.Sprintf("%s: missing is not %q", why, want), func() bool { return slices.Equal(a.Missing(), want) })
	}
	says := func(words ...string) {
		t.Helper()
		until(t, fmt.Sprintf("the log does not say %q", words), func() bool {
			return slices.ContainsFunc(strings.Split(j.String(), "\n"), func(line string) bool {
				return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(line, w) })
			})
		})
	}
	missing("both are there")
	servers[0].stop()
	missing("the first is away", "redis/"+servers[0].addr())
	says("the other one does", "server="+servers[0].addr())
	servers[1].stop()
	missing("both are away", "redis")
	says("without affinity", "server="+servers[1].addr())
	servers[0].start()
	missing("the second is away", "redis/"+servers[1].addr())
	says("answers again", "server="+servers[0].addr())
	if s := a.Servers(); s[0].Err != nil || s[1].Err == nil || s[0].Addr != servers[0].addr() || s[1].Stats.Failures == 0 {
		t.Errorf("the servers are %+v", s)
	}
}

func TestServerCount(t *testing.T) {
	for _, n := range []int{0, 3} {
		if _, err := Open(Config{URLs: slices.Repeat([]string{"redis://a"}, n), Node: "a"}); err != errServers {
			t.Errorf("%d servers: %v", n, err)
		}
	}
}

func TestNewest(t *testing.T) {
	none := reply{}
	is := func(node string, epoch uint64, alive bool, trying string) reply {
		return reply{found: cluster.Served{Node: node, Epoch: epoch, Alive: alive, Trying: trying}}
	}
	away, busy := reply{err: cluster.ErrAffinityAway}, reply{err: cluster.ErrAffinityBusy}
	for _, c := range []struct {
		why       string
		got, with reply
		want      reply
	}{
		{"no server has a claim", none, none, none},
		{"one server is empty", is("a", 1, true, ""), none, is("a", 1, true, "")},
		{"one server is away", is("a", 1, true, "b"), away, is("a", 1, true, "b")},
		{"one server is away, the other one empty", none, away, none},
		{"both are away", away, away, away},
		{"the error says most that a server that answers has", away, busy, busy},
		{"one server missed the last claim", is("a", 1, true, ""), is("b", 2, false, ""), is("b", 2, false, "")},
		{"a claim of epoch 0 is newer than none", is("a", 0, false, ""), is("", 0, false, "b"), is("a", 0, false, "")},
		{"the lease is in one server", is("a", 1, false, ""), is("a", 1, true, ""), is("a", 1, true, "")},
		{"the lease is in the server with the older claim", is("a", 2, false, ""), is("a", 1, true, ""), is("a", 2, true, "")},
		{"the lease of another node does not count", is("a", 2, false, ""), is("b", 1, true, ""), is("a", 2, false, "")},
		{"a permission for an older claim does not count", is("a", 2, true, ""), is("b", 1, true, "c"), is("a", 2, true, "")},
		{"nor if the node is the same", is("a", 2, true, ""), is("a", 1, true, "c"), is("a", 2, true, "")},
		{"a permission of an empty server does not count", is("a", 2, true, ""), is("", 0, false, "c"), is("a", 2, true, "")},
		{"one server forgot the permission", is("a", 1, false, "c"), is("a", 1, false, ""), is("a", 1, false, "c")},
		{"two nodes have one permission each", is("a", 1, false, "c"), is("a", 1, false, "b"), is("a", 1, false, "b")},
		{"a session without a claim", is("", 0, false, "c"), none, is("", 0, false, "c")},
	} {
		for _, replies := range [][]reply{{c.got, c.with}, {c.with, c.got}} {
			if s, err := newest(replies); (reply{s, err}) != c.want {
				t.Errorf("%s: newest(%+v) = %+v, %v, want %+v", c.why, replies, s, err, c.want)
			}
		}
	}
}
