package systest

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// natsConf is the configuration that other people's servers are given.
const natsConf = "../../deploy/nats/nats-server.conf"

// natsServerEnv makes this test binary a NATS server with the configuration that it
// names, so that a test has servers that it can kill.
const natsServerEnv = "DNPRELAY_TEST_NATS_SERVER"

// natsServer serves until the test that started it is gone, and returns the exit code.
func natsServer(conf string) int {
	opts, err := server.ProcessConfigFile(conf)
	if err == nil {
		opts.NoSigs = true
		var s *server.Server
		if s, err = server.NewServer(opts); err == nil {
			s.ConfigureLogger()
			s.Start()
			_, _ = io.Copy(io.Discard, os.Stdin) // ends with the test
			return 0
		}
	}
	fmt.Fprintln(os.Stderr, err)
	return 1
}

// startNATSServers starts three servers with the configuration of deploy/nats, and
// returns them and their addresses.
func startNATSServers(t *testing.T) (servers []*process, urls []string) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	ports := freePorts(t, 6)
	var routes []string
	for _, port := range ports[3:] {
		routes = append(routes, "nats://"+port)
	}
	for i := range 3 {
		cmd := exec.Command(self)
		cmd.Env = append(natsEnv(fmt.Sprint("n", i+1), ports[i], ports[3+i], routes, t.TempDir()), natsServerEnv+"="+natsConf)
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		servers = append(servers, startCommand(t, cmd))
		t.Cleanup(func() { _ = stdin.Close() }) // which ends the server; killed ones have closed it
		urls = append(urls, "nats://"+ports[i])
	}
	return servers, urls
}

func natsEnv(name, listen, route string, routes []string, store string) []string {
	return append(os.Environ(), "NATS_NAME="+name, "NATS_LISTEN="+listen, "NATS_ROUTE="+route,
		"NATS_ROUTES=["+strings.Join(routes, ",")+"]", "NATS_STORE="+store)
}

// freePorts returns addresses on loopback that nobody listened to a moment ago.
func freePorts(t *testing.T, n int) (addrs []string) {
	t.Helper()
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close() // all at the end, so that no port comes twice
		addrs = append(addrs, l.Addr().String())
	}
	return addrs
}

// TestNATSConfiguration loads deploy/nats and wants publishes and questions to arrive
// at the shard that relays expect.
func TestNATSConfiguration(t *testing.T) {
	for _, pair := range natsEnv("n1", "127.0.0.1:4222", "127.0.0.1:6222", []string{"nats://127.0.0.1:6222"}, filepath.Join(t.TempDir(), "store"))[len(os.Environ()):] {
		name, value, _ := strings.Cut(pair, "=")
		t.Setenv(name, value)
	}
	opts, err := server.ProcessConfigFile(natsConf)
	if err != nil {
		t.Fatal(err)
	}
	if opts.ServerName != "n1" || !opts.JetStream || opts.MaxPayload < 1<<20+1<<10 || len(opts.Routes) != 1 || opts.Cluster.Port != 6222 {
		t.Errorf("the configuration says name %q, JetStream %v, payload %d, %d routes", opts.ServerName, opts.JetStream, opts.MaxPayload, len(opts.Routes))
	}
	opts.Port, opts.Cluster, opts.Routes, opts.NoSigs, opts.NoLog = server.RANDOM_PORT, server.ClusterOpts{}, nil, true, true
	s, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(patience) {
		t.Fatal("the server is not ready")
	}
	nc, err := nats.Connect(s.ClientURL())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	got := make(chan string, 1)
	if _, err := nc.Subscribe("dnp.v1.shard.>", func(m *nats.Msg) { got <- m.Subject }); err != nil {
		t.Fatal(err)
	}
	var subjects subject.Names
	for i := range 200 {
		space := fmt.Sprintf("Space_%d-%x", i, i*i)
		shard := cluster.Shard(space, 64)
		for subject, want := range map[string]string{
			subjects.Publish(space, ""):        subjects.ShardPublish(shard, space, ""),
			subjects.Publish(space, "a.key.x"): subjects.ShardPublish(shard, space, "a.key.x"),
			subjects.Get(space, ""):            subjects.ShardGet(shard, space, ""),
			subjects.Get(space, "key"):         subjects.ShardGet(shard, space, "key"),
		} {
			if err := nc.Publish(subject, nil); err != nil {
				t.Fatal(err)
			}
			select {
			case s := <-got:
				if s != want {
					t.Fatalf("%s arrives as %s, want %s", subject, s, want)
				}
			case <-time.After(patience):
				t.Fatalf("%s does not arrive", subject)
			}
		}
	}
}
