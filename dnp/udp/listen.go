package udp

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"syscall"
)

// Listen opens the sockets of a server on one address. When somebody has the
// address, the error says so in one line.
func Listen(cfg Config) ([]*Socket, error) {
	cfg, err := cfg.validate()
	if err != nil {
		return nil, err
	}
	cfg.Addr = unmapped(cfg.Addr)
	sockets, err := listen(cfg)
	if err != nil {
		return nil, listenError(cfg.Addr, err)
	}
	return sockets, nil
}

// Open opens one socket, as for a client. With the zero Config it can talk to
// IPv4 and IPv6 servers.
func Open(cfg Config) (*Socket, error) {
	cfg.Sockets = 1
	sockets, err := Listen(cfg)
	if err != nil {
		return nil, err
	}
	return sockets[0], nil
}

// OpenPortable opens one socket as systems other than Linux have it. It is for
// tests, which thereby run on Linux.
func OpenPortable(cfg Config) (*Socket, error) {
	cfg, err := cfg.validate()
	if err != nil {
		return nil, err
	}
	cfg.Addr = unmapped(cfg.Addr)
	s, err := openPortable(cfg)
	if err != nil {
		return nil, listenError(cfg.Addr, err)
	}
	return s, nil
}

func listenError(addr netip.AddrPort, err error) error {
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return fmt.Errorf("listen udp %s: port %d is in use", addrText(addr), addr.Port())
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return fmt.Errorf("listen udp %s: this host does not have that address", addrText(addr))
	case errors.Is(err, syscall.EACCES):
		return fmt.Errorf("listen udp %s: not allowed (ports below 1024 need a privilege)", addrText(addr))
	}
	return fmt.Errorf("listen udp %s: %w", addrText(addr), err)
}

// addrText writes an address without an IP as people type it.
func addrText(a netip.AddrPort) string {
	if !a.Addr().IsValid() {
		return ":" + strconv.Itoa(int(a.Port()))
	}
	return a.String()
}
