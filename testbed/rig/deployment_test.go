//go:build linux

package rig

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/nats-io/nats.go"
)

// TestCurrent: a stream has all copies if it has a leader, and as many followers as it should,
// all up to date.
func TestCurrent(t *testing.T) {
	good, late, off := &nats.PeerInfo{Current: true}, &nats.PeerInfo{}, &nats.PeerInfo{Current: true, Offline: true}
	for _, c := range []struct {
		why  string
		c    *nats.ClusterInfo
		want bool
	}{
		{"whole", &nats.ClusterInfo{Leader: "nats1", Replicas: []*nats.PeerInfo{good, good}}, true},
		{"nothing is known", nil, false},
		{"no leader", &nats.ClusterInfo{Replicas: []*nats.PeerInfo{good, good}}, false},
		{"a copy is missing", &nats.ClusterInfo{Leader: "nats1", Replicas: []*nats.PeerInfo{good}}, false},
		{"a copy is late", &nats.ClusterInfo{Leader: "nats1", Replicas: []*nats.PeerInfo{good, late}}, false},
		{"a server is away", &nats.ClusterInfo{Leader: "nats1", Replicas: []*nats.PeerInfo{off, good}}, false},
	} {
		if got := current(c.c, 3); got != c.want {
			t.Errorf("%s: %v", c.why, got)
		}
	}
}

// TestNATSConf: each server of several has the configuration for operators; a server alone has
// its mappings only.
func TestNATSConf(t *testing.T) {
	dir := t.TempDir()
	conf := filepath.Join(dir, "conf", "nats-server.conf")
	for servers, want := range map[int]string{
		1: "server_name: $NATS_NAME\nlisten: $NATS_LISTEN\nmax_payload: 2MB\njetstream { store_dir: $NATS_STORE }\ninclude '../conf/mappings.conf'\n",
		3: "include '../conf/nats-server.conf'\n",
	} {
		run := filepath.Join(dir, "run")
		if err := os.MkdirAll(run, 0o755); err != nil {
			t.Fatal(err)
		}
		d := &Deployment{Network: NewLoopback(), cfg: &Config{NATS: servers, NATSConf: conf, Dir: run, Bin: "bin"}}
		if err := d.makeNodes(); err != nil {
			t.Fatal(err)
		}
		file := d.NATS[servers-1].Args[1]
		if got, err := os.ReadFile(file); err != nil || string(got) != want {
			t.Errorf("%s: got %q, %v; want %q", file, got, err, want)
		}
	}
}
