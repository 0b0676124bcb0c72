package certificate

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// write puts a certificate and its key into two files.
func write(t *testing.T, certFile, keyFile string, cert tls.Certificate) {
	t.Helper()
	key, err := x509.MarshalECPrivateKey(cert.PrivateKey.(*ecdsa.PrivateKey))
	if err != nil {
		t.Fatal(err)
	}
	for file, block := range map[string]*pem.Block{
		certFile: {Type: "CERTIFICATE", Bytes: cert.Certificate[0]}, keyFile: {Type: "EC PRIVATE KEY", Bytes: key},
	} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// lines holds what is logged.
type lines struct {
	mu   sync.Mutex // the goroutine that watches writes what the test reads
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func own(t *testing.T) tls.Certificate {
	t.Helper()
	cert, _, err := Own(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	return cert
}

// wantCert fails if f has another certificate than want.
func wantCert(t *testing.T, f *Files, want tls.Certificate, why string) {
	t.Helper()
	got, err := f.Get(nil)
	if err != nil || !bytes.Equal(got.Certificate[0], want.Certificate[0]) {
		t.Errorf("the listener has another certificate, want: %s (%v)", why, err)
	}
}

// TestWatch renews a certificate as tools do it: one file after the other.
func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log lines
		dir := t.TempDir()
		certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
		first, second := own(t), own(t)
		write(t, certFile, keyFile, first)
		f, err := Open(certFile, keyFile, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		wantCert(t, f, first, "that of the files")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			f.Watch(ctx)
		}()
		pass := func() {
			time.Sleep(watchPause) // in the time of the bubble
			synctest.Wait()
		}
		pass()
		wantCert(t, f, first, "the same, because the files did not change")
		if log.String() != "" {
			t.Errorf("a certificate that did not change is logged: %s", log.String())
		}

		write(t, certFile, filepath.Join(dir, "later.pem"), second)
		pass()
		pass()
		wantCert(t, f, first, "the earlier one, because the key does not match yet")
		if n := strings.Count(log.String(), "keeping the earlier certificate"); n != 1 {
			t.Errorf("%d warnings, want one: %s", n, log.String())
		}

		if err := os.Rename(filepath.Join(dir, "later.pem"), keyFile); err != nil {
			t.Fatal(err)
		}
		pass()
		wantCert(t, f, second, "the new one")
		if !strings.Contains(log.String(), "the certificate changed") {
			t.Errorf("the new certificate is not logged: %s", log.String())
		}

		if err := os.Remove(certFile); err != nil {
			t.Fatal(err)
		}
		pass()
		wantCert(t, f, second, "the earlier one, because the file is gone")
		if n := strings.Count(log.String(), "keeping the earlier certificate"); n != 2 {
			t.Errorf("%d warnings, want another one: %s", n, log.String())
		}
		cancel()
		<-done
	})
}

func TestOpenTellsTheFile(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	if _, err := Open(certFile, keyFile, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), certFile) {
		t.Errorf("the error for a missing file is %v, want one that names it", err)
	}
	write(t, certFile, keyFile, own(t))
	if err := os.WriteFile(keyFile, []byte("no key"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(certFile, keyFile, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), keyFile) {
		t.Errorf("the error for a broken key is %v, want one that names it", err)
	}
}

// TestOwn checks what browsers demand of a certificate that a page trusts by its hash: ECDSA, and less than 14 days.
func TestOwn(t *testing.T) {
	now := time.Date(2030, 2, 3, 4, 5, 6, 0, time.UTC)
	cert, hash, err := Own(now)
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(cert.Certificate[0])
	if hash != hex.EncodeToString(sum[:]) {
		t.Errorf("the hash is %s, want that of the certificate", hash)
	}
	x, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil {
		t.Fatal(err)
	}
	if x.PublicKeyAlgorithm != x509.ECDSA || x.NotAfter.Sub(x.NotBefore) >= 14*24*time.Hour {
		t.Errorf("browsers refuse %v for %v", x.PublicKeyAlgorithm, x.NotAfter.Sub(x.NotBefore))
	}
	if now.Before(x.NotBefore) || !now.Add(9*24*time.Hour).Before(x.NotAfter) {
		t.Errorf("valid from %v to %v, want from now on, for more than a week", x.NotBefore, x.NotAfter)
	}
	for _, name := range []string{"localhost", "127.0.0.1", "::1"} {
		if err := x.VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}
}
