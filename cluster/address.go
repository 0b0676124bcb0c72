package cluster

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// ParseBind parses [ADDRESS]:PORT, at which a node listens. Without an address it returns all, which stands for those of the machine.
func ParseBind(text, all string) (netip.AddrPort, error) {
	whole := strings.Replace(text, "localhost:", "127.0.0.1:", 1)
	if strings.HasPrefix(text, ":") {
		whole = all + text
	}
	addr, err := netip.ParseAddrPort(whole)
	if err != nil {
		return addr, fmt.Errorf("want [ADDRESS]:PORT with an IP address of this machine, got %q", text)
	}
	return netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port()), nil
}

// ParseAdvertised parses ADDRESS or ADDRESS:PORT, at which others reach a node. port is that of an address without one.
func ParseAdvertised(text string, port uint16) (netip.AddrPort, error) {
	addr, err := netip.ParseAddrPort(text)
	if ip, e := netip.ParseAddr(strings.Trim(text, "[]")); e == nil {
		addr, err = netip.AddrPortFrom(ip, port), nil
	}
	if err != nil || addr.Addr().IsUnspecified() || addr.Addr().Zone() != "" {
		return addr, fmt.Errorf("want ADDRESS or ADDRESS:PORT with an IP address that other nodes reach, got %q", text)
	}
	return netip.AddrPortFrom(addr.Addr().Unmap(), addr.Port()), nil
}

// ParseTarget parses HOST or HOST:PORT of a node to join; HOST may be an IPv6 address, in brackets if there is a port. usual is the
// port of a host without one.
func ParseTarget(name string, usual uint16) (host string, port uint16, err error) {
	if addr, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		return addr.String(), usual, nil
	}
	if addr, err := netip.ParseAddrPort(name); err == nil && addr.Port() > 0 {
		return addr.Addr().String(), addr.Port(), nil
	}
	host, text, given := strings.Cut(name, ":")
	n := uint64(usual)
	if given {
		n, err = strconv.ParseUint(text, 10, 16)
	}
	if err != nil || n == 0 || host == "" || strings.ContainsAny(host, "[]") {
		return "", 0, fmt.Errorf("want HOST or HOST:PORT, with IPv6 addresses as [ADDRESS]:PORT, got %q", name)
	}
	return host, uint16(n), nil
}
