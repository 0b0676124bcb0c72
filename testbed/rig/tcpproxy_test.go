//go:build linux

package rig

import (
	"bytes"
	"errors"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience ends a test that would wait for ever.
const patience = 30 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// echoTCP serves until the test ends.
func echoTCP(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(c, c); _ = c.Close() }()
		}
	}()
	t.Cleanup(func() { _ = l.Close(); <-ended })
	return l.Addr().String()
}

// TestTCPProxy carries data both ways, holds it back, and resets.
func TestTCPProxy(t *testing.T) {
	p, err := NewTCPProxy(&Host{}, "127.0.0.1:0", echoTCP(t))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	c, err := net.Dial("tcp", p.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	data := bytes.Repeat([]byte("0123456789"), 50000)
	go func() { _, _ = c.Write(data) }()
	got := make([]byte, len(data))
	if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, data) {
		t.Fatalf("%d bytes come back changed, or not at all: %v", len(data), err)
	}
	p.Stall(true)
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatalf("a stalled connection: %v", err)
	}
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, _ := c.Read(got); n > 0 {
		t.Fatalf("%d bytes pass a stall", n)
	}
	p.Stall(false)
	_ = c.SetReadDeadline(time.Now().Add(patience))
	if n, err := c.Read(got); err != nil || string(got[:n]) != "x" {
		t.Fatalf("after the stall comes %q, %v", got[:n], err)
	}
	p.ResetAll()
	if _, err := c.Read(got); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after a reset: %v", err)
	}
}
