package compose

import (
	"context"
	crand "crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/dnprelay/dnprelay/dnp/udp"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/edge"
	"github.com/dnprelay/dnprelay/internal/edge/carrier"
	"github.com/dnprelay/dnprelay/internal/edge/certificate"
	"github.com/dnprelay/dnprelay/internal/edge/lludp"
	"github.com/dnprelay/dnprelay/internal/edge/variant"
	"github.com/dnprelay/dnprelay/internal/edge/websocket"
	"github.com/dnprelay/dnprelay/internal/edge/webtransport"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"golang.org/x/sync/errgroup"
)

// carriers returns what an edge needs for clients that do not speak UDP, nil if there is no listener for them. secret makes
// their tokens, and is that of the session log if sessions outlive the edge.
func carriers(f webFlags, durable *edge.Durable) *edge.Carriers {
	if f.WebSocket == "" && f.WebTransport == "" && f.Viewers.LLUDP == "" && f.Variant == "" {
		return nil
	}
	secret := []byte(crand.Text())
	if durable != nil {
		secret = durable.Secret
	}
	return &edge.Carriers{Secret: secret, ConnsMax: f.WebSocketConnections}
}

// webFlags are the flags that say what listeners there are.
type webFlags struct {
	*config.Web
	*config.Variants
	Viewers *config.LLUDP
	Edge    *config.Edge
	Dev     bool // of relay dev
	Shared  bool // other edges have the ports of Edge and of WebSocket, too
}

// scheme returns the scheme of URLs of the WebSocket listener: http or ws, with an s if it speaks TLS.
func (f *webFlags) scheme(plain string) string {
	if f.TLSCert != "" {
		return plain + "s"
	}
	return plain
}

// webListeners are the listeners for clients that do not speak UDP.
type webListeners struct {
	flags        webFlags
	edge         *edge.Edge
	key          []byte                        // a secret of this edge that survives its restart, nil if there is none
	files        *certificate.Files            // nil without --tls-cert
	own          *tls.Certificate              // of a development edge
	hashes       []string                      // of own
	websocket    *websocket.Server             // nil if there is none
	webtransport *webtransport.Server          // nil if there is none
	lludp        *lludp.Server                 // nil if there is none
	variant      *variant.Adapter              // nil without any listener
	variantUDP   *variant.Server               // nil if there is none
	running      []func(context.Context) error // what serves the listeners
	page         fs.FS                         // at / of websocket; nil for none
	log          *slog.Logger
}

// openWeb opens the ports. A WebTransport listener without a certificate makes one.
func openWeb(flags webFlags, e *edge.Edge, key []byte, page fs.FS, log *slog.Logger) (w *webListeners, err error) {
	w = &webListeners{flags: flags, edge: e, key: key, page: page, log: log}
	if e.Hub() == nil {
		return w, nil
	}
	w.variant = variant.New(variant.Config{Hub: e.Hub()})
	for _, open := range []func() error{w.openCertificate, w.openWebTransport, w.openLLUDP, w.openWebSocket, w.openVariants} {
		if err := open(); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func (w *webListeners) openCertificate() (err error) {
	switch {
	case w.flags.TLSCert != "":
		w.files, err = certificate.Open(w.flags.TLSCert, w.flags.TLSKey, w.log)
	case w.flags.WebTransport != "":
		var cert tls.Certificate
		var hash string
		cert, hash, err = certificate.Own(time.Now())
		w.own, w.hashes = &cert, []string{hash}
	}
	return err
}

// tls returns how to encrypt, nil for not at all.
func (w *webListeners) tls(least uint16) *tls.Config {
	switch {
	case w.files != nil:
		return &tls.Config{MinVersion: least, GetCertificate: w.files.Get}
	case w.own != nil && least == tls.VersionTLS13:
		return &tls.Config{MinVersion: least, Certificates: []tls.Certificate{*w.own}}
	}
	return nil
}

func (w *webListeners) openWebSocket() error {
	if w.flags.WebSocket == "" {
		return nil
	}
	var listen net.ListenConfig
	if w.flags.Shared {
		listen.Control = udp.SharePort
	}
	socket, err := listen.Listen(context.Background(), "tcp", w.flags.WebSocket)
	if err != nil {
		return fmt.Errorf("--websocket: %w", err)
	}
	proxies, _ := w.flags.Proxies() // checked with the flags
	w.websocket = websocket.New(websocket.Config{
		Hub: w.edge.Hub(), Socket: socket, TLS: w.tls(tls.VersionTLS12), Origins: w.flags.WebSocketOrigins, Proxies: proxies,
		Info: w.info, Page: w.page, Routes: w.routes(), Adapters: []websocket.Adapter{w.variant}, Log: w.log,
	})
	w.running = append(w.running, w.websocket.Run)
	w.log.Info("listening", "websocket", w.websocket.Addr(), "tls", w.files != nil)
	return nil
}

// socketBuffer is the size in bytes of each of the two buffers of a socket for all clients of a kind.
const socketBuffer = 4 << 20

func (w *webListeners) openWebTransport() error {
	if w.flags.WebTransport == "" {
		return nil
	}
	socket, err := w.listenUDP()
	if err != nil {
		return fmt.Errorf("--webtransport: %w", err)
	}
	w.webtransport, err = webtransport.New(webtransport.Config{
		Hub: w.edge.Hub(), Socket: socket, TLS: w.tls(tls.VersionTLS13), Origins: w.flags.WebSocketOrigins, Key: w.key, Log: w.log,
	})
	if err != nil {
		return errors.Join(err, socket.Close())
	}
	w.running = append(w.running, w.webtransport.Run)
	w.log.Info("listening", "webtransport", w.webtransport.Addr(), "own_certificate", w.own != nil)
	return nil
}

// listenUDP opens the socket of WebTransport. The kernel may grant smaller buffers than those requested; the edge has said so about
// its other sockets.
func (w *webListeners) listenUDP() (*net.UDPConn, error) {
	// quic-go would print on standard error what it thinks of the buffers, in a form that no log reader expects.
	if err := os.Setenv("QUIC_GO_DISABLE_RECEIVE_BUFFER_WARNING", "true"); err != nil {
		return nil, err
	}
	return listenBuffered(w.flags.WebTransport)
}

// listenBuffered opens a socket for many clients.
func listenBuffered(address string) (*net.UDPConn, error) {
	addr, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		return nil, err
	}
	u, err := net.ListenUDP("udp", addr)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(u.SetReadBuffer(socketBuffer), u.SetWriteBuffer(socketBuffer)); err != nil {
		return nil, errors.Join(err, u.Close())
	}
	return u, nil
}

// The addresses of adapters in relay dev, those of the tags of DevCommand.
const (
	devLLUDP   = "127.0.0.1:9000"
	devVariant = "127.0.0.1:3415"
)

// listenOr opens a port. If another program has the port that relay dev would take by itself, relay dev goes on without it, and there
// is no socket. own is the port that it takes by itself.
func listenOr[S any](log *slog.Logger, dev bool, flag, address, own string, listen func(address string) (S, error)) (socket S, ok bool, err error) {
	socket, err = listen(address)
	switch {
	case errors.Is(err, syscall.EADDRINUSE) && dev && address == own:
		log.Warn("port in use; "+flag+" takes another one", "address", address)
		return socket, false, nil
	case err != nil:
		return socket, false, fmt.Errorf("%s: %w", flag, err)
	}
	return socket, true, nil
}

// openVariants opens the port for Variants by UDP.
func (w *webListeners) openVariants() error {
	if w.flags.Variant == "" {
		return nil
	}
	socket, ok, err := listenOr(w.log, w.flags.Dev, "--variant", w.flags.Variant, devVariant, listenBuffered)
	if !ok {
		return err
	}
	if w.variantUDP, err = w.variant.ListenUDP(socket, admission(w.flags.Edge)); err != nil {
		return errors.Join(err, socket.Close())
	}
	w.running = append(w.running, w.variantUDP.Run)
	w.log.Info("listening", "variant", w.variantUDP.Addr())
	return nil
}

// metrics returns those of adapters.
func (w *webListeners) metrics() (all []telemetry.Metric) {
	if w.variant != nil {
		all = append(all, w.variant.Metrics()...)
	}
	if w.lludp != nil {
		all = append(all, w.lludp.Metrics()...)
	}
	return all
}

// info tells clients what there is.
func (w *webListeners) info() carrier.Info {
	i := carrier.Info{Protocols: []string{carrier.Protocol}}
	if w.webtransport != nil {
		i.WebTransport = &carrier.WebTransportInfo{Port: port(w.webtransport.Addr()), Path: carrier.Path, CertificateHashes: w.hashes}
	}
	return i
}

func port(a net.Addr) uint16 {
	p, err := netip.ParseAddrPort(a.String())
	if err != nil {
		panic("compose: an address of a socket: " + err.Error())
	}
	return p.Port()
}

// run serves until ctx ends.
func (w *webListeners) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, run := range w.running {
		group.Go(func() error { return run(ctx) })
	}
	if w.files != nil {
		group.Go(func() error {
			w.files.Watch(ctx)
			return nil
		})
	}
	<-ctx.Done() // also without any listener
	return group.Wait()
}

// tell prints where clients come.
func (w *webListeners) tell(out io.Writer) {
	if s := w.websocket; s != nil {
		if w.page != nil {
			fmt.Fprintf(out, "  web page      %s://%s/\n", w.flags.scheme("http"), s.Addr())
		}
		fmt.Fprintf(out, "  web clients   %s://%s\n", w.flags.scheme("ws"), s.Addr())
	}
	if s := w.webtransport; s != nil {
		fmt.Fprintf(out, "  and           https://%s%s (WebTransport)\n", s.Addr(), carrier.Path)
	}
	w.tellLLUDP(out)
	if s := w.variantUDP; s != nil {
		fmt.Fprintf(out, "  Godot         udp://%s (Variants)\n", s.Addr())
	}
}
