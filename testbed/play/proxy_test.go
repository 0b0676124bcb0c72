//go:build linux

package play

import (
	"flag"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"go.uber.org/goleak"
)

var seed = flag.Uint64("seed", 1, "seed of random choices")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestFates: what a path does is decided by the seed alone, and as often as asked for.
func TestFates(t *testing.T) {
	im := Impairment{Loss: 0.3, Duplicate: 0.1, Delay: 10 * time.Millisecond, Jitter: 5 * time.Millisecond}
	a, b := rand.New(rand.NewPCG(*seed, 1)), rand.New(rand.NewPCG(*seed, 1))
	const n = 20000
	lost, twice := 0, 0
	for range n {
		fates, same := im.fates(a), im.fates(b)
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

// TestImpairedPath: two clients talk to an echo, each gets its own answers, and each
// datagram comes as often as the dice say.
func TestImpairedPath(t *testing.T) {
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
	p, err := NewBalancer(BalancerConfig{
		Listen: local, Edges: []netip.AddrPort{server.LocalAddr().(*net.UDPAddr).AddrPort()}, Path: Impairment{Duplicate: 1, Delay: time.Millisecond}, Seed: *seed,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for _, name := range []string{"a", "b"} {
		c, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(p.Addr()))
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
