//go:build linux

package play

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/testbed/history"
)

// patience is how long a datagram on loopback may take.
const patience = 10 * time.Second

func socket(t *testing.T) *net.UDPConn {
	t.Helper()
	c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func addr(c *net.UDPConn) netip.AddrPort { return c.LocalAddr().(*net.UDPAddr).AddrPort() }

// read returns the next datagram and where it came from.
func read(t *testing.T, c *net.UDPConn) (string, netip.AddrPort) {
	t.Helper()
	buf := make([]byte, 100)
	if err := c.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	n, from, err := c.ReadFromUDPAddrPort(buf)
	if err != nil {
		t.Fatal(err)
	}
	return string(buf[:n]), from
}

func write(t *testing.T, c *net.UDPConn, to netip.AddrPort, text string) {
	t.Helper()
	if _, err := c.WriteToUDPAddrPort([]byte(text), to); err != nil {
		t.Fatal(err)
	}
}

// TestBalancer: a flow keeps its edge and its address, only its edge's answers come
// through, and it moves when it is told to.
func TestBalancer(t *testing.T) {
	edges := []*net.UDPConn{socket(t), socket(t)}
	b, err := NewBalancer(BalancerConfig{Listen: netip.MustParseAddrPort("127.0.0.1:0"), Edges: []netip.AddrPort{addr(edges[0]), addr(edges[1])}, Seed: 1, Note: func(history.Record) {}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	client := socket(t)
	b.Name(addr(client), "c")
	b.Avoid(1, true)
	write(t, client, b.Addr(), "one")
	text, flow := read(t, edges[0])
	if text != "one" {
		t.Fatalf("got %q", text)
	}
	write(t, edges[1], flow, "of another edge")
	write(t, edges[0], flow, "of its edge")
	if text, from := read(t, client); text != "of its edge" || from != b.Addr() {
		t.Fatalf("got %q from %v", text, from)
	}
	b.Avoid(1, false)
	b.Reroute(0, true)
	write(t, client, b.Addr(), "two")
	if text, again := read(t, edges[1]); text != "two" || again != flow {
		t.Fatalf("got %q from %v, want the flow's address %v", text, again, flow)
	}
	write(t, edges[0], flow, "too late")
	write(t, edges[1], flow, "in time")
	if text, _ := read(t, client); text != "in time" {
		t.Fatalf("got %q", text)
	}
	b.Avoid(0, false)
	b.Reroute(1, false)
	write(t, edges[1], flow, "until the client speaks")
	if text, _ := read(t, client); text != "until the client speaks" {
		t.Fatalf("got %q", text)
	}
	write(t, client, b.Addr(), "three")
	if text, again := read(t, edges[0]); text != "three" || again != flow {
		t.Fatalf("got %q from %v, want the flow's address %v", text, again, flow)
	}
	write(t, edges[1], flow, "too late")
	write(t, edges[0], flow, "in time")
	if text, _ := read(t, client); text != "in time" {
		t.Fatalf("got %q", text)
	}
	b.SetSpray(true)
	b.Avoid(1, false)
	write(t, edges[1], flow, "of any edge")
	if text, _ := read(t, client); text != "of any edge" {
		t.Fatalf("got %q", text)
	}
}
