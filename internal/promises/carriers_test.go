package promises

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/internal/edge"
	"github.com/dnprelay/dnprelay/internal/edge/carrier"
	"github.com/dnprelay/dnprelay/internal/edge/certificate"
	"github.com/dnprelay/dnprelay/internal/edge/websocket"
	"github.com/dnprelay/dnprelay/internal/edge/webtransport"
)

// carriers are the ways of clients to an edge.
var carriers = []string{"udp", "ws", "wt"}

// A door is an edge that has all carriers.
type door struct {
	addrs map[string]string // HOST:PORT by carrier
	hash  string            // of the certificate
}

// open runs another edge, for clients that join the space.
func (w *world) open(space string) *door {
	w.Helper()
	bus := w.bus()
	w.Cleanup(bus.Close)
	e, err := edge.New(edge.Config{
		Node: "edge-" + space, Listeners: []edge.Listener{{Addr: netip.MustParseAddrPort("127.0.0.1:0")}}, Workers: 1, OpenSpace: space, Bus: bus,
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

// by returns the URL of a carrier behind a path.
func (d *door) by(t testing.TB, carrier string, c cond) string {
	t.Helper()
	if carrier == "ws" {
		return "ws://" + stream(t, d.addrs[carrier], c)
	}
	return carrier + strings.TrimPrefix(proxy(t, "udp://"+d.addrs[carrier], c).url, "udp")
}

// config has the certificate of the edge.
func (d *door) config(url string) (cfg client.Config) {
	if strings.HasPrefix(url, "wt") {
		cfg.CertificateHashes = []string{d.hash}
	}
	return cfg
}

// stream is proxy for TCP, whose end is an address: what is lost comes after a retransmission, and what is behind it, too.
func stream(t testing.TB, to string, c cond) string {
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
			end := context.AfterFunc(ctx, func() { down.Close(); up.Close() })
			rng := rand.New(rand.NewPCG(*seed, 3))
			back := rand.New(rand.NewPCG(*seed, 4))
			var both sync.WaitGroup
			both.Go(func() { pipe(up, down, c, rng) })
			both.Go(func() { pipe(down, up, c, back) })
			running.Go(func() { both.Wait(); end(); down.Close(); up.Close() })
		}
	})
	t.Cleanup(func() { l.Close(); stop(); running.Wait() })
	return l.Addr().String()
}

// pipe carries bytes in one direction, in order.
func pipe(to, from net.Conn, c cond, rng *rand.Rand) {
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
