package compose

import (
	"context"
	crand "crypto/rand"
	"crypto/tls"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"time"

	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/edge"
	"github.com/dnprelay/dnprelay/internal/edge/carrier"
	"github.com/dnprelay/dnprelay/internal/edge/certificate"
	"github.com/dnprelay/dnprelay/internal/edge/websocket"
	"golang.org/x/sync/errgroup"
)

// carriers returns what an edge needs for clients that do not speak UDP, nil if there is no listener for them. secret makes
// their tokens, and is that of the session log if sessions outlive the edge.
func carriers(c *config.Web, durable *edge.Durable) *edge.Carriers {
	if c.WebSocket == "" && c.WebTransport == "" {
		return nil
	}
	secret := []byte(crand.Text())
	if durable != nil {
		secret = durable.Secret
	}
	return &edge.Carriers{Secret: secret, ConnsMax: c.WebSocketConnections}
}

// webListeners are the listeners for clients that do not speak UDP.
type webListeners struct {
	flags     *config.Web
	edge      *edge.Edge
	files     *certificate.Files // nil without --tls-cert
	own       *tls.Certificate   // of a development edge
	hashes    []string           // of own
	websocket *websocket.Server  // nil if there is none
	page      fs.FS              // at / of websocket; nil for none
	log       *slog.Logger
}

// openWeb opens the ports. A WebTransport listener without a certificate makes one.
func openWeb(c *config.Web, e *edge.Edge, page fs.FS, log *slog.Logger) (w *webListeners, err error) {
	w = &webListeners{flags: c, edge: e, page: page, log: log}
	if e.Hub() == nil {
		return w, nil
	}
	if err := w.openCertificate(); err != nil {
		return nil, err
	}
	if err := w.openWebSocket(); err != nil {
		return nil, err
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
	socket, err := net.Listen("tcp", w.flags.WebSocket)
	if err != nil {
		return fmt.Errorf("--websocket: %w", err)
	}
	proxies, _ := w.flags.Proxies() // checked with the flags
	w.websocket = websocket.New(websocket.Config{
		Hub: w.edge.Hub(), Socket: socket, TLS: w.tls(tls.VersionTLS12), Origins: w.flags.WebSocketOrigins, Proxies: proxies,
		Info: w.info, Page: w.page, Log: w.log,
	})
	w.log.Info("listening", "websocket", w.websocket.Addr(), "tls", w.files != nil)
	return nil
}

// info tells clients what there is.
func (w *webListeners) info() carrier.Info {
	return carrier.Info{Protocols: []string{carrier.Protocol}, WebSocket: &carrier.WebSocketInfo{Path: carrier.Path}}
}

// run serves until ctx ends.
func (w *webListeners) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	if w.websocket != nil {
		group.Go(func() error { return w.websocket.Run(ctx) })
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
	if w.websocket == nil {
		return
	}
	scheme := map[bool]string{false: "http", true: "https"}[w.files != nil]
	if w.page != nil {
		fmt.Fprintf(out, "  web page      %s://%s/\n", scheme, w.websocket.Addr())
	}
	fmt.Fprintf(out, "  web clients   %s://%s%s\n", scheme, w.websocket.Addr(), carrier.Path)
}
