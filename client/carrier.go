package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/udp"
)

// A carrier brings datagrams to an edge and back. One goroutine calls everything but wake and status.
type carrier interface {
	dnp.Sender // collects datagrams; the carrier owns them from Send on, and may lose them

	// flush transmits what was collected.
	flush() error

	// read waits until datagrams come, due (zero time = never) or wake, and calls receive for each. The
	// data are valid during the call. It returns udp.ErrWoken, os.ErrDeadlineExceeded, errResumed,
	// or an error that ends the connection, which is an *EndError if the carrier knows a reason.
	read(due time.Time, receive func([]byte)) error

	// wake ends a read that waits, or else the next one. Any goroutine may call it.
	wake()

	// peer is the address under which the endpoint knows the edge.
	peer() netip.AddrPort

	// name is the address of the edge for people.
	name() string

	// size is how many bytes a datagram has at most where the client may choose.
	size() int

	// status says how the carrier is. Any goroutine may call it.
	status() carrierStatus

	// close transmits what was flushed, as far as that is possible soon, and ends the carrier.
	close() error
}

// A carrierStatus says how a carrier is.
type carrierStatus struct {
	up       bool  // it can transmit; otherwise it drops what it is given
	reliable bool  // it loses nothing while a connection lasts
	ordered  bool  // it loses nothing and keeps the order, or its end tells the edge
	trouble  error // why it cannot transmit, or could not a moment ago; nil if it knows no reason
	stats    CarrierStats
}

// CarrierStats are counters of what brings the datagrams of a [Client]. Over UDP there is one connection,
// and the system does not tell what it drops.
type CarrierStats struct {
	Connections uint64 // that were made: more than one if one was lost and the session resumed
	DroppedIn   uint64 // datagrams of the edge that came faster than the program took them
	DroppedOut  uint64 // datagrams to the edge, because there was no connection or it took nothing
}

// errResumed is what read returns when a carrier that had lost its connection has another one.
var errResumed = errors.New("client: the session is resumed")

// defaultPort is where edges listen.
const defaultPort = "3413"

// open returns the carrier for a URL, which is connected if the carrier makes connections.
func open(ctx context.Context, url string, cfg *Config) (carrier, error) {
	scheme, address, ok := strings.Cut(url, "://")
	switch {
	case ok && scheme == "udp":
		to, err := resolve(ctx, strings.TrimSuffix(address, "/"))
		if err != nil {
			return nil, err
		}
		return openUDP(to)
	case ok && (scheme == "ws" || scheme == "wss" || scheme == "wt"):
		return openWeb(ctx, url, cfg, usualPatience)
	}
	return nil, fmt.Errorf("%q: %w", url, ErrNoWay)
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
	all, err := net.DefaultResolver.LookupNetIP(ctx, "ip", cmp.Or(host, "127.0.0.1"))
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
func (c *udpCarrier) name() string         { return c.to.String() }
func (c *udpCarrier) size() int            { return 1200 }
func (c *udpCarrier) close() error         { return c.socket.Close() }

func (c *udpCarrier) status() carrierStatus {
	return carrierStatus{up: true, stats: CarrierStats{Connections: 1}}
}

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
