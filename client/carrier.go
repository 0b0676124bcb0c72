package client

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/udp"
)

// A carrier brings datagrams to one edge and back. One goroutine calls everything but wake.
type carrier interface {
	dnp.Sender // collects datagrams; the carrier owns them from Send on, and may lose them

	// flush transmits what was collected.
	flush() error

	// read waits until datagrams come, due (zero time = never) or wake, and calls receive for each. The
	// data are valid during the call. It returns udp.ErrWoken and os.ErrDeadlineExceeded, or an
	// error that ends the connection.
	read(due time.Time, receive func([]byte)) error

	// wake ends a read that waits, or else the next one. Any goroutine may call it.
	wake()

	// peer is the address under which the endpoint knows the edge.
	peer() netip.AddrPort

	// size is how many bytes a datagram has at most where the client may choose.
	size() int

	close() error
}

// defaultPort is where edges listen.
const defaultPort = "3413"

// open returns the carrier for a URL.
func open(ctx context.Context, url string) (carrier, error) {
	scheme, address, ok := strings.Cut(url, "://")
	if !ok || scheme != "udp" {
		return nil, fmt.Errorf("%q: %w", url, ErrNoWay)
	}
	to, err := resolve(ctx, strings.TrimSuffix(address, "/"))
	if err != nil {
		return nil, err
	}
	return openUDP(to)
}

// resolve returns the address of HOST:PORT. Without a host it is this machine.
func resolve(ctx context.Context, address string) (netip.AddrPort, error) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		host, port = strings.Trim(address, "[]"), defaultPort
	}
	n, err := net.DefaultResolver.LookupPort(ctx, "udp", port)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("address %s: %w", address, err)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	all, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("address %s: %w", address, err)
	}
	for _, ip := range all { // IPv4 first, as the net package prefers it for UDP
		if ip.Unmap().Is4() {
			return netip.AddrPortFrom(ip.Unmap(), uint16(n)), nil
		}
	}
	return netip.AddrPortFrom(all[0], uint16(n)), nil
}

// A udpCarrier is a UDP socket.
type udpCarrier struct {
	*udp.Writer
	socket *udp.Socket
	to     netip.AddrPort
	batch  []udp.Datagram
}

// readSlots is how many datagrams one read takes. A thousand clients in a process have as many sockets.
const readSlots = 16

func openUDP(to netip.AddrPort) (carrier, error) {
	socket, err := udp.Open(udp.Config{ReadSlots: readSlots})
	if err != nil {
		return nil, err
	}
	return &udpCarrier{Writer: socket.Writer(), socket: socket, to: to, batch: make([]udp.Datagram, readSlots)}, nil
}

func (c *udpCarrier) flush() error         { return c.Flush() }
func (c *udpCarrier) wake()                { c.socket.Wake() }
func (c *udpCarrier) peer() netip.AddrPort { return c.to }
func (c *udpCarrier) size() int            { return 1200 }
func (c *udpCarrier) close() error         { return c.socket.Close() }

func (c *udpCarrier) read(due time.Time, receive func([]byte)) error {
	c.socket.SetReadDeadline(due)
	n, err := c.socket.ReadBatch(c.batch)
	for _, d := range c.batch[:n] {
		if d.From == c.to {
			receive(d.Data)
		}
	}
	return err
}
