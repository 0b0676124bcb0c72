package config

import (
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// gossipJoinMax is how many names can be joined; the rest are found through them.
const gossipJoinMax = 64

// Gossip are the flags about finding the other nodes of a cluster.
type Gossip struct {
	GossipBind      string   `default:"127.0.0.1:7946" placeholder:"[ADDRESS]:PORT" help:"Where to speak with the other nodes, TCP and UDP (default 127.0.0.1:7946); without an address on all, IPv4 and IPv6; port 0 = any free one."`
	GossipAdvertise string   `placeholder:"ADDRESS[:PORT]" help:"Address at which the other nodes reach this one (default: that of --gossip-bind, or else a private address of the machine)."`
	GossipJoin      []string `placeholder:"HOST[:PORT],..." help:"Other nodes, by name or address (default port 7946). A name may have several addresses, and may be unknown at the start. Empty = wait for the others."`
	GossipKeyFile   string   `placeholder:"FILE" help:"Keys of the cluster: on each line one of 16, 24 or 32 bytes in hex or base64, the first for sending. Read again when it changes. Empty = not encrypted, on loopback only."`
}

// Problems lists what is wrong with g.
func (g *Gossip) Problems() (list Problems) {
	list.gossipBind("--gossip-bind", g.GossipBind)
	list.gossipAdvertise("--gossip-advertise", g.GossipAdvertise)
	list.gossipJoin("--gossip-join", g.GossipJoin)
	list.readable("--gossip-key-file", g.GossipKeyFile)
	if g.GossipKeyFile == "" && !onLoopback(g.GossipBind) {
		list.add("--gossip-key-file", "needed unless --gossip-bind is on loopback, or everybody who reaches the port can join")
	}
	return list
}

// onLoopback reports whether only this machine reaches an address. One that is
// malformed is another problem.
func onLoopback(bind string) bool {
	host, _, err := net.SplitHostPort(bind)
	if err != nil || host == "localhost" {
		return true
	}
	addr, err := netip.ParseAddr(host)
	return err == nil && addr.IsLoopback()
}

func (p *Problems) gossipBind(flag, got string) {
	host, port, err := net.SplitHostPort(got)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err == nil && host != "" && host != "localhost" {
		_, err = netip.ParseAddr(host)
	}
	if err != nil {
		p.add(flag, "want [ADDRESS]:PORT with an IP address of this machine, got %q", got)
	}
}

func (p *Problems) gossipAdvertise(flag, got string) {
	if got == "" {
		return
	}
	addr, err := netip.ParseAddr(strings.Trim(got, "[]"))
	if err != nil {
		var both netip.AddrPort
		both, err = netip.ParseAddrPort(got)
		addr = both.Addr()
	}
	if err != nil || addr.IsUnspecified() || addr.Zone() != "" {
		p.add(flag, "want ADDRESS or ADDRESS:PORT with an IP address that other nodes reach, got %q", got)
	}
}

func (p *Problems) gossipJoin(flag string, names []string) {
	if len(names) > gossipJoinMax {
		p.add(flag, "want at most %d, got %d", gossipJoinMax, len(names))
	}
	for _, name := range names {
		if !gossipTarget(name) {
			p.add(flag, "want HOST or HOST:PORT, with IPv6 addresses as [ADDRESS]:PORT, got %q", name)
		}
	}
}

// gossipTarget reports whether a name is what cluster/gossip can join.
func gossipTarget(name string) bool {
	if _, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		return true
	}
	if !strings.Contains(name, ":") {
		return name != ""
	}
	host, port, err := net.SplitHostPort(name)
	n, numberErr := strconv.ParseUint(port, 10, 16)
	return err == nil && numberErr == nil && host != "" && n > 0
}
