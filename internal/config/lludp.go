package config

import "net/netip"

// LLUDP are the flags about viewers of Second Life and OpenSimulator. A command that embeds it sets the default address, as
// `set:"lludp=127.0.0.1:9000"`.
type LLUDP struct {
	LLUDP       string `name:"lludp" default:"${lludp}" want:"bind" placeholder:"[ADDRESS]:PORT" help:"UDP address on which to accept viewers of Second Life and OpenSimulator; empty = none. They log in at --websocket, with http://ADDRESS:PORT/lludp/login as the login address; with --auth open, viewers of this machine need no login."`
	LLUDPRegion string `name:"lludp-region" default:"dnprelay" placeholder:"NAME" help:"Name of the region that viewers see (default dnprelay)."`
	LLUDPPublic string `name:"lludp-public" placeholder:"ADDRESS:PORT" help:"IPv4 address and UDP port that viewers are told at login, where those of --lludp are not the ones by which they reach it."`
}

// regionMax is the most bytes of the name of a region: viewers show a line.
const regionMax = 63

// Problems lists what is wrong with l.
func (l *LLUDP) Problems() (list Problems) {
	n := len(l.LLUDPRegion)
	list.AddIf(n == 0 || n > regionMax, "--lludp-region", "want 1 to %d bytes", regionMax)
	list.AddIf(l.LLUDPPublic != "" && !l.Public().IsValid(), "--lludp-public", "want an IPv4 address and a port such as 192.0.2.1:9000, got %q", l.LLUDPPublic)
	return list
}

// Public returns LLUDPPublic, which is not valid if it is empty or no address of IPv4.
func (l *LLUDP) Public() netip.AddrPort {
	a, err := netip.ParseAddrPort(l.LLUDPPublic)
	if err != nil || !a.Addr().Is4() || a.Port() == 0 {
		return netip.AddrPort{}
	}
	return a
}
