//go:build linux

package bench

import (
	"net/netip"
	"sync"
)

// A carrier moves the datagrams of all clients of a swarm. One goroutine at a time calls it.
type carrier interface {
	// read returns how many datagrams have arrived, for datagram. It does not wait. An error ends the swarm.
	read() (n int, err error)

	// datagram returns datagram i of the last read. Its bytes are valid until the next read.
	datagram(i int) arrival

	// Room returns a buffer for the next datagram, and send queues it. A client that is not connected to its edge
	// yet connects, and sends its latest datagram then.
	Room() []byte
	send(client int, data []byte)

	// Flush sends what is queued.
	Flush()

	// overflows returns how many datagrams the carrier has lost because the swarm was too slow.
	overflows() uint32

	// received returns how many bytes have arrived, with those of the carrier and of UDP, TCP and IPv4. It is 0 for UDP, whose
	// windows count themselves.
	received() uint64

	// failure returns why a client could not connect last.
	failure() error

	Close()
}

// An arrival is a datagram for a client.
type arrival struct {
	client   int    // less than 0 or beyond the last for none
	data     []byte // nil if the connection of the client has ended
	baseline bool   // it is not from the edge of the client
	stamp    int64  // when the kernel had it, in Unix nanoseconds; 0 if that is not known
}

// openCarrier opens the carrier for the clients of a case.
func openCarrier(c *Case, stack *Stack) (carrier, error) {
	edges := stack.Edges
	edgeOf := func(client int) netip.AddrPort { return edges[client%len(edges)] }
	switch c.Carrier {
	case WebSocket:
		return openWebSockets(c.Clients, edgeOf)
	case WebTransport:
		return openWebTransports(c.Clients, edgeOf, stack.roots), nil
	}
	socket, err := openSocket(swarmBuffer)
	return &udpCarrier{socket, edgeOf}, err
}

// A udpCarrier is one socket for all clients.
type udpCarrier struct {
	*Socket
	edgeOf func(client int) netip.AddrPort
}

func (u *udpCarrier) datagram(i int) arrival {
	from, to, data, stamp := u.Socket.datagram(i)
	client := int(to) - firstAddress
	if len(data) == 0 {
		client = -1
	}
	return arrival{client: client, data: data, baseline: client >= 0 && from != u.edgeOf(client), stamp: stamp}
}

func (u *udpCarrier) send(client int, data []byte) {
	u.Socket.Send(ClientAddress(client), u.edgeOf(client), data)
}

func (u *udpCarrier) received() uint64 { return 0 }

func (u *udpCarrier) failure() error { return nil }

// dialsMax is how many clients connect at once. An edge that is asked by more is not faster.
const dialsMax = 16

// A dialer makes connections in goroutines of their own.
type dialer[C any] struct {
	dial  func(client int) (C, error)
	slots chan struct{}
	wait  sync.WaitGroup

	mu   sync.Mutex // the goroutines leave here what they made
	made []dialed[C]
	err  error // of the last one that failed
}

// A dialed is the connection of a client, or the error of its attempt.
type dialed[C any] struct {
	client int
	conn   C
	err    error
}

func newDialer[C any](dial func(client int) (C, error)) *dialer[C] {
	return &dialer[C]{dial: dial, slots: make(chan struct{}, dialsMax)}
}

// begin begins to connect a client. Clients bound the goroutines: each has one attempt at a time.
func (d *dialer[C]) begin(client int) {
	d.wait.Go(func() {
		d.slots <- struct{}{}
		defer func() { <-d.slots }()
		conn, err := d.dial(client)
		d.mu.Lock()
		defer d.mu.Unlock()
		d.made = append(d.made, dialed[C]{client, conn, err})
		if err != nil {
			d.err = err
		}
	})
}

// take returns the attempts that have ended since the last call.
func (d *dialer[C]) take() []dialed[C] {
	d.mu.Lock()
	defer d.mu.Unlock()
	list := d.made
	d.made = nil
	return list
}

// end waits for the attempts under way, and returns those that were not taken.
func (d *dialer[C]) end() []dialed[C] {
	d.wait.Wait()
	return d.take()
}

func (d *dialer[C]) failure() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.err
}
