package client

import (
	"context"
	"net/netip"
	"time"
)

// A Pipe is a way to an edge that the program itself provides, for example to one in the same process. Nothing connects it
// and nothing resumes it.
type Pipe struct {
	// Told, if it is not nil, is called by the goroutine of the client when the functions of Config have heard all events of the
	// datagrams that came together, before it waits for more. A program that does something about each event can do it once for
	// all of them here. It must be set before DialPipe.
	Told func()

	out    collector
	inbox  inbox
	name   string
	send   func(datagrams [][]byte) error
	closed func()
	list   [][]byte // of flush
}

// NewPipe returns a Pipe. name is the edge for people. The goroutine of the client calls send with datagrams for the edge, which
// are valid during the call; an error ends the client. It calls closed once, as the last.
func NewPipe(name string, send func(datagrams [][]byte) error, closed func()) *Pipe {
	return &Pipe{inbox: newInbox(), name: name, send: send, closed: closed}
}

// Deliver hands datagrams of the edge to the client. It copies them and does not block: a client that does not keep
// up loses what is beyond 1,024 datagrams or 1 MiB, and DNP repeats what matters. Any goroutine may call it.
func (p *Pipe) Deliver(datagrams [][]byte) {
	for _, d := range datagrams {
		p.inbox.put(d)
	}
}

// End ends the client after it has taken what was delivered. If err is an [*EndError], its reason is that of the client,
// else that is [Lost]. Any goroutine may call it; the first error counts.
func (p *Pipe) End(err error) { p.inbox.end(err) }

// DialPipe is [Dial] over a Pipe, which belongs to the client from then on.
func DialPipe(ctx context.Context, p *Pipe, cfg Config) (*Client, error) {
	way := pipeCarrier{p}
	if err := cfg.validate(); err != nil {
		_ = way.close()
		return nil, err
	}
	return dial(ctx, way, cfg.withDefaults())
}

// A pipeCarrier is a Pipe as a carrier, whose methods are no business of the program.
type pipeCarrier struct{ *Pipe }

// pipePeer is the address under which an endpoint knows the edge at the end of a Pipe.
var pipePeer = netip.AddrPortFrom(netip.IPv6Loopback(), 3413)

func (c pipeCarrier) Datagram(size int) []byte        { return c.out.Datagram(size) }
func (c pipeCarrier) Send(_ netip.AddrPort, b []byte) { c.out.collected.add(b) }

func (c pipeCarrier) flush() error {
	if c.out.collected.empty() {
		return nil
	}
	p := c.Pipe
	p.list = p.list[:0]
	for d := range p.out.collected.all {
		p.list = append(p.list, d)
	}
	err := p.send(p.list)
	p.out.collected.reset()
	return err
}

func (c pipeCarrier) read(due time.Time, receive func([]byte)) error {
	if c.Told != nil {
		c.Told()
	}
	return c.inbox.read(due, receive)
}

func (c pipeCarrier) wake()                { c.inbox.wake() }
func (c pipeCarrier) peer() netip.AddrPort { return pipePeer }
func (c pipeCarrier) name() string         { return c.Pipe.name }
func (c pipeCarrier) size() int            { return webSize }

func (c pipeCarrier) status() carrierStatus {
	return carrierStatus{up: true, ordered: true, stats: CarrierStats{Connections: 1, DroppedIn: c.inbox.drops()}}
}

func (c pipeCarrier) close() error {
	c.inbox.timer.Stop()
	c.closed()
	return nil
}
