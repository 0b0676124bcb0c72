package redisaffinity

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/gomodule/redigo/redis"
)

func TestParseURL(t *testing.T) {
	for url, want := range map[string]target{
		"redis://":                         {addr: "localhost:6379"},
		"redis://redis":                    {addr: "redis:6379"},
		"redis://[::1]:7000/":              {addr: "[::1]:7000"},
		"redis://:p%2Cw@10.0.0.1:6380":     {addr: "10.0.0.1:6380", password: "p,w"},
		"rediss://edge:pw@redis.example/3": {addr: "redis.example:6379", user: "edge", password: "pw", db: 3, tls: true},
	} {
		if got, err := parseURL(url); err != nil || got != want {
			t.Errorf("%s is %+v, %v; want %+v", url, got, err, want)
		}
	}
	for _, url := range []string{
		"", "redis:6379", "http://redis", "unix:///run/redis.sock", "redis://redis:port", "redis://redis/db", "redis://redis/-1", "redis://redis/1/2",
		"redis://redis?db=1", "redis://redis#1", "redis-sentinel://redis",
	} {
		if got, err := parseURL(url); err != errURL {
			t.Errorf("%s is %+v, %v; want an error", url, got, err)
		}
	}
}

// TestOldConnections restarts a server. The connections that ended with it cost one failure, not one each.
func TestOldConnections(t *testing.T) {
	m := miniredis.RunT(t)
	s := newStore(&Config{Node: "a", Timeout: patience}, target{addr: m.Addr()})
	defer s.close()
	ping := func() error { return s.trip(t.Context(), []command{{"PING", nil}})[0].err }
	var open []redis.Conn
	for range askers + 2 {
		c := s.pool.Get()
		if _, err := c.Do("PING"); err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	for _, c := range open {
		c.Close()
	}
	m.Close()
	if err := m.Restart(); err != nil {
		t.Fatal(err)
	}
	if ping() == nil {
		t.Error("a connection survived the restart, so this test shows nothing")
	}
	for range 2 * (askers + 2) {
		if err := ping(); err != nil {
			t.Errorf("after the first failure, a connection to the server before its restart is used: %v", err)
		}
	}
}

// TestAnswersInOrder has commands that fail among others, and then one that the server does not answer.
func TestAnswersInOrder(t *testing.T) {
	m := miniredis.RunT(t)
	s := newStore(&Config{Node: "a", Timeout: patience}, target{addr: m.Addr()})
	defer s.close()
	got := s.trip(t.Context(), []command{{"SET", []any{"k", "v"}}, {"NONSENSE", nil}, {"GET", []any{"k"}}, {"GET", []any{"none"}}, {"ZCARD", []any{"k"}}, {"EXISTS", []any{"k"}}})
	for i, want := range []struct{ value, err string }{{"OK", ""}, {"<nil>", "ERR"}, {"v", ""}, {"<nil>", ""}, {"<nil>", "WRONGTYPE"}, {"1", ""}} {
		value, isText := text(got[i].value)
		if !isText {
			value = fmt.Sprint(got[i].value)
		}
		if e, _ := got[i].err.(redis.Error); value != want.value || (want.err == "") != (got[i].err == nil) || !strings.HasPrefix(string(e), want.err) {
			t.Errorf("answer %d is %q, %v; want %+v", i, value, got[i].err, want)
		}
	}
	short := newStore(&Config{Node: "a", Timeout: 50 * time.Millisecond}, target{addr: m.Addr()})
	defer short.close()
	begin := time.Now()
	for _, r := range short.trip(t.Context(), []command{{"PING", nil}, {"BLPOP", []any{"never", 0}}, {"PING", nil}})[1:] {
		if r.err == nil {
			t.Error("a command that the server does not answer has no error")
		}
	}
	if took := time.Since(begin); took > patience/2 {
		t.Errorf("a trip with a timeout of 50 ms took %v", took)
	}
}
