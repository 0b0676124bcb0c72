package compose

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/dnprelay/dnprelay/internal/edge/lludp"
	"github.com/dnprelay/dnprelay/internal/telemetry"
)

// openLLUDP opens the port for viewers.
func (w *webListeners) openLLUDP() error {
	if w.viewers.LLUDP == "" {
		return nil
	}
	addr, err := net.ResolveUDPAddr("udp", w.viewers.LLUDP)
	if err != nil {
		return fmt.Errorf("--lludp: %w", err)
	}
	socket, err := net.ListenUDP("udp", addr)
	if err != nil {
		return fmt.Errorf("--lludp: %w", err)
	}
	if err := errors.Join(socket.SetReadBuffer(socketBuffer), socket.SetWriteBuffer(socketBuffer)); err != nil {
		return errors.Join(err, socket.Close())
	}
	proxies, _ := w.flags.Proxies() // checked with the flags
	w.lludp = lludp.New(lludp.Config{
		Hub: w.edge.Hub(), Socket: socket, Region: w.viewers.LLUDPRegion, Auth: w.auth, Local: w.auth == "open", Public: w.viewers.Public(),
		Origins: w.flags.WebSocketOrigins, Proxies: proxies, Log: w.log,
	})
	w.log.Info("listening", "lludp", w.lludp.Addr())
	return nil
}

// routes returns what the WebSocket listener serves for viewers.
func (w *webListeners) routes() map[string]http.Handler {
	if w.lludp == nil {
		return nil
	}
	return w.lludp.Routes()
}

// metrics returns those of adapters.
func (w *webListeners) metrics() []telemetry.Metric {
	if w.lludp == nil {
		return nil
	}
	return w.lludp.Metrics()
}

// tellLLUDP prints where viewers come.
func (w *webListeners) tellLLUDP(out io.Writer) {
	if w.lludp == nil {
		return
	}
	fmt.Fprintf(out, "  viewers       udp://%s (LLUDP)", w.lludp.Addr())
	if s := w.websocket; s != nil {
		scheme := "http"
		if w.files != nil {
			scheme = "https"
		}
		fmt.Fprintf(out, ", log in at %s://%s%s", scheme, s.Addr(), lludp.LoginPath)
	}
	fmt.Fprintln(out)
}
