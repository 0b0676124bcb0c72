package systest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/natsembed"
	"github.com/dnprelay/dnprelay/internal/natstest"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"
)

// natsConf is the configuration of one of three servers.
const natsConf = natsFolder + "/nats-server.conf"

// natsServerEnv makes this test binary a NATS server with the configuration that it names, so
// that a test has servers that it can kill.
const natsServerEnv = "DNPRELAY_TEST_NATS_SERVER"

// natsServer serves until the test that started it is gone, and returns the exit code.
func natsServer(conf string) int {
	opts, err := server.ProcessConfigFile(conf)
	if err == nil {
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

// startNATSServers starts three servers with the configuration for users, and returns them
// and their addresses.
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
		cmd.Env = append(os.Environ(), natsServerEnv+"="+natsConf)
		cmd.Env = append(cmd.Env, natsEnv(fmt.Sprint("n", i+1), ports[i], ports[3+i], routes, natstest.Dir(t))...)
		stdin, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		servers = append(servers, startCommand(t, cmd))
		t.Cleanup(func() { _ = stdin.Close() }) // which ends the server; a killed one has closed it
		urls = append(urls, "nats://"+ports[i])
	}
	return servers, urls
}

// natsEnv returns the variables of the configuration for users.
func natsEnv(name, listen, route string, routes []string, store string) []string {
	return []string{"NATS_NAME=" + name, "NATS_LISTEN=" + listen, "NATS_ROUTE=" + route,
		"NATS_ROUTES=[" + strings.Join(routes, ",") + "]", "NATS_STORE=" + store, "NATS_LOG_COPY=dnprelay-log-" + strings.TrimPrefix(name, "n")}
}

// parsing guards the environment of this process, from which the parser of nats-server takes the
// variables of a configuration: tests that run at once need different ones.
var parsing sync.Mutex

// parseNATS parses a configuration of nats-server with these variables.
func parseNATS(t *testing.T, conf string, env []string) *server.Options {
	t.Helper()
	parsing.Lock()
	defer parsing.Unlock()
	for _, pair := range env {
		name, value, _ := strings.Cut(pair, "=")
		if err := os.Setenv(name, value); err != nil {
			t.Fatal(err)
		}
		defer os.Unsetenv(name)
	}
	opts, err := server.ProcessConfigFile(conf)
	if err != nil {
		t.Fatal(err)
	}
	return opts
}

// startNATS starts a NATS server as relay dev does, on a free port. It ends with the test.
func startNATS(t testing.TB, cfg natsembed.Config) *natsembed.Server {
	t.Helper()
	cfg.Listen = "127.0.0.1:0"
	if cfg.Mappings == nil {
		cfg.Mappings = subject.Names{}.Mappings(64)
	}
	if cfg.Folder == "" {
		cfg.Folder = natstest.Dir(t)
	}
	s, err := natsembed.Start(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	return s
}

// runServer starts a NATS server with these options. It ends with the test.
func runServer(t *testing.T, opts *server.Options) *server.Server {
	t.Helper()
	s, err := server.NewServer(opts)
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(patience) {
		t.Fatal("the server is not ready")
	}
	return s
}

// freePorts returns addresses on loopback that were free a moment ago.
func freePorts(t *testing.T, n int) (addrs []string) {
	t.Helper()
	for _, port := range natstest.FreePorts(t, n) {
		addrs = append(addrs, fmt.Sprint("127.0.0.1:", port))
	}
	return addrs
}

// TestNATSConfiguration loads the configuration for users. Publishes and requests must arrive at the shard that
// relays expect.
func TestNATSConfiguration(t *testing.T) {
	t.Parallel()
	opts := parseNATS(t, natsConf, natsEnv("n1", "127.0.0.1:4222", "127.0.0.1:6222", []string{"nats://127.0.0.1:6222"}, filepath.Join(t.TempDir(), "store")))
	if opts.ServerName != "n1" || !opts.JetStream || opts.MaxPayload < 1<<20+1<<10 || len(opts.Routes) != 1 || opts.Cluster.Port != 6222 {
		t.Errorf("the configuration has name %q, JetStream %v, payload %d, %d routes", opts.ServerName, opts.JetStream, opts.MaxPayload, len(opts.Routes))
	}
	opts.Port, opts.Cluster, opts.Routes, opts.NoSigs, opts.NoLog = server.RANDOM_PORT, server.ClusterOpts{}, nil, true, true
	s := runServer(t, opts)
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

// TestNATSOverTLS has a server that requires TLS, a client certificate and an NKey. A node with
// all three reaches it; a node that lacks one does not.
func TestNATSOverTLS(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true,
		KeyUsage:    x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, data []byte) string {
		file := filepath.Join(dir, name)
		if kind != "" {
			data = pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: data})
		}
		if err := os.WriteFile(file, data, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	cert, keyFile := write("cert.pem", "CERTIFICATE", der), write("key.pem", "PRIVATE KEY", secret)
	user, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	seed, _ := user.Seed()
	public, _ := user.PublicKey()
	nkey := write("user.nk", "", append(seed, '\n'))

	own, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(own)
	s := runServer(t, &server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, JetStream: true, StoreDir: natstest.Dir(t),
		Nkeys: []*server.NkeyUser{{Nkey: public}}, TLS: true, TLSVerify: true, TLSTimeout: 5, AuthTimeout: 10,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool},
	})
	url := "tls://127.0.0.1:" + s.ClientURL()[strings.LastIndexByte(s.ClientURL(), ':')+1:]
	edge := func(flags ...string) *process {
		return start(t, "edge", append([]string{"serve", "--nats-url", url, "--http", "", "--listen", "udp://127.0.0.1:0", "--start-timeout", "1s"}, flags...)...)
	}
	edge("--nats-ca", cert, "--nats-cert", cert, "--nats-key", keyFile, "--nats-nkey", nkey).says("bus reached")
	for what, flags := range map[string][]string{
		"the authority":     {"--nats-cert", cert, "--nats-key", keyFile, "--nats-nkey", nkey},
		"the certificate":   {"--nats-ca", cert, "--nats-nkey", nkey},
		"the NKey":          {"--nats-ca", cert, "--nats-cert", cert, "--nats-key", keyFile},
		"everything but CA": {"--nats-ca", cert},
	} {
		p := edge(flags...)
		select {
		case <-p.ended:
		case <-time.After(patience):
			t.Fatalf("without %s the node does not end", what)
		}
		if code := p.cmd.ProcessState.ExitCode(); code != 1 || strings.Contains(p.output.String(), "bus reached") || strings.Contains(p.output.String(), string(seed)) {
			t.Errorf("without %s: exit code %d\n%s", what, code, p.output)
		}
	}
}

// TestWrongCredentials starts nodes that the NATS server rejects. Each reports that in one line
// and ends at once, not after the time for which it waits for a server. (With --start-timeout 0,
// which is for pods, it waits and reports at /readyz what is missing.)
func TestWrongCredentials(t *testing.T) {
	t.Parallel()
	s := runServer(t, &server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, Username: "dnprelay", Password: "right", NoSigs: true, NoLog: true})
	addr := strings.TrimPrefix(s.ClientURL(), "nats://")
	member, err := nats.Connect("nats://dnprelay:right@" + addr)
	if err != nil {
		t.Fatal(err)
	}
	defer member.Close()
	for _, url := range []string{"nats://dnprelay:wrong@" + addr, "nats://" + addr} {
		for _, p := range []*process{
			start(t, "relay", "serve", "--nats-url", url, "--http", "", "--start-timeout", "1h"),
			start(t, "edge", "serve", "--nats-url", url, "--http", "", "--listen", "udp://127.0.0.1:0", "--start-timeout", "1h"),
		} {
			p.ends(1, "bad NATS credentials", addr)
			if n := strings.Count(p.output.String(), "\n"); n != 2 || !strings.Contains(p.output.String(), "msg=starting") {
				t.Errorf("%d lines, want one after the line that the node starts:\n%s", n, p.output)
			}
			if strings.Contains(p.output.String(), "wrong@") || strings.Contains(p.output.String(), ":wrong") {
				t.Errorf("the password is in the output:\n%s", p.output)
			}
		}
	}
	if err := member.Flush(); err != nil {
		t.Errorf("a client with the right password: %v", err)
	}
}
