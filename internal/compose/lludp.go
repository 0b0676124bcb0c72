package compose

import (
	"fmt"
	"io"
	"net"
	"net/http"

	"github.com/dnprelay/dnprelay/dnp/udp"
	"github.com/dnprelay/dnprelay/internal/edge/lludp"
)

// openLLUDP opens the port for viewers.
func (w *webListeners) openLLUDP() error {
	f, auth := w.flags.Viewers, w.flags.Edge.Auth
	if f.LLUDP == "" {
		return nil
	}
	socket, ok, err := listenOr(w.log, w.flags.Dev, "--lludp", f.LLUDP, devLLUDP, listenLLUDP)
	if !ok {
		return err
	}
	proxies, _ := w.flags.Proxies() // checked with the flags
	w.lludp = lludp.New(lludp.Config{
		Hub: w.edge.Hub(), Socket: socket, Region: f.LLUDPRegion, Auth: auth, Local: auth == "open", Public: f.Public(),
		Origins: w.flags.WebSocketOrigins, Proxies: proxies, Log: w.log,
	})
	w.running = append(w.running, w.lludp.Run)
	w.log.Info("listening", "lludp", w.lludp.Addr())
	return nil
}

func listenLLUDP(address string) (*udp.Socket, error) {
	addr, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		return nil, err
	}
	return lludp.Listen(addr.AddrPort())
}

// routes returns what the WebSocket listener serves for viewers.
func (w *webListeners) routes() map[string]http.Handler {
	if w.lludp == nil {
		return nil
	}
	return w.lludp.Routes()
}

// tellLLUDP prints where viewers come.
func (w *webListeners) tellLLUDP(out io.Writer) {
	if w.lludp == nil {
		return
	}
	fmt.Fprintf(out, "  viewers       udp://%s (LLUDP)", w.lludp.Addr())
	if s := w.websocket; s != nil {
		fmt.Fprintf(out, ", log in at %s://%s%s", w.flags.scheme("http"), s.Addr(), lludp.LoginPath)
	}
	fmt.Fprintln(out)
}
