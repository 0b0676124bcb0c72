package promises

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/internal/edge"
	"github.com/dnprelay/dnprelay/internal/edge/carrier"
	"github.com/dnprelay/dnprelay/internal/edge/certificate"
	"github.com/dnprelay/dnprelay/internal/edge/websocket"
	"github.com/dnprelay/dnprelay/internal/edge/webtransport"
)

// edges counts them.
var edges atomic.Int64

// A door is an edge that has all carriers.
type door struct {
	addrs map[string]string // HOST:PORT by carrier
	hash  string            // of the certificate
}

// open runs an edge, for clients that join the space.
func (w *world) open(space string) *door {
	w.Helper()
	bus := w.bus()
	w.Cleanup(bus.Close)
	e, err := edge.New(edge.Config{
		Node: fmt.Sprint("edge-", edges.Add(1)), Listeners: []edge.Listener{{Addr: netip.MustParseAddrPort("127.0.0.1:0")}}, Workers: 1, OpenSpace: space, Bus: bus,
		Carriers: &edge.Carriers{Secret: []byte("secret of the test")}, Log: slog.New(slog.DiscardHandler),
	})
	w.must(err)
	w.Cleanup(w.run(e.Run))
	d := &door{}
	own, hash, err := certificate.Own(time.Now())
	w.must(err)
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	w.must(err)
	ws := websocket.New(websocket.Config{Hub: e.Hub(), Socket: tcp, Info: func() carrier.Info { return carrier.Info{} }, Log: slog.New(slog.DiscardHandler)})
	udp, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	w.must(err)
	wt, err := webtransport.New(webtransport.Config{Hub: e.Hub(), Socket: udp, TLS: &tls.Config{Certificates: []tls.Certificate{own}}, Log: slog.New(slog.DiscardHandler)})
	w.must(err)
	w.Cleanup(w.run(ws.Run))
	w.Cleanup(w.run(wt.Run))
	w.Cleanup(e.Hub().Close)
	d.hash = hash
	d.addrs = map[string]string{"udp": e.Addrs()[0].String(), "ws": tcp.Addr().String(), "wt": udp.LocalAddr().String()}
	return d
}

// by returns a path to the edge.
func (d *door) by(t testing.TB, y way) *path {
	t.Helper()
	p := &path{rng: rand.New(rand.NewPCG(*seed, 1))}
	addr := ""
	if y.carrier == "ws" {
		addr = p.stream(t, d.addrs[y.carrier], y.cond)
	} else {
		addr = p.datagrams(t, d.addrs[y.carrier], y.cond)
	}
	p.url = y.carrier + "://" + addr
	if y.carrier == "wt" {
		p.cfg.CertificateHashes = []string{d.hash}
	}
	return p
}

// A path is a proxy between clients and an edge.
type path struct {
	url string        // for clients
	cfg client.Config // has the certificate of the edge
	cut atomic.Bool

	mu   sync.Mutex // datagrams go both ways
	rng  *rand.Rand
	live []net.Conn // of TCP
}

// end ends all connections over the path.
func (p *path) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.live {
		c.Close()
	}
	p.live = nil
}

// datagrams carries those of any number of clients to an address until the test ends.
func (p *path) datagrams(t testing.TB, to string, c cond) (addr string) {
	t.Helper()
	l, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() { p.serve(l, to, c, &running) })
	t.Cleanup(func() { l.Close(); running.Wait() })
	return l.LocalAddr().String()
}

func (p *path) serve(l *net.UDPConn, edge string, c cond, running *sync.WaitGroup) {
	ups := map[string]net.Conn{}
	defer func() {
		for _, up := range ups {
			up.Close()
		}
	}()
	b := make([]byte, 65536)
	for {
		n, from, err := l.ReadFromUDP(b)
		if err != nil {
			return
		}
		up := ups[from.String()]
		if up == nil {
			if up, err = net.Dial("udp", edge); err != nil {
				return
			}
			ups[from.String()] = up
			running.Go(func() {
				b := make([]byte, 65536)
				for {
					n, err := up.Read(b)
					switch {
					case errors.Is(err, net.ErrClosed):
						return
					case err == nil: // an error says that no edge listens there at the moment
						p.carry(b[:n], c, func(q []byte) { _, _ = l.WriteToUDP(q, from) })
					}
				}
			})
		}
		p.carry(b[:n], c, func(q []byte) { _, _ = up.Write(q) })
	}
}

// carry brings a datagram to its end, or not, or twice.
func (p *path) carry(b []byte, c cond, end func([]byte)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for n, again := 1, false; n > 0; n, again = n-1, true {
		if p.cut.Load() || p.rng.Float64() < c.loss {
			continue
		}
		if p.rng.Float64() < c.double {
			n++
		}
		d := c.base
		if again && p.rng.IntN(4) == 0 {
			d += c.late
		}
		if c.jitter > 0 {
			d += time.Duration(p.rng.Int64N(int64(2*c.jitter))) - c.jitter
		}
		q := append([]byte(nil), b...)
		if d <= 0 {
			end(q)
		} else {
			time.AfterFunc(d, func() { end(q) })
		}
	}
}

// stream carries TCP, as datagrams does: what is lost comes after a retransmission, and what is behind it, too.
func (p *path) stream(t testing.TB, to string, c cond) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	ctx, stop := context.WithCancel(context.Background())
	running.Go(func() {
		for {
			down, err := l.Accept()
			if err != nil {
				return
			}
			up, err := net.Dial("tcp", to)
			if err != nil {
				down.Close()
				continue
			}
			p.mu.Lock()
			p.live = append(p.live, down)
			p.mu.Unlock()
			end := context.AfterFunc(ctx, func() { down.Close(); up.Close() })
			rng := rand.New(rand.NewPCG(*seed, 3))
			back := rand.New(rand.NewPCG(*seed, 4))
			var both sync.WaitGroup
			both.Go(func() { p.pipe(up, down, c, rng) })
			both.Go(func() { p.pipe(down, up, c, back) })
			running.Go(func() { both.Wait(); end(); down.Close(); up.Close() })
		}
	})
	t.Cleanup(func() { l.Close(); stop(); running.Wait() })
	return l.Addr().String()
}

// pipe carries bytes in one direction, in order.
func (p *path) pipe(to, from net.Conn, c cond, rng *rand.Rand) {
	type segment struct {
		b   []byte
		due time.Time
	}
	segments := make(chan segment, 4096)
	go func() {
		defer close(segments)
		for {
			b := make([]byte, 16<<10)
			n, err := from.Read(b)
			if n > 0 {
				d := c.base
				if c.jitter > 0 {
					d += time.Duration(rng.Int64N(int64(2*c.jitter))) - c.jitter
				}
				for wait := 200*time.Millisecond + 2*c.base; rng.Float64() < c.loss; wait *= 2 {
					d += wait
				}
				segments <- segment{b[:n], time.Now().Add(d)}
			}
			if err != nil {
				return
			}
		}
	}()
	for s := range segments {
		time.Sleep(time.Until(s.due))
		if p.cut.Load() {
			continue
		}
		if _, err := to.Write(s.b); err != nil {
			from.Close()
			break
		}
	}
	for range segments { // until the reader ends
	}
	if t, ok := to.(interface{ CloseWrite() error }); ok {
		if err := t.CloseWrite(); errors.Is(err, io.ErrClosedPipe) {
			return
		}
	}
}
