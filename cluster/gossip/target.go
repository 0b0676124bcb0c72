package gossip

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Bounds of what may be joined.
const (
	joinNamesMax   = 64
	joinTargetsMax = 256 // addresses of all names; more are left out until some are known
	resolveTimeout = 2 * time.Second
)

// splitTarget splits HOST or HOST:PORT; HOST may be an IPv6 address, with
// brackets if there is a port.
func splitTarget(name string) (host string, port uint16, err error) {
	if addr, err := netip.ParseAddr(strings.Trim(name, "[]")); err == nil {
		return addr.String(), DefaultPort, nil
	}
	host, text, found := strings.Cut(name, ":")
	if strings.HasPrefix(name, "[") || strings.Contains(text, ":") {
		if host, text, err = net.SplitHostPort(name); err != nil {
			return "", 0, fmt.Errorf("gossip: join %q: want HOST or HOST:PORT, with IPv6 addresses as [ADDRESS]:PORT", name)
		}
	}
	n := uint64(DefaultPort)
	if found {
		n, err = strconv.ParseUint(text, 10, 16)
	}
	if host == "" || err != nil || n == 0 {
		return "", 0, fmt.Errorf("gossip: join %q: want HOST or HOST:PORT", name)
	}
	return host, uint16(n), nil
}

// targets resolves names. What does not resolve is returned too, and is no error:
// the names of pods appear only when the pods do.
func targets(ctx context.Context, resolver Resolver, names []string) (addrs []netip.AddrPort, unknown []string) {
	for _, name := range names {
		host, port, err := splitTarget(name)
		if err != nil {
			continue // was checked by Open
		}
		found := lookup(ctx, resolver, host)
		if len(found) == 0 {
			unknown = append(unknown, name)
		}
		for _, ip := range found {
			addr := netip.AddrPortFrom(ip.Unmap().WithZone(""), port)
			if len(addrs) < joinTargetsMax && !slices.Contains(addrs, addr) {
				addrs = append(addrs, addr)
			}
		}
	}
	return addrs, unknown
}

func lookup(ctx context.Context, resolver Resolver, host string) []netip.Addr {
	if addr, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{addr}
	}
	ctx, cancel := context.WithTimeout(ctx, resolveTimeout)
	defer cancel()
	found, err := resolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil
	}
	return found
}
