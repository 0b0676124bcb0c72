// Package certificate has the TLS certificates of an edge's listeners: files that are read again when they change,
// and one that a development edge makes for itself.
package certificate

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/internal/turn"
)

// watchPause is how long it takes at most until a changed file counts.
const watchPause = 10 * time.Second

// Files is a certificate in two files, which something renews.
type Files struct {
	cert, key string
	log       *slog.Logger
	now       atomic.Pointer[pair]
}

type pair struct {
	certPEM, keyPEM []byte
	cert            tls.Certificate
}

// Open reads a certificate and its key in PEM. The error says what is wrong with the files.
func Open(cert, key string, log *slog.Logger) (*Files, error) {
	f := &Files{cert: cert, key: key, log: log}
	p, err := f.read()
	if err != nil {
		return nil, err
	}
	f.now.Store(p)
	return f, nil
}

func (f *Files) read() (*pair, error) {
	certPEM, err := os.ReadFile(f.cert)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	keyPEM, err := os.ReadFile(f.key)
	if err != nil {
		return nil, fmt.Errorf("certificate: %w", err)
	}
	if old := f.now.Load(); old != nil && bytes.Equal(old.certPEM, certPEM) && bytes.Equal(old.keyPEM, keyPEM) {
		return old, nil
	}
	cert, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("certificate: %s and %s: %w", f.cert, f.key, err)
	}
	return &pair{certPEM, keyPEM, cert}, nil
}

// Get is the GetCertificate of a tls.Config.
func (f *Files) Get(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &f.now.Load().cert, nil }

// Watch reads the files again until ctx ends. Files that cannot be read, as while both are being replaced, leave the
// earlier certificate in place.
func (f *Files) Watch(ctx context.Context) {
	failed := false
	turn.Every(ctx, watchPause, func() {
		p, err := f.read()
		switch {
		case err != nil && !failed:
			f.log.Warn("keeping the earlier certificate", "err", err)
		case err == nil && p != f.now.Load():
			f.now.Store(p)
			f.log.Info("the certificate changed", "file", f.cert, "expires", p.cert.Leaf.NotAfter)
		}
		failed = err != nil
	})
}

// ownLife is how long a certificate lasts that Own makes. Browsers take a hash only of one that lasts less than 14 days.
const ownLife = 10 * 24 * time.Hour

// Own returns a new self-signed certificate for this machine, and its SHA-256 hash in hex, with which a browser can be
// told to trust it.
func Own(now time.Time) (cert tls.Certificate, hash string, err error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	if err != nil {
		return cert, "", fmt.Errorf("certificate: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: "dnprelay, for development"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(ownLife), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		DNSNames:    []string{"localhost"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	der, err := x509.CreateCertificate(crand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return cert, "", fmt.Errorf("certificate: %w", err)
	}
	sum := sha256.Sum256(der)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: template}, hex.EncodeToString(sum[:]), nil
}
