//go:build linux

package torture

import (
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// Bounds of what the balancer remembers of a flow.
const (
	seqsKept     = 64
	silenceLeast = 25 * time.Millisecond // shorter ones are not worth a line
	datagramMax  = 1 << 16
)

// A balancer is one UDP address for all edges. Every client has a flow with a socket
// of its own towards the edges, so that edges see one address of it.
type balancer struct {
	front *net.UDPConn
	edges []netip.AddrPort
	note  *history
	down  atomic.Uint64 // datagrams to clients
	done  sync.WaitGroup

	mu    sync.Mutex // of what datagrams, faults and players change
	rng   *rand.Rand
	flows map[netip.AddrPort]*flow
	names map[netip.AddrPort]string // of clients
	up    []bool                    // edges that flows may go to
	spray bool
	stray uint64 // answers that came from another edge than the flow's
}

// A flow is one client's.
type flow struct {
	client netip.AddrPort
	back   *net.UDPConn
	edge   int
	last   time.Time            // of the last datagram to the client
	sent   map[uint16]time.Time // reliable messages of the client that are not acknowledged
	seqs   []uint16             // of the last reliable commands to the client
}

func newBalancer(edges []netip.AddrPort, seed uint64, note *history) (*balancer, error) {
	front, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
	if err != nil {
		return nil, err
	}
	b := &balancer{
		front: front, edges: edges, note: note, rng: rand.New(rand.NewPCG(seed, 7)),
		flows: map[netip.AddrPort]*flow{}, names: map[netip.AddrPort]string{}, up: make([]bool, len(edges)),
	}
	for i := range b.up {
		b.up[i] = true
	}
	b.done.Go(b.forward)
	return b, nil
}

func (b *balancer) addr() netip.AddrPort { return b.front.LocalAddr().(*net.UDPAddr).AddrPort() }

func (b *balancer) close() {
	_ = b.front.Close() // fails only if it is closed
	b.mu.Lock()
	for _, f := range b.flows {
		_ = f.back.Close()
	}
	b.mu.Unlock()
	b.done.Wait()
}

// name says who has an address.
func (b *balancer) name(addr netip.AddrPort, who string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.names[addr] = who
}

// forget ends the flow of a client that is gone. If it was interrupted, the silence before
// counts; at the end of a run nobody speaks, and silences mean nothing.
func (b *balancer) forget(addr netip.AddrPort, interrupted bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if f := b.flows[addr]; f != nil {
		_ = f.back.Close() // fails only if it is closed
		if who := b.names[addr]; interrupted && who != "" && !f.last.IsZero() {
			b.note.add(Record{Kind: kindSilence, Who: who, D: time.Since(f.last).Microseconds()})
		}
		delete(b.flows, addr)
	}
	delete(b.names, addr)
}

// avoid keeps flows from an edge, or lets them come again. Those that it has stay.
func (b *balancer) avoid(edge int, on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.up[edge] = !on
}

// reroute moves all flows of an edge to others.
func (b *balancer) reroute(edge int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.up[edge] = false
	for _, f := range b.flows {
		if f.edge == edge {
			f.edge = b.any()
		}
	}
}

// setSpray lets each datagram go to any edge.
func (b *balancer) setSpray(on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spray = on
}

// any returns an edge that is up.
func (b *balancer) any() int {
	for {
		if i := b.rng.IntN(len(b.edges)); b.up[i] {
			return i
		}
	}
}

// most returns the edge that has most flows.
func (b *balancer) most() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	count := make([]int, len(b.edges))
	best := 0
	for _, f := range b.flows {
		if count[f.edge]++; count[f.edge] > count[best] {
			best = f.edge
		}
	}
	return best
}

// forward takes what clients send, until close.
func (b *balancer) forward() {
	buf := make([]byte, datagramMax)
	for {
		n, from, err := b.front.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
		if f, to := b.upwards(from, buf[:n]); f != nil {
			_, _ = f.back.WriteToUDPAddrPort(buf[:n], to) // what cannot be sent is lost, as on any path
		}
	}
}

// upwards returns the flow of a client and where its datagram goes.
func (b *balancer) upwards(from netip.AddrPort, p []byte) (*flow, netip.AddrPort) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f, ok := b.flows[from]
	if !ok {
		back, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:0")))
		if err != nil {
			return nil, netip.AddrPort{}
		}
		f = &flow{client: from, back: back, edge: b.any(), sent: map[uint16]time.Time{}}
		b.flows[from] = f
		b.done.Go(func() { b.answers(f) })
	}
	if seq, ok := number(p); ok && wire.Command(p[0]) == wire.CommandReliableMessage {
		if _, again := f.sent[seq]; !again {
			f.sent[seq] = time.Now()
		}
	}
	if b.spray {
		return f, b.edges[b.any()]
	}
	return f, b.edges[f.edge]
}

// answers takes what edges send to a client, until its flow ends.
func (b *balancer) answers(f *flow) {
	buf := make([]byte, datagramMax)
	for {
		n, from, err := f.back.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || !b.downwards(f, from, buf[:n]) {
			continue // the first: an edge is gone, and said so
		}
		_, _ = b.front.WriteToUDPAddrPort(buf[:n], f.client) // see forward
		b.down.Add(1)
	}
}

// downwards reports whether a datagram reaches the client, and notes what it means.
func (b *balancer) downwards(f *flow, from netip.AddrPort, p []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
	if !b.spray && from != b.edges[f.edge] {
		b.stray++
		return false
	}
	now, who := time.Now(), b.names[f.client]
	if silence := now.Sub(f.last); !f.last.IsZero() && silence >= silenceLeast && who != "" {
		b.note.add(Record{Kind: kindSilence, Who: who, D: silence.Microseconds()})
	}
	f.last = now
	seq, ok := number(p)
	if !ok || who == "" {
		return true
	}
	switch wire.Command(p[0]) {
	case wire.CommandReliableAck:
		if at, ok := f.sent[seq]; ok {
			delete(f.sent, seq)
			b.note.add(Record{Kind: kindAck, Who: who, D: now.Sub(at).Microseconds()})
		}
	case wire.CommandReliableMessage, wire.CommandReliableLinkState, wire.CommandReliableMessageLong:
		f.repeated(b.note, who, seq)
	}
	return true
}

// repeated notes a command that the client was sent before.
func (f *flow) repeated(note *history, who string, seq uint16) {
	for _, s := range f.seqs {
		if s == seq {
			note.add(Record{Kind: kindExtra, Who: who, N: uint64(seq)})
			return
		}
	}
	if len(f.seqs) == seqsKept {
		f.seqs = append(f.seqs[:0], f.seqs[1:]...)
	}
	f.seqs = append(f.seqs, seq)
}

// number returns the number of a reliable command or acknowledgement.
func number(p []byte) (uint16, bool) {
	if len(p) < 3 {
		return 0, false
	}
	switch wire.Command(p[0]) {
	case wire.CommandReliableMessage, wire.CommandReliableLinkState, wire.CommandReliableAck, wire.CommandReliableMessageLong:
		return uint16(p[1]) | uint16(p[2])<<8, true
	}
	return 0, false
}
