//go:build linux

package bench

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/quic-go/quic-go"
	"github.com/quic-go/webtransport-go"
)

const (
	wtDialTimeout = 10 * time.Second

	// wtQueueMax is how many datagrams wait for the swarm. What does not fit is lost and counted.
	wtQueueMax = 1 << 17

	udpHeaders = 28 // of UDP and IPv4
)

// A webTransports is the carrier of clients that have a socket, a QUIC connection and a session each. Sockets of their own keep
// an edge from sending the packets of several clients at once, as it could if they had one address.
type webTransports struct {
	clients []wtClient
	dialer  *dialer[*wtConn]
	room    []byte
	reading sync.WaitGroup
	lost    atomic.Uint32

	mu      sync.Mutex // goroutines of sessions leave here what arrives
	queue   []arrival
	arrived []arrival // taken from queue
}

type wtClient struct {
	conn    *wtConn // nil for none
	dialing bool
	first   []byte // to be sent once connected
}

// A wtConn is a session with its stream for what does not fit into a datagram.
type wtConn struct {
	socket    *net.UDPConn
	transport *quic.Transport
	quic      *quic.Conn
	session   *webtransport.Session
	stream    *webtransport.Stream
}

func openWebTransports(clients int, edgeOf func(client int) netip.AddrPort, roots *x509.CertPool) *webTransports {
	w := &webTransports{clients: make([]wtClient, clients), room: make([]byte, 0, slotBytes)}
	w.dialer = newDialer(func(client int) (*wtConn, error) {
		c, err := dialWebTransport(client, edgeOf(client), roots)
		if err != nil {
			return nil, fmt.Errorf("WebTransport session of client %d: %w", client, err)
		}
		return c, nil
	})
	return w
}

func growBuffer(socket *net.UDPConn) error {
	raw, err := socket.SyscallConn()
	if err != nil {
		return err
	}
	var set error
	err = raw.Control(func(fd uintptr) { set = setReadBuffer(int(fd), swarmBuffer) })
	return errors.Join(err, set)
}

func dialWebTransport(client int, edge netip.AddrPort, roots *x509.CertPool) (*wtConn, error) {
	var own [4]byte
	binary.BigEndian.PutUint32(own[:], ClientAddress(client))
	socket, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.AddrFrom4(own), 0)))
	if err != nil {
		return nil, err
	}
	c := &wtConn{socket: socket, transport: &quic.Transport{Conn: socket}}
	if err = growBuffer(socket); err == nil {
		err = c.connect(edge, roots)
	}
	if err != nil {
		c.end()
		return nil, err
	}
	return c, nil
}

func (c *wtConn) connect(edge netip.AddrPort, roots *x509.CertPool) error {
	ctx, cancel := context.WithTimeout(context.Background(), wtDialTimeout)
	defer cancel()
	transport := &webtransport.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: edge.Addr().String()},
		QUICConfig:      &quic.Config{EnableDatagrams: true, EnableStreamResetPartialDelivery: true},
		DialAddr: func(ctx context.Context, _ string, t *tls.Config, q *quic.Config) (conn *quic.Conn, err error) {
			c.quic, err = c.transport.Dial(ctx, net.UDPAddrFromAddrPort(edge), t, q)
			return c.quic, err
		},
	}
	_, session, err := transport.Dial(ctx, "https://"+edge.String()+"/dnp", nil)
	_ = transport.Close() // it ends only what waits for the session
	if err != nil {
		return err
	}
	c.session = session
	return c.greet(ctx)
}

// greet opens the stream, presents no token, and waits for the greeting.
func (c *wtConn) greet(ctx context.Context) (err error) {
	if c.stream, err = c.session.OpenStreamSync(ctx); err != nil {
		return err
	}
	if _, err := c.stream.Write([]byte{0, 0}); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, c.end)
	defer stop()
	_, err = c.frame()
	return err
}

// frame reads a frame of the stream: a length uint16, and the data.
func (c *wtConn) frame() ([]byte, error) {
	var size [2]byte
	if _, err := io.ReadFull(c.stream, size[:]); err != nil {
		return nil, err
	}
	p := make([]byte, binary.LittleEndian.Uint16(size[:]))
	_, err := io.ReadFull(c.stream, p)
	return p, err
}

// end ends everything. An end has no failure that matters.
func (c *wtConn) end() {
	if c.quic != nil {
		_ = c.quic.CloseWithError(0, "")
	}
	_ = c.transport.Close()
	_ = c.socket.Close()
}

// Close ends all connections.
func (w *webTransports) Close() {
	for _, d := range w.dialer.end() {
		if d.err == nil {
			d.conn.end()
		}
	}
	for i := range w.clients {
		if c := w.clients[i].conn; c != nil {
			c.end()
		}
	}
	w.reading.Wait()
}

func (w *webTransports) overflows() uint32 {
	lost := w.lost.Load()
	for i := range w.clients {
		c := w.clients[i].conn
		if c == nil {
			continue
		}
		if raw, err := c.socket.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { lost += socketDrops(int(fd)) }) // fails only for a closed socket
		}
	}
	return lost
}

func (w *webTransports) received() (sum uint64) {
	for i := range w.clients {
		if c := w.clients[i].conn; c != nil {
			s := c.quic.ConnectionStats()
			sum += s.BytesReceived + udpHeaders*s.PacketsReceived
		}
	}
	return sum
}

func (w *webTransports) failure() error { return w.dialer.failure() }

// read implements carrier.
func (w *webTransports) read() (int, error) {
	for _, d := range w.dialer.take() {
		w.opened(d)
	}
	w.mu.Lock()
	w.arrived, w.queue = w.queue, w.arrived[:0]
	w.mu.Unlock()
	return len(w.arrived), nil
}

func (w *webTransports) datagram(i int) arrival {
	a := w.arrived[i]
	if c := &w.clients[a.client]; a.data == nil && c.conn != nil {
		c.conn.end()
		*c = wtClient{}
	}
	return a
}

func (w *webTransports) opened(d dialed[*wtConn]) {
	c := &w.clients[d.client]
	c.dialing = false
	if d.err != nil {
		return
	}
	c.conn = d.conn
	w.reading.Go(func() {
		w.readAll(d.client, d.conn.datagram)
		w.mu.Lock()
		defer w.mu.Unlock()
		w.queue = append(w.queue, arrival{client: d.client})
	})
	w.reading.Go(func() { w.readAll(d.client, d.conn.frame) })
	w.send(d.client, c.first)
	c.first = nil
}

func (c *wtConn) datagram() ([]byte, error) { return c.session.ReceiveDatagram(c.session.Context()) }

// readAll queues what next returns until it fails, as it does when the session has ended.
func (w *webTransports) readAll(client int, next func() ([]byte, error)) {
	for {
		p, err := next()
		if err != nil {
			return
		}
		if len(p) > 0 {
			w.put(arrival{client: client, data: p})
		}
	}
}

func (w *webTransports) put(a arrival) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.queue) == wtQueueMax {
		w.lost.Add(1)
		return
	}
	w.queue = append(w.queue, a)
}

// Room implements carrier.
func (w *webTransports) Room() []byte { return w.room[:0] }

func (w *webTransports) send(client int, data []byte) {
	c := &w.clients[client]
	if c.conn != nil {
		_ = c.conn.session.SendDatagram(data) // readAll notices the end of a session
		return
	}
	c.first = slices.Clone(data)
	if !c.dialing {
		c.dialing = true
		w.dialer.begin(client)
	}
}

// Flush implements carrier. QUIC sends by itself.
func (w *webTransports) Flush() {}
