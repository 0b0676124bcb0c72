package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/udp"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/auth"
	"github.com/dnprelay/dnprelay/internal/config"
)

// DNPFlags are the flags of commands that act as a game client.
type DNPFlags struct {
	Profile string        `default:"denetwork" env:"-" help:"Profile of the edge: denetwork or spec."`
	Token   string        `env:"DNP_TOKEN" placeholder:"TOKEN|@FILE" help:"Token to log in with, or a file with it, as @FILE."`
	Timeout time.Duration `default:"5s" env:"-" help:"How long to wait for the connection, and for the result."`
}

// Problems lists what is wrong with f.
func (f *DNPFlags) Problems() (list config.Problems) {
	if _, ok := wire.ParseProfile(f.Profile); !ok {
		list.Add("--profile", "want denetwork or spec, got %q", f.Profile)
	}
	if f.Timeout <= 0 {
		list.Add("--timeout", "want more than 0, got %v", f.Timeout)
	}
	return list
}

// A link is a network state that the server linked to the client.
type link struct {
	id       wire.LinkID
	message  []byte
	readOnly bool
	state    *netstate.State
	source   *dnp.Source
	changed  netstate.Mask // values that the last event brought
}

// A watcher, which may be nil, receives what happens to a client, with the link that it is about or nil:
// EventConnected, EventClosed, EventMessage, EventLinkOffered after the client has accepted
// the link, EventUpdate with values that are new, and EventLinkDown. The event is valid
// during the call.
type watcher func(e *dnp.Event, l *link)

// A dnpClient is a DNP client that accepts every link. One goroutine owns it.
type dnpClient struct {
	socket      *udp.Socket
	endpoint    *dnp.Endpoint
	conn        *dnp.Conn
	watch       watcher
	links       map[wire.LinkID]*link
	batch       []udp.Datagram
	token       string
	established bool
	ended       error // why the connection ended; nil before
}

// A step is what a command does after every event of its client, and at the time that it
// returned last (zero time = never). errStop ends the connection without an error.
type step func(c *dnpClient, now time.Time) (wake time.Time, err error)

// errStop is the error of a step that has finished.
var errStop = errors.New("done")

// play connects to a server and calls next until ctx ends, the connection ends or next
// returns an error. The error is that of next, or says why the connection ended.
func (f *DNPFlags) play(ctx context.Context, address string, watch watcher, next step) error {
	c, err := f.dial(address, watch)
	if err != nil {
		return err
	}
	if err = c.run(ctx, next); errors.Is(err, errStop) {
		err = nil
	}
	return errors.Join(err, c.close())
}

// dial begins to connect to a server.
func (f *DNPFlags) dial(address string, watch watcher) (*dnpClient, error) {
	to, err := resolve(address)
	if err != nil {
		return nil, err
	}
	token, err := f.token()
	if err != nil {
		return nil, err
	}
	profile, _ := wire.ParseProfile(f.Profile) // Problems has checked it
	endpoint, err := dnp.New(dnp.Config{
		Profile:        profile,
		ConnectTimeout: f.Timeout,
		ConnectResend:  300 * time.Millisecond, // a person is waiting
		PeerLinksMax:   dnp.LinksPossible,
		PeerValuesMax:  netstate.ValuesMax,
		ScrubInterval:  -1, // the server knows the values that it sent
	})
	if err != nil {
		return nil, err
	}
	socket, err := udp.Open(udp.Config{})
	if err != nil {
		return nil, err
	}
	c := &dnpClient{socket: socket, endpoint: endpoint, watch: watch, token: token, links: map[wire.LinkID]*link{}, batch: make([]udp.Datagram, 64)}
	if c.conn, err = endpoint.Connect(time.Now(), to); err != nil {
		return nil, errors.Join(err, socket.Close())
	}
	return c, nil
}

// token returns the token to log in with; empty if there is none.
func (f *DNPFlags) token() (string, error) {
	token := f.Token
	if file, ok := strings.CutPrefix(f.Token, "@"); ok {
		text, err := os.ReadFile(file)
		if err != nil {
			return "", fmt.Errorf("token: %w", err)
		}
		token = strings.TrimSpace(string(text))
	}
	if len(token) > auth.TokenMax {
		return "", fmt.Errorf("token: has %d bytes, at most %d", len(token), auth.TokenMax)
	}
	return token, nil
}

// resolve returns the address of HOST:PORT. The default port is 3413.
func resolve(address string) (netip.AddrPort, error) {
	if _, _, err := net.SplitHostPort(address); err != nil {
		address = net.JoinHostPort(strings.Trim(address, "[]"), "3413")
	}
	a, err := net.ResolveUDPAddr("udp", address)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("address %s: %w", address, err)
	}
	to := a.AddrPort()
	if !to.Addr().IsValid() {
		to = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), to.Port())
	}
	return netip.AddrPortFrom(to.Addr().Unmap(), to.Port()), nil
}

func (c *dnpClient) run(ctx context.Context, next step) error {
	stop := context.AfterFunc(ctx, c.socket.Wake)
	defer stop()
	for ctx.Err() == nil {
		now := time.Now()
		c.handle(c.endpoint.Advance(now, c.socket.Writer()))
		wake, err := next(c, now)
		if err = errors.Join(cmp.Or(err, c.ended), c.send()); err != nil {
			return err
		}
		if err := c.receive(wake); err != nil {
			return err
		}
	}
	return nil
}

// send sends all waiting datagrams.
func (c *dnpClient) send() error {
	c.handle(c.endpoint.Advance(time.Now(), c.socket.Writer()))
	c.endpoint.Flush(time.Now(), c.socket.Writer())
	return c.socket.Writer().Flush()
}

// receive waits for datagrams until wake, or until the endpoint has something due.
func (c *dnpClient) receive(wake time.Time) error {
	due, ok := c.endpoint.NextTimeout()
	if ok && due.IsZero() {
		due = time.Unix(1, 0)
	}
	if !wake.IsZero() && (!ok || wake.Before(due)) {
		due = wake
	}
	c.socket.SetReadDeadline(due)
	n, err := c.socket.ReadBatch(c.batch)
	for _, d := range c.batch[:n] {
		c.handle(c.endpoint.Receive(time.Now(), d.From, d.Data, c.socket.Writer()))
	}
	if errors.Is(err, udp.ErrWoken) || errors.Is(err, os.ErrDeadlineExceeded) {
		return nil
	}
	return err
}

// close ends the connection and closes the socket.
func (c *dnpClient) close() error {
	c.watch = nil
	if c.ended == nil {
		c.conn.Close(dnp.CloseLocal)
	}
	return errors.Join(c.send(), c.socket.Close())
}

func (c *dnpClient) handle(events []dnp.Event) {
	for i := range events {
		if l, ok := c.apply(&events[i]); ok && c.watch != nil {
			c.watch(&events[i], l)
		}
	}
}

// apply returns the link of an event, if it has one, and whether the event is for the watcher.
func (c *dnpClient) apply(e *dnp.Event) (l *link, ok bool) {
	switch e.Kind {
	case dnp.EventConnected:
		c.established = true
		if c.token != "" { // the edge ignores everything before it
			_ = c.conn.Send(auth.AppendMessage(nil, c.token), 0) // a new connection has room for it
		}
		return nil, true
	case dnp.EventClosed:
		c.ended = c.endError(e.Reason)
		return nil, true
	case dnp.EventMessage:
		return nil, true
	case dnp.EventLinkOffered:
		return c.accept(e)
	case dnp.EventUpdate:
		return c.update(e)
	case dnp.EventLinkDown:
		l, ok = c.links[e.Link]
		delete(c.links, e.Link)
		return l, ok
	}
	return nil, false
}

func (c *dnpClient) endError(reason dnp.CloseReason) error {
	switch {
	case c.established:
		return fmt.Errorf("the connection to %s ended: %s", c.conn.Addr(), reason)
	case reason == dnp.CloseTimeout:
		return fmt.Errorf("no edge answers at %s; is `relay dev` or `edge serve` running there?", c.conn.Addr())
	}
	return fmt.Errorf("%s refused the connection: %s", c.conn.Addr(), reason)
}

func (c *dnpClient) accept(e *dnp.Event) (*link, bool) {
	var values []netstate.Value
	for rest := e.Values; rest.Len() > 0; {
		var t wire.ValueType
		t, _, rest = rest.Next()
		values = append(values, netstate.Value{Type: t})
	}
	layout, err := netstate.NewLayout(values)
	if err != nil {
		c.conn.Reject(e.Link)
		return nil, false
	}
	l := &link{id: e.Link, message: bytes.Clone(e.Data), readOnly: e.ReadOnly, state: netstate.NewState(layout), changed: netstate.NewMask(layout.Len())}
	l.state.SetAll(e.Values)
	l.changed.Fill(layout.Len())
	l.source = c.endpoint.NewSource(dnp.SourceConfig{State: l.state, Message: l.message})
	if err := c.conn.Accept(e.Link, l.source); err != nil {
		return nil, false // the server has withdrawn the link
	}
	c.links[e.Link] = l
	return l, true
}

func (c *dnpClient) update(e *dnp.Event) (*link, bool) {
	l := c.links[e.Link]
	if l == nil {
		return nil, false
	}
	l.changed = netstate.NewMask(l.state.Layout().Len())
	for index, value, ok := e.Update.Next(); ok; index, value, ok = e.Update.Next() {
		if l.state.Set(index, value) {
			l.changed.Set(index)
		}
	}
	return l, !l.changed.Empty() // other updates are repetitions
}
