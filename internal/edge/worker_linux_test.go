package edge

import (
	"log/slog"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus/membus"
	"github.com/dnprelay/dnprelay/dnp/udp"
)

// TestTurnReadsBurst: what hundreds of clients answer while a worker sends to them is read in one turn.
func TestTurnReadsBurst(t *testing.T) {
	const burst = 256
	hub := membus.New(membus.Config{Schedule: func(time.Duration, func()) {}})
	e, err := New(Config{
		Node: "e", OpenSpace: "s", Bus: hub.Node("e"), Workers: 1, Listeners: []Listener{{Addr: netip.MustParseAddrPort("127.0.0.1:0")}},
		Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer e.closeSockets()
	peer, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(e.Addrs()[0]))
	if err != nil {
		t.Fatal(err)
	}
	defer peer.Close()
	w, batch, most := e.workers[0], make([]udp.Datagram, batchMax), uint64(0)
	in := func() uint64 { return w.ep.Stats().DatagramsIn }
	for range 20 { // the kernel may deliver a burst in pieces
		before := in()
		for range burst {
			if _, err := peer.Write([]byte("d")); err != nil {
				t.Fatal(err)
			}
		}
		for in() < before+burst {
			e.sockets[0].SetReadDeadline(time.Now().Add(10 * time.Second))
			n, err := e.sockets[0].ReadBatch(batch)
			if err != nil {
				t.Fatalf("%d of %d datagrams were read: %v", in()-before, burst, err)
			}
			turn := in()
			if _, err := w.receiveAll(time.Now(), e.sockets[0], batch, n); err != nil {
				t.Fatal(err)
			}
			most = max(most, in()-turn)
		}
		if most == burst {
			return
		}
	}
	t.Errorf("%d datagrams are the most that were read for one turn, want %d: the acknowledgements of clients wait for further turns, and commands are repeated meanwhile", most, burst)
}
