package carrier_test

import (
	"net/netip"
	"testing"

	"github.com/dnprelay/dnprelay/internal/edge/carrier"
)

// TestNewcomersOfOneNetwork has one machine begin 10,000 connections that it never goes on with: others get in.
func TestNewcomersOfOneNetwork(t *testing.T) {
	var n carrier.Newcomers
	evil, good := netip.MustParseAddr("2001:db8:66::1"), netip.MustParseAddr("2001:db8:1::1")
	held := 0
	for i := range 10_000 {
		if n.Enter(evil) {
			held++
		}
		evil = evil.Next() // another address of its network
		if crowded := n.Crowded(); crowded != (i+1 >= 128) {
			t.Fatalf("after %d connections, addresses have to be proven: %v", i+1, crowded)
		}
	}
	if held != 512 {
		t.Errorf("one network holds %d connections, want 512", held)
	}
	for i := range 64 {
		if !n.Enter(good) {
			t.Fatalf("connection %d of another network is refused", i)
		}
	}
	if n.Enter(good) {
		t.Error("a network has more than 64 connections although there are many")
	}
	for range held {
		n.Leave(netip.MustParseAddr("2001:db8:66::2"))
	}
	if n.Crowded() || !n.Enter(good) {
		t.Error("connections that ended still count")
	}
}

// TestNewcomersOfManyNetworks has many machines begin connections: there is a bound.
func TestNewcomersOfManyNetworks(t *testing.T) {
	var n carrier.Newcomers
	from, held := netip.MustParseAddr("10.0.0.0"), 0
	for range 10_000 {
		if n.Enter(from) {
			held++
		}
		from = from.Next()
	}
	if held != 4096 {
		t.Errorf("%d connections entered, want 4096", held)
	}
}
