package systest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"
)

// TestNATSOverTLS has a server that wants TLS, a certificate of the client and an NKey.
// A node with all three reaches it, one that lacks any does not.
func TestNATSOverTLS(t *testing.T) {
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
	s, err := server.NewServer(&server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, NoSigs: true, NoLog: true, JetStream: true, StoreDir: t.TempDir(),
		Nkeys: []*server.NkeyUser{{Nkey: public}}, TLS: true, TLSVerify: true, TLSTimeout: 5, AuthTimeout: 10,
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: pool},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	t.Cleanup(func() { s.Shutdown(); s.WaitForShutdown() })
	if !s.ReadyForConnections(patience) {
		t.Fatal("the server is not ready")
	}
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
			t.Fatalf("without %s the node goes on", what)
		}
		if code := p.cmd.ProcessState.ExitCode(); code != 1 || strings.Contains(p.output.String(), "bus reached") || strings.Contains(p.output.String(), string(seed)) {
			t.Errorf("without %s: exit code %d\n%s", what, code, p.output)
		}
	}
}
