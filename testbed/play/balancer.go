//go:build linux

// Package play has the players of a deployment under test: clients modelled on the deployed
// client libraries, a game server made with package publisher, and a balancer between
// clients and edges that can also impair the path. They record their acts and observations
// in a history, which package history judges.
package play

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/testbed/history"
	"github.com/dnprelay/dnprelay/testbed/rig"
)

// Bounds of what the balancer remembers of a flow and reads at a time.
const (
	seqsKept    = 64
	datagramMax = 1 << 16
)

// An Impairment is what a path does to datagrams.
type Impairment struct {
	Loss, Duplicate float64       // probability for each datagram, 0 to 1
	Delay, Jitter   time.Duration // of each datagram, and the most that is added; datagrams may overtake each other
}

// fates returns the delay of each copy of a datagram; none if it is lost.
func (im Impairment) fates(rng *rand.Rand) (delays []time.Duration) {
	if rng.Float64() < im.Loss {
		return nil
	}
	delay := func() time.Duration {
		if im.Jitter <= 0 {
			return im.Delay
		}
		return im.Delay + time.Duration(rng.Int64N(int64(im.Jitter)))
	}
	delays = append(delays, delay())
	if rng.Float64() < im.Duplicate {
		delays = append(delays, delay())
	}
	return delays
}

// A BalancerConfig says between which addresses a balancer forwards.
type BalancerConfig struct {
	Listen netip.AddrPort // for clients; port 0 means any
	Edges  []netip.AddrPort
	Host   *rig.Host  // on which it opens sockets; nil means this process
	Path   Impairment // of both directions
	Web    bool       // flows go to the edges by WebSocket, to rig.WebPort
	Seed   uint64
	Note   func(history.Record) // of clients that have a name; nil if none has
}

// A Balancer is one UDP address for all edges. It pins the flow of a client to an edge, as
// kube-proxy does: datagrams go there, and only answers from there come back. Every flow
// has a socket of its own, so that edges see one address of a client.
type Balancer struct {
	cfg   BalancerConfig
	front *net.UDPConn
	down  atomic.Uint64 // datagrams to clients
	done  sync.WaitGroup

	mu    sync.Mutex // datagrams, faults and players change what follows
	rng   *rand.Rand
	flows map[netip.AddrPort]*flow
	names map[netip.AddrPort]string // parties, by address of the client
	up    []bool                    // edges to which flows may go
	spray bool
}

// A flow is that of one client.
type flow struct {
	client  netip.AddrPort
	back    *net.UDPConn // nil if carried is not
	carried *carried
	edge    int
	next    int                    // one more than the edge of the client's next datagram; 0 if that is edge
	last    time.Time              // of the last datagram to the client
	sent    map[wire.Seq]time.Time // reliable messages of the client that are not acknowledged
	seqs    []wire.Seq             // of the last reliable commands to the client
}

// NewBalancer opens a balancer.
func NewBalancer(cfg BalancerConfig) (*Balancer, error) {
	b := &Balancer{
		cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 7)),
		flows: map[netip.AddrPort]*flow{}, names: map[netip.AddrPort]string{}, up: make([]bool, len(cfg.Edges)),
	}
	for i := range b.up {
		b.up[i] = true
	}
	err := cfg.Host.In(func() (err error) {
		b.front, err = net.ListenUDP("udp", net.UDPAddrFromAddrPort(cfg.Listen))
		return err
	})
	if err != nil {
		return nil, err
	}
	b.done.Go(b.forward)
	return b, nil
}

// Addr returns the address for clients.
func (b *Balancer) Addr() netip.AddrPort { return b.front.LocalAddr().(*net.UDPAddr).AddrPort() }

// Close ends all flows.
func (b *Balancer) Close() {
	_ = b.front.Close() // fails only if it is closed
	b.mu.Lock()
	for _, f := range b.flows {
		f.close()
	}
	b.mu.Unlock()
	b.done.Wait()
}

// Name says which party has an address.
func (b *Balancer) Name(addr netip.AddrPort, who string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.names[addr] = who
}

// Forget ends the flow of a client. If the client was interrupted, the silence before
// counts, and how long its messages had no acknowledgement; at the end of a run no edge sends,
// and silences mean nothing.
func (b *Balancer) Forget(addr netip.AddrPort, interrupted bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if f := b.flows[addr]; f != nil {
		f.close()
		if who := b.names[addr]; interrupted && who != "" && !f.last.IsZero() {
			b.cfg.Note(history.Record{Kind: history.Silence, Who: who, D: time.Since(f.last).Microseconds()})
			for _, at := range f.sent {
				b.cfg.Note(history.Record{Kind: history.Waited, Who: who, D: time.Since(at).Microseconds()})
			}
		}
		delete(b.flows, addr)
	}
	delete(b.names, addr)
}

// close ends the way of a flow to edges.
func (f *flow) close() {
	if f.carried != nil {
		f.carried.end()
		return
	}
	_ = f.back.Close() // fails only if it is closed
}

// Avoid keeps new flows from an edge, or admits them again. Flows of the edge stay.
func (b *Balancer) Avoid(edge int, on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.up[edge] = !on
}

// Reroute moves all flows of an edge to others: at once, which cuts the answers of the edge
// off, or with the next datagram of each client.
func (b *Balancer) Reroute(edge int, atOnce bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.up[edge] = false
	for _, f := range b.flows {
		if f.edge != edge || f.carried != nil {
			continue
		}
		f.next = b.any() + 1
		if atOnce {
			b.move(f)
		}
	}
}

// move moves a flow to its next edge, if it has one.
func (b *Balancer) move(f *flow) {
	if f.next == 0 {
		return
	}
	f.edge, f.next = f.next-1, 0
	if who := b.names[f.client]; who != "" {
		b.cfg.Note(history.Record{Kind: history.Moved, Who: who})
	}
}

// NameAt returns the party whose flow edges see at a port; empty for none.
func (b *Balancer) NameAt(port uint16) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.flows {
		if f.carried == nil && f.back.LocalAddr().(*net.UDPAddr).AddrPort().Port() == port {
			return b.names[f.client]
		}
	}
	return ""
}

// SetSpray sends each datagram to any edge, or ends that.
func (b *Balancer) SetSpray(on bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spray = on
}

// Down returns how many datagrams were forwarded to clients.
func (b *Balancer) Down() uint64 { return b.down.Load() }

func (b *Balancer) any() int {
	for {
		if i := b.rng.IntN(len(b.cfg.Edges)); b.up[i] {
			return i
		}
	}
}

// Busiest returns the edge that has most flows.
func (b *Balancer) Busiest() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	count := make([]int, len(b.cfg.Edges))
	best := 0
	for _, f := range b.flows {
		if count[f.edge]++; count[f.edge] > count[best] {
			best = f.edge
		}
	}
	return best
}

// forward forwards the datagrams of clients until Close.
func (b *Balancer) forward() {
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
		switch f, to := b.upwards(from, buf[:n]); {
		case f == nil:
		case f.carried != nil:
			f.carried.send(buf[:n])
		default:
			b.pass(buf[:n], func(p []byte) { _, _ = f.back.WriteToUDPAddrPort(p, to) }) // a datagram that cannot be sent is lost, as on any path
		}
	}
}

// upwards returns the flow of a client and the edge to which its datagram goes.
func (b *Balancer) upwards(from netip.AddrPort, p []byte) (*flow, netip.AddrPort) {
	b.mu.Lock()
	defer b.mu.Unlock()
	f, ok := b.flows[from]
	if !ok {
		f = &flow{client: from, edge: b.any(), sent: map[wire.Seq]time.Time{}}
		if !b.begin(f) {
			return nil, netip.AddrPort{}
		}
		b.flows[from] = f
	}
	if cmd, seq, ok := wire.Numbered(p); ok && cmd == wire.CommandReliableMessage {
		if _, again := f.sent[seq]; !again {
			f.sent[seq] = time.Now()
		}
	}
	b.move(f)
	if b.spray {
		return f, b.cfg.Edges[b.any()]
	}
	return f, b.cfg.Edges[f.edge]
}

// begin opens the way of a flow to edges.
func (b *Balancer) begin(f *flow) (ok bool) {
	if b.cfg.Web {
		b.carry(f)
		return true
	}
	err := b.cfg.Host.In(func() (err error) {
		f.back, err = net.ListenUDP("udp4", nil)
		return err
	})
	if err == nil {
		b.done.Go(func() { b.answers(f) })
	}
	return err == nil
}

// answers forwards the datagrams of edges to a client until its flow ends.
func (b *Balancer) answers(f *flow) {
	buf := make([]byte, datagramMax)
	for {
		n, from, err := f.back.ReadFromUDPAddrPort(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || !b.downwards(f, from, buf[:n]) {
			continue // a read error: the port of the edge is closed
		}
		b.pass(buf[:n], func(p []byte) { _, _ = b.front.WriteToUDPAddrPort(p, f.client) })
		b.down.Add(1)
	}
}

// downwards reports whether a datagram may reach the client, and records its meaning.
func (b *Balancer) downwards(f *flow, from netip.AddrPort, p []byte) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
	if !b.spray && from != b.cfg.Edges[f.edge] {
		return false
	}
	b.noteDown(f, p)
	return true
}

// noteDown records what a datagram to a client means.
func (b *Balancer) noteDown(f *flow, p []byte) {
	now, who := time.Now(), b.names[f.client]
	if silence := now.Sub(f.last); !f.last.IsZero() && silence >= history.SilenceLeast && who != "" {
		b.cfg.Note(history.Record{Kind: history.Silence, Who: who, D: silence.Microseconds()})
	}
	f.last = now
	cmd, seq, ok := wire.Numbered(p)
	if !ok || who == "" {
		return
	}
	switch cmd {
	case wire.CommandReliableAck:
		if at, ok := f.sent[seq]; ok {
			delete(f.sent, seq)
			b.cfg.Note(history.Record{Kind: history.Ack, Who: who, D: now.Sub(at).Microseconds()})
		}
	case wire.CommandReliableMessage, wire.CommandReliableLinkState, wire.CommandReliableMessageLong:
		f.repeated(b.cfg.Note, who, seq)
	}
}

// pass sends a datagram on as often and as late as the path decides.
func (b *Balancer) pass(p []byte, send func([]byte)) {
	if b.cfg.Path == (Impairment{}) {
		send(p)
		return
	}
	b.mu.Lock()
	delays := b.cfg.Path.fates(b.rng)
	b.mu.Unlock()
	for _, delay := range delays {
		if delay <= 0 {
			send(p)
			continue
		}
		copied := bytes.Clone(p)
		time.AfterFunc(delay, func() { send(copied) })
	}
}

// repeated records a command that the client was sent before.
func (f *flow) repeated(note func(history.Record), who string, seq wire.Seq) {
	if slices.Contains(f.seqs, seq) {
		note(history.Record{Kind: history.Extra, Who: who, N: uint64(seq)})
		return
	}
	if len(f.seqs) == seqsKept {
		f.seqs = append(f.seqs[:0], f.seqs[1:]...)
	}
	f.seqs = append(f.seqs, seq)
}
