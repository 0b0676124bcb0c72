package redisaffinity

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/dnprelay/dnprelay/cluster"
)

// TestTimeToLive checks that a claim that is not renewed lives for a minute, and an attempt for a second.
func TestTimeToLive(t *testing.T) {
	m := miniredis.RunT(t)
	slow := func(c *Config) { c.Renew, c.TryTTL = time.Hour, 0 }
	a, b := start(t, "redis://"+m.Addr(), "a", slow).ready(t), start(t, "redis://"+m.Addr(), "b", slow).ready(t)
	a.Claim("S", 7)
	until(t, "the claim is never written", func() bool { return m.Exists("dnp:s:{S}") })
	if got := m.TTL("dnp:s:{S}"); got != time.Minute {
		t.Errorf("a claim lives for %v, want 60 s", got)
	}
	if m.HGet("dnp:s:{S}", "own") != "a" || m.HGet("dnp:s:{S}", "ep") != "7" || m.HGet("dnp:s:{S}", "v") != "1" {
		t.Errorf("the record is %v", m.Dump())
	}
	done := make(chan cluster.Served, 1)
	b.Try("S", cluster.Served{Node: "a", Epoch: 7}, func(s cluster.Served, _ error) { done <- s })
	if got := <-done; got.Trying != "b" {
		t.Errorf("%+v", got)
	}
	if got := m.TTL("dnp:a:{S}"); got != time.Second {
		t.Errorf("an attempt lives for %v, want 1 s", got)
	}
	if got := m.TTL(a.servers[0].index("a", cluster.Shard("S", buckets))); got != 2*time.Minute {
		t.Errorf("the index lives for %v, want 120 s", got)
	}
	m.FastForward(2 * time.Second)
	if s, _ := b.find(t, "S"); s.Trying != "" || s.Node != "a" {
		t.Errorf("the attempt is not over: %+v", s)
	}
}

// TestRenewal checks that a node renews its claims.
func TestRenewal(t *testing.T) {
	m := miniredis.RunT(t)
	a := start(t, "redis://"+m.Addr(), "a", nil).ready(t)
	a.Claim("S", 1)
	until(t, "the claim is never written", func() bool { return m.Exists("dnp:s:{S}") })
	m.FastForward(30 * time.Second)
	until(t, "the claim is never renewed", func() bool { return m.TTL("dnp:s:{S}") == time.Minute })
	a.kill()
	m.FastForward(time.Minute)
	if m.Exists("dnp:s:{S}") {
		t.Error("the claim of a dead node lives on")
	}
}

// TestLies checks that the answers are errors or valid claims, whatever Redis has.
func TestLies(t *testing.T) {
	m := miniredis.RunT(t)
	a := start(t, "redis://"+m.Addr(), "a", nil).ready(t)
	for name, lie := range map[string]func(){
		"TYPE":   func() { m.Set("dnp:s:{TYPE}", "text") },
		"LIST":   func() { m.Push("dnp:s:{LIST}", "x") },
		"EPOCH":  func() { m.HSet("dnp:s:{EPOCH}", "ep", "-1", "own", "x") },
		"WORDS":  func() { m.HSet("dnp:s:{WORDS}", "ep", "many", "own", "x") },
		"HALF":   func() { m.HSet("dnp:s:{HALF}", "own", "x") },
		"LONG":   func() { m.HSet("dnp:s:{LONG}", "ep", "1", "own", string(make([]byte, 1000))) },
		"TRYING": func() { m.Push("dnp:a:{TRYING}", "x") },
	} {
		lie()
		if s, err := a.find(t, name); err != cluster.ErrAffinityAnswer {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
	if a.Err() != nil || a.Stats().Odd == 0 {
		t.Errorf("the error is %v with counters %+v, but Redis answers", a.Err(), a.Stats())
	}
	a.Claim("TYPE", 1) // of a wrong type in Redis
	a.Claim("WORDS", 1)
	until(t, "a claim over nonsense is never written", func() bool { s, _ := a.find(t, "WORDS"); return s.Node == "a" })
	m.HSet("dnp:s:{LATER}", "ep", "999999", "own", "z")
	a.Claim("LATER", 1)
	if got := <-a.replaced; got != "LATER z 999999" {
		t.Errorf("OnReplaced is told %q, want the claim that Redis has", got)
	}
}
