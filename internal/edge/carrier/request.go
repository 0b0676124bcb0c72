package carrier

import (
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// Origins are the origins of pages that may connect, such as https://game.example, besides those of the host
// of the edge and of the browser's own machine. "*" allows all. There are no cookies that a page could misuse: this only
// keeps pages of others from playing at the expense of this deployment.
type Origins []string

// Allow reports whether a request comes from a page that may connect, or from no page.
func (o Origins) Allow(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" || slices.Contains(o, "*") || slices.Contains(o, origin) {
		return true
	}
	page, err := url.Parse(origin)
	if err != nil || page.Host == "" {
		return false
	}
	host := (&url.URL{Host: r.Host}).Hostname() // the port may differ: carriers have ports of their own
	return page.Hostname() == host || local(page.Hostname())
}

func local(host string) bool {
	a, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && a.IsLoopback()
}

// Proxies are the networks of proxies whose X-Forwarded-For is believed.
type Proxies []netip.Prefix

// Home returns the address of the client that made a request: the last one in X-Forwarded-For that
// is no proxy's.
func (p Proxies) Home(r *http.Request) netip.Addr {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.IPv6Unspecified() // not of a TCP or UDP socket
	}
	home := from.Addr().Unmap().WithZone("")
	hops := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for _, hop := range slices.Backward(hops) {
		next, err := netip.ParseAddr(strings.TrimSpace(hop))
		if !p.trusts(home) || err != nil {
			break
		}
		home = next.Unmap().WithZone("")
	}
	return home
}

// Trust reports whether a request comes from a proxy that is believed.
func (p Proxies) Trust(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && p.trusts(from.Addr().Unmap().WithZone(""))
}

func (p Proxies) trusts(a netip.Addr) bool {
	return slices.ContainsFunc(p, func(n netip.Prefix) bool { return n.Contains(a) })
}
