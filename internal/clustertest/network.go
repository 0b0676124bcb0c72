//go:build linux

package clustertest

import (
	"errors"
	"fmt"
	"net/netip"
	"os/exec"
)

// subnet is where all namespaces are. Nothing outside of them sees it.
var subnet = netip.MustParsePrefix("10.213.0.0/24")

// A network is namespaces around a bridge, which is in one of its own.
type network struct {
	hub   *netns
	hosts []*host
	nft   bool // how hosts are cut off
}

// A host is a namespace with an address.
type host struct {
	*netns
	name string // also of its port on the bridge
	addr netip.Addr
}

// at returns a port of the host.
func (h *host) at(port uint16) string { return netip.AddrPortFrom(h.addr, port).String() }

// cutRules drop all frames from and to the ports in a set, which is empty at first.
const cutRules = `table bridge cut {
	set ports { type ifname; }
	chain forward { type filter hook forward priority 0; iifname @ports drop; oifname @ports drop; }
}`

// newNetwork makes the bridge.
func newNetwork() (*network, error) {
	if _, err := exec.LookPath("ip"); err != nil {
		return nil, errors.New("the program ip is missing (Debian package iproute2)")
	}
	hub, err := newNetns()
	if err != nil {
		return nil, err
	}
	w := &network{hub: hub}
	if _, err := exec.LookPath("nft"); err == nil {
		w.nft = true
	} else if _, err := exec.LookPath("bridge"); err != nil {
		return nil, errors.New("both nft (Debian package nftables) and bridge (iproute2) are missing, so nobody can be cut off")
	}
	err = hub.command("ip", "link", "add", "br0", "type", "bridge")
	if err == nil {
		err = hub.command("ip", "link", "set", "br0", "up")
	}
	if err == nil && w.nft {
		err = hub.command("nft", cutRules)
	}
	return w, err
}

// add makes a host.
func (w *network) add(name string, last byte) (*host, error) {
	n, err := newNetns()
	if err != nil {
		return nil, err
	}
	b := subnet.Addr().As4()
	b[3] = last
	h := &host{netns: n, name: name, addr: netip.AddrFrom4(b)}
	w.hosts = append(w.hosts, h)
	for _, c := range []struct {
		where *netns
		args  []string
	}{
		{w.hub, []string{"link", "add", name, "type", "veth", "peer", "name", "eth0", "netns", n.file}},
		{w.hub, []string{"link", "set", name, "master", "br0", "up"}},
		{n, []string{"addr", "add", fmt.Sprintf("%s/%d", h.addr, subnet.Bits()), "dev", "eth0"}},
		{n, []string{"link", "set", "eth0", "up"}},
		{n, []string{"link", "set", "lo", "up"}},
	} {
		if err := c.where.command("ip", c.args...); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// cut separates a host from all others, or joins it again. Nobody is told: frames
// disappear on the bridge.
func (w *network) cut(h *host, off bool) error {
	if !w.nft {
		const disabled, forwarding = "0", "3" // states of a port, see bridge(8)
		state := forwarding
		if off {
			state = disabled
		}
		return w.hub.command("bridge", "link", "set", "dev", h.name, "state", state)
	}
	verb := "delete"
	if off {
		verb = "add"
	}
	return w.hub.command("nft", fmt.Sprintf("%s element bridge cut ports { %q }", verb, h.name))
}

// means says what cuts hosts off.
func (w *network) means() string {
	if w.nft {
		return "nft on the bridge"
	}
	return "the state of bridge ports (nft is not installed)"
}

func (w *network) close() {
	for _, h := range w.hosts {
		h.close()
	}
	w.hub.close()
}
