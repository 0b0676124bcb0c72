//go:build linux

package clustertest

import (
	"bytes"
	"errors"
	"flag"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

var seed = flag.Uint64("seed", 1, "seed of random choices")

// patience ends a test that would wait for ever.
const patience = 30 * time.Second

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestFates: what a path does is decided by the seed alone, and as often as asked for.
func TestFates(t *testing.T) {
	im := Impairment{Loss: 0.3, Duplicate: 0.1, Delay: 10 * time.Millisecond, Jitter: 5 * time.Millisecond}
	a, b := newDice(*seed, 1), newDice(*seed, 1)
	const n = 20000
	lost, twice := 0, 0
	for range n {
		fates, same := a.fates(im), b.fates(im)
		if len(fates) != len(same) || len(fates) > 0 && fates[0] != same[0] {
			t.Fatal("the same seed decides otherwise")
		}
		switch len(fates) {
		case 0:
			lost++
		case 2:
			twice++
		}
		for _, d := range fates {
			if d < im.Delay || d >= im.Delay+im.Jitter {
				t.Fatalf("a delay of %v", d)
			}
		}
	}
	if lost < n*29/100 || lost > n*31/100 || twice < n*6/100 || twice > n*8/100 {
		t.Errorf("of %d datagrams %d were lost and %d came twice, want 30 %% and 7 %%", n, lost, twice)
	}
}

// TestUDPProxy: two clients talk to an echo, each gets its own answers, and each
// datagram comes as often as the dice say.
func TestUDPProxy(t *testing.T) {
	local := netip.MustParseAddrPort("127.0.0.1:0")
	server, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(local))
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	go func() {
		buf := make([]byte, 100)
		for {
			n, from, err := server.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			_, _ = server.WriteToUDPAddrPort(buf[:n], from)
		}
	}()
	p, err := newUDPProxy(nil, local, server.LocalAddr().(*net.UDPAddr).AddrPort(), Impairment{Duplicate: 1, Delay: time.Millisecond}, newDice(*seed, 1))
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	for _, name := range []string{"a", "b"} {
		c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(p.addr()))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Write([]byte(name)); err != nil {
			t.Fatal(err)
		}
		_ = c.SetReadDeadline(time.Now().Add(patience))
		buf := make([]byte, 100)
		for range 4 { // doubled on the way there, and each on the way back
			if n, err := c.Read(buf); err != nil || string(buf[:n]) != name {
				t.Fatalf("client %s gets %q, %v", name, buf[:n], err)
			}
		}
	}
}

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
	p, err := newTCPProxy(nil, "127.0.0.1:0", echoTCP(t), time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
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
	p.stall(true)
	if _, err := c.Write([]byte("x")); err != nil {
		t.Fatalf("a stalled connection: %v", err)
	}
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, _ := c.Read(got); n > 0 {
		t.Fatalf("%d bytes pass a stall", n)
	}
	p.stall(false)
	_ = c.SetReadDeadline(time.Now().Add(patience))
	if n, err := c.Read(got); err != nil || string(got[:n]) != "x" {
		t.Fatalf("after the stall comes %q, %v", got[:n], err)
	}
	p.resetAll()
	if _, err := c.Read(got); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("after a reset: %v", err)
	}
}
