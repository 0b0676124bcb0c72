package config

import (
	"net/netip"
	"net/url"
	"strings"
)

// Web are the flags about clients that do not speak UDP. A command that embeds it sets the default addresses, as
// `set:"web=127.0.0.1:3480"`.
type Web struct {
	WebSocket            string   `name:"websocket" default:"${web}" want:"bind" placeholder:"[ADDRESS]:PORT" help:"TCP address on which to accept DNP clients by WebSocket, such as browsers; without an address = all, IPv4 and IPv6; port 0 = any free port; empty = none. With --tls-cert it speaks TLS (wss://), else plain text (ws://), for proxies that end TLS."`
	WebTransport         string   `name:"webtransport" default:"${web}" want:"bind" placeholder:"[ADDRESS]:PORT" help:"UDP address on which to accept DNP clients by WebTransport (HTTP/3), which keeps late datagrams from delaying newer ones; empty = none. It needs --tls-cert, except with relay dev, which makes a certificate for browsers on this machine."`
	TLSCert              string   `name:"tls-cert" env:"DNP_TLS_CERT" placeholder:"FILE" want:"file" help:"PEM file with the certificate chain for --websocket and --webtransport. The edge reads it again within 10 s of a change."`
	TLSKey               string   `name:"tls-key" env:"DNP_TLS_KEY" placeholder:"FILE" want:"file" help:"PEM file with the key of --tls-cert."`
	WebSocketOrigins     []string `name:"websocket-origins" placeholder:"ORIGIN" help:"Origins of pages that may connect, such as https://game.example; * = all. Pages of the host that they connect to, and of the browser's own machine, always may."`
	WebSocketConnections int      `name:"websocket-connections" default:"16384" want:"1..1048576" help:"Most clients that do not speak UDP."`
	TrustedProxies       []string `name:"trusted-proxies" placeholder:"ADDRESS[/BITS]" help:"Proxies before --websocket whose X-Forwarded-For is believed. Without it, all clients behind a proxy count as one address."`
}

// Problems lists what is wrong with w.
func (w *Web) Problems() (list Problems) {
	list.AddIf((w.TLSCert == "") != (w.TLSKey == ""), "--tls-cert", "needs --tls-key, and --tls-key needs --tls-cert")
	for _, o := range w.WebSocketOrigins {
		u, err := url.Parse(o)
		list.AddIf(o != "*" && (err != nil || u.Host == "" || u.Scheme == "" || u.Path != "" || u.RawQuery != ""), "--websocket-origins", "want https://HOST[:PORT] or *, got %q", o)
	}
	_, ok := w.Proxies()
	list.AddIf(!ok, "--trusted-proxies", "want IP addresses or networks such as 10.0.0.0/8, got %q", strings.Join(w.TrustedProxies, ","))
	return list
}

// Proxies returns the networks of TrustedProxies, and whether all are valid.
func (w *Web) Proxies() (list []netip.Prefix, ok bool) {
	for _, text := range w.TrustedProxies {
		p, err := netip.ParsePrefix(text)
		if a, e := netip.ParseAddr(text); e == nil {
			p, err = netip.PrefixFrom(a.Unmap(), a.Unmap().BitLen()), nil
		}
		if err != nil {
			return nil, false
		}
		list = append(list, p.Masked())
	}
	return list, true
}
