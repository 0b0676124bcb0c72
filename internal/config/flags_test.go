package config

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestGossip(t *testing.T) {
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		gossip Gossip
		want   []string // start of each problem
	}{
		"default":    {Gossip{GossipBind: "127.0.0.1:7946"}, nil},
		"localhost":  {Gossip{GossipBind: "localhost:0"}, nil},
		"everywhere": {Gossip{GossipBind: ":7946", GossipKeyFile: key}, nil},
		"a pod": {Gossip{GossipBind: "[::]:7946", GossipKeyFile: key, GossipAdvertise: "fd00::1", GossipJoin: []string{
			"relay-gossip", "relay-gossip.ns.svc:7946", "10.0.0.1", "10.0.0.1:1", "::1", "[::1]:1",
		}}, nil},
		"no key":          {Gossip{GossipBind: ":7946"}, []string{"--gossip-key-file: needed"}},
		"no key, address": {Gossip{GossipBind: "10.0.0.1:7946"}, []string{"--gossip-key-file: needed"}},
		"all wrong": {
			Gossip{
				GossipBind: "relay:x", GossipAdvertise: "relay", GossipJoin: []string{"", ":1", "relay:0", "a:b:c"},
				GossipKeyFile: filepath.Join(t.TempDir(), "none"),
			},
			[]string{
				"--gossip-bind: want [ADDRESS]:PORT", "--gossip-advertise: want ADDRESS", `--gossip-join: want HOST or HOST:PORT, with IPv6 addresses as [ADDRESS]:PORT, got ""`,
				"--gossip-join: ", "--gossip-join: ", "--gossip-join: ", "--gossip-key-file: open ",
			},
		},
		"nowhere":    {Gossip{GossipBind: "127.0.0.1:0", GossipAdvertise: "0.0.0.0:1"}, []string{"--gossip-advertise: want"}},
		"very many":  {Gossip{GossipBind: "127.0.0.1:0", GossipJoin: slices.Repeat([]string{"a"}, 65)}, []string{"--gossip-join: want at most 64, got 65"}},
		"both ports": {Gossip{GossipBind: "127.0.0.1:0", GossipAdvertise: "[fd00::1]:5"}, nil},
	} {
		got := c.gossip.Problems()
		if !slices.EqualFunc(got, c.want, strings.HasPrefix) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestGossipFlags(t *testing.T) {
	t.Setenv("DNP_GOSSIP_JOIN", "a,b:1")
	t.Setenv("DNP_GOSSIP_BIND", "127.0.0.1:9")
	var commands struct {
		Serve struct{ Gossip } `cmd:""`
	}
	p, err := newParser(Program{Name: "x", Commands: &commands})
	if err != nil {
		t.Fatal(err)
	}
	if _, problems, err := p.parse([]string{"serve", "--gossip-bind", "127.0.0.1:10"}); err != nil || len(problems) > 0 {
		t.Fatal(problems, err)
	}
	if g := commands.Serve.Gossip; g.GossipBind != "127.0.0.1:10" || !slices.Equal(g.GossipJoin, []string{"a", "b:1"}) {
		t.Errorf("got %+v", g)
	}
}
func TestForward(t *testing.T) {
	for name, c := range map[string]struct {
		forward Forward
		want    []string // start of each problem
	}{
		"default":   {Forward{ForwardListen: ":7947"}, nil},
		"a pod":     {Forward{ForwardListen: "[::]:7947", ForwardAdvertise: "fd00::1"}, nil},
		"both":      {Forward{ForwardListen: "127.0.0.1:0", ForwardAdvertise: "192.0.2.1:1"}, nil},
		"all wrong": {Forward{ForwardListen: "7947", ForwardAdvertise: "0.0.0.0"}, []string{"--forward-listen: want", "--forward-advertise: want"}},
	} {
		if got := c.forward.Problems(); !slices.EqualFunc(got, c.want, strings.HasPrefix) {
			t.Errorf("%s: got %q, want %q", name, got, c.want)
		}
	}
}

func TestRedis(t *testing.T) {
	const want = "--redis: want redis://"
	for redis, problem := range map[string]string{
		"":                              "",
		"redis://a":                     "",
		"rediss://u:secret@a:6380/3":    "",
		"redis://a:1,rediss://b:1":      "",
		"redis://a:1,redis://a:2":       "",
		"redis://:x%2Cy@a,redis://b":    "",
		"a:6379":                        want,
		"http://a":                      want,
		"redis://a/db":                  want,
		"redis://a/1/2":                 want,
		"redis://a/":                    "",
		"redis://":                      want,
		"redis://a,":                    want,
		"redis://a, redis://b":          want,
		"redis://a,b:6379":              want,
		"redis://:secret,x@a":           want,
		"redis://a,redis://a:6379/1":    "--redis: want two different servers",
		"redis://a,redis://b,redis:c":   want,
		"redis://a,redis://b,redis://c": "--redis: want at most two servers",
	} {
		got := (&Sessions{SessionDurability: "log", Redis: redis}).Problems()
		if problem == "" && len(got) > 0 || problem != "" && (len(got) != 1 || !strings.HasPrefix(got[0], problem)) || strings.Contains(strings.Join(got, ""), "secret") {
			t.Errorf("%q: got %q, want %q", redis, got, problem)
		}
	}
	got := (&Sessions{SessionDurability: "none", Redis: "redis://a,redis://b"}).Problems()
	if len(got) != 1 || got[0] != "--redis: needs --session-durability log" {
		t.Errorf("got %q", got)
	}
}

func TestRedisFlags(t *testing.T) {
	var commands struct {
		Serve struct{ Sessions } `cmd:""`
	}
	p, err := newParser(Program{Name: "x", Commands: &commands})
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("DNP_REDIS", "redis://a,redis://b")
	for _, args := range [][]string{{}, {"--redis", "redis://a,redis://b"}} {
		if _, problems, err := p.parse(append([]string{"serve", "--session-durability", "log"}, args...)); err != nil || len(problems) > 0 {
			t.Fatal(problems, err)
		}
		if got := commands.Serve.RedisURLs(); !slices.Equal(got, []string{"redis://a", "redis://b"}) {
			t.Errorf("%q with DNP_REDIS gives %q", args, got)
		}
	}
}
