package systest

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/command"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/outbox"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/simnet"
)

// A library is the client of a simulation: a model of a library of DNP (dnptest.Client), or a numberedClient.
type library interface {
	simnet.Node
	Connect(now time.Time)
	Close(now time.Time)
	Phase() dnptest.Phase
	Behaviour() dnptest.Behaviour
	Send(now time.Time, message []byte) error
	Queued() int
	Links() []*dnptest.Link
	LinkNamed(message string) *dnptest.Link
	Value(message string, index int) []byte
	Offer(now time.Time, s *netstate.State, message []byte, readOnly bool) (*dnptest.Link, error)
	Set(l *dnptest.Link, index int, value []byte) bool
}

// A numberedConfig is the application of a numberedClient, and the way to its edge.
type numberedConfig struct {
	Net    *simnet.Net
	Seed   uint64
	Server netip.AddrPort
	App    dnptest.App
	Send   func(p []byte)
	Wake   func() // has Net call NextTimeout

	// Up reports whether there is a connection; nil for one that is always there. Reliable says that it loses nothing.
	Up       func() bool
	Reliable bool

	// Excused reports whether the edge may show an older value than one that it showed, or the client wrote, at that time; nil if
	// it never may.
	Excused func(since time.Time) bool
}

// A numberedClient is a client that numbers its writes: the parts of package client without goroutines. The numbers that it
// writes count up over all its values, so a lower one that comes back undoes a write.
type numberedClient struct {
	numberedConfig
	ep   *dnp.Endpoint
	conn *dnp.Conn

	phase   dnptest.Phase
	out     outbox.Outbox[numberedValue]
	granted bool
	flushAt time.Time
	states  []*numberedState
	undone  string // how the client showed an older value than one that it wrote
	writes  map[uint16]*numberedWrite
}

// A numberedState is a state of the client, its own or one of the edge.
type numberedState struct {
	*dnptest.Link
	source *dnp.Source
	orders []wire.Order // by index
	newest []uint16     // by index: the highest number among what the client wrote and has shown
	since  []time.Time  // by index: when it showed that first
}

type numberedValue struct {
	*numberedState
	index int
}

// A numberedWrite is what became of a write. Without an answer, confirmed and refused are false.
type numberedWrite struct {
	confirmed bool // the edge acknowledged it before the client wrote another value
	refused   bool
	over      bool // it has ended: confirmed, refused, replaced, or with its link
}

func newNumberedClient(cfg numberedConfig) *numberedClient {
	c := &numberedClient{numberedConfig: cfg, writes: make(map[uint16]*numberedWrite)}
	c.out.Reliable = cfg.Reliable
	var err error
	if c.ep, err = dnp.New(dnp.Config{PeerLinksMax: 4096, Refresh: []time.Duration{}, ScrubInterval: -1, Rand: rand.New(rand.NewPCG(cfg.Seed, 1))}); err != nil {
		panic(err)
	}
	return c
}

// Connect implements library.
func (c *numberedClient) Connect(now time.Time) {
	var err error
	if c.conn, err = c.ep.Connect(now, c.Server); err != nil {
		panic(err)
	}
	c.phase = dnptest.Connecting
}

// Close implements library.
func (c *numberedClient) Close(time.Time) { c.conn.Close(dnp.CloseLocal) }

// Phase implements library.
func (c *numberedClient) Phase() dnptest.Phase { return c.phase }

// Behaviour implements library. Only what judges ask for is there.
func (c *numberedClient) Behaviour() dnptest.Behaviour { return dnptest.Behaviour{Name: "numbered"} }

// Send implements library.
func (c *numberedClient) Send(_ time.Time, message []byte) error { return c.conn.Send(message, 0) }

// Queued implements library.
func (c *numberedClient) Queued() int { return c.ep.Undelivered(c.conn) }

// Links implements library.
func (c *numberedClient) Links() (all []*dnptest.Link) {
	for _, s := range c.states {
		all = append(all, s.Link)
	}
	return all
}

// LinkNamed implements library.
func (c *numberedClient) LinkNamed(message string) *dnptest.Link {
	for _, s := range slices.Backward(c.states) {
		if string(s.Message) == message {
			return s.Link
		}
	}
	return nil
}

// Value implements library.
func (c *numberedClient) Value(message string, index int) []byte {
	if l := c.LinkNamed(message); l != nil {
		return l.State.Value(index)
	}
	return nil
}

// Offer implements library.
func (c *numberedClient) Offer(_ time.Time, state *netstate.State, message []byte, readOnly bool) (*dnptest.Link, error) {
	s := c.add(&dnptest.Link{Own: true, Phase: dnptest.LinkListening, Message: message, State: state, ReadOnly: readOnly})
	return s.Link, c.conn.Link(s.source, readOnly)
}

// Set implements library.
func (c *numberedClient) Set(l *dnptest.Link, index int, value []byte) bool {
	s := c.stateOf(func(s *numberedState) bool { return s.Link == l })
	if s == nil || c.phase != dnptest.Connected || l.ReadOnly && !l.Own {
		return false
	}
	k := numberedValue{s, index}
	n := binary.LittleEndian.Uint16(value)
	w := &numberedWrite{}
	c.writes[n], s.newest[index], s.since[index] = w, n, c.Net.Now()
	s.State.Set(index, value)
	c.out.Set(k, func(r outbox.Result) {
		w.over = true
		if !c.wroteSince(s, index, n) { // otherwise it is the result of a later one
			w.refused, w.confirmed = r.Refused, !r.Refused && !r.Lost
		}
	})
	return true
}

// wroteSince reports whether the client wrote to a value after n, perhaps through a later link of the state.
func (c *numberedClient) wroteSince(s *numberedState, index int, n uint16) bool {
	return slices.ContainsFunc(c.states, func(o *numberedState) bool {
		return (o == s || !o.Own && !s.Own && string(o.Message) == string(s.Message)) && o.newest[index] > n
	})
}

// add makes the source of a link.
func (c *numberedClient) add(l *dnptest.Link) *numberedState {
	n := l.State.Layout().Len()
	s := &numberedState{Link: l, orders: make([]wire.Order, n), newest: make([]uint16, n), since: make([]time.Time, n)}
	s.source = c.ep.NewSource(dnp.SourceConfig{State: l.State, Message: l.Message})
	c.states = append(c.states, s)
	return s
}

func (c *numberedClient) stateOf(is func(*numberedState) bool) *numberedState {
	if i := slices.IndexFunc(c.states, is); i >= 0 {
		return c.states[i]
	}
	return nil
}

// Datagram implements dnp.Sender.
func (c *numberedClient) Datagram(size int) []byte { return make([]byte, 0, size) }

// up reports whether there is a connection.
func (c *numberedClient) up() bool { return c.Up == nil || c.Up() }

// A numberedSender is a numberedClient as a dnp.Sender.
type numberedSender struct{ *numberedClient }

// Send implements dnp.Sender.
func (c numberedSender) Send(_ netip.AddrPort, p []byte) { c.numberedConfig.Send(p) }

// Receive implements simnet.Node.
func (c *numberedClient) Receive(now time.Time, _ netip.AddrPort, p []byte) {
	c.handle(now, c.ep.Receive(now, c.Server, p, numberedSender{c}))
}

// Advance implements simnet.Node.
func (c *numberedClient) Advance(now time.Time) {
	c.handle(now, c.ep.Advance(now, numberedSender{c}))
	if c.granted && c.up() {
		c.sendWrites(now)
	}
}

func (c *numberedClient) sendWrites(now time.Time) {
	for number, keys := c.out.Due(now, nil); number != 0; number, keys = c.out.Due(now, nil) {
		c.conn.SendValues(number, refs(keys), numberedSender{c})
	}
	if now.Before(c.flushAt) {
		return
	}
	for keys := c.out.Unsent(nil, numberedValue.linked); len(keys) > 0; {
		n := c.conn.SendValues(c.out.Next(), refs(keys), numberedSender{c})
		if n == 0 {
			break
		}
		c.out.Sent(now, keys[:n])
		keys = keys[n:]
		c.flushAt = now.Add(30 * time.Millisecond)
	}
}

// resume has everything sent again that has no answer: there is another connection.
func (c *numberedClient) resume() {
	c.out.Resume(c.Net.Now())
	c.flushAt = time.Time{}
	c.Wake()
}

// linked reports whether the edge can be sent the value.
func (k numberedValue) linked() bool { return k.Phase == dnptest.LinkIsUp }

func refs(keys []numberedValue) (refs []dnp.ValueRef) {
	for _, k := range keys {
		refs = append(refs, dnp.ValueRef{Source: k.source, Index: k.index})
	}
	return refs
}

// NextTimeout implements simnet.Node.
func (c *numberedClient) NextTimeout() (time.Time, bool) {
	at, ok := c.ep.NextTimeout()
	add := func(t time.Time) {
		if !t.IsZero() && (!ok || t.Before(at)) {
			at, ok = t, true
		}
	}
	if c.granted && c.up() {
		add(c.out.NextTimeout())
		if len(c.out.Unsent(nil, numberedValue.linked)) > 0 {
			add(c.flushAt.Add(time.Nanosecond))
		}
	}
	return at, ok
}

func (c *numberedClient) handle(now time.Time, events []dnp.Event) {
	for i := range events {
		e := &events[i]
		s := c.stateOf(func(s *numberedState) bool { return s.source == e.Source && e.Source != nil })
		switch {
		case e.Kind == dnp.EventConnected:
			c.connected()
		case e.Kind == dnp.EventMessage:
			c.message(e)
		case e.Kind == dnp.EventLinkOffered:
			c.accept(e)
		case e.Kind == dnp.EventLinkUp && s != nil:
			link, _ := c.conn.LinkOf(e.Source)
			s.ID, s.Phase = link.ID, dnptest.LinkIsUp
			c.tell(c.App.LinkUp, s)
		case e.Kind == dnp.EventUpdate && s != nil:
			c.update(s, e)
		case e.Kind == dnp.EventWriteEnded:
			c.writeEnded(now, e)
		case e.Kind == dnp.EventLinkDown && s != nil:
			c.unlink(s)
		case e.Kind == dnp.EventClosed:
			c.ended(e.Reason.String())
		}
	}
}

func (c *numberedClient) tell(f func(*dnptest.Link), s *numberedState) {
	if f != nil {
		f(s.Link)
	}
}

func (c *numberedClient) connected() {
	c.phase = dnptest.Connected
	if err := c.conn.Send(command.AppendHello(nil, command.Commands|command.Writes), 0); err != nil {
		panic(err)
	}
	if c.App.Connected != nil {
		c.App.Connected()
	}
}

func (c *numberedClient) message(e *dnp.Event) {
	if env, err := command.Parse(e.Data); err == nil && e.Reliable && env.Kind == command.KindAnswer && env.Answer.ID == command.HelloID {
		c.granted = env.Answer.Granted()&command.Writes != 0
		c.conn.ExpectOrder()
	}
	if c.App.Message != nil {
		c.App.Message(dnptest.Message{Data: bytes.Clone(e.Data), Reliable: e.Reliable})
	}
}

func (c *numberedClient) accept(e *dnp.Event) {
	var values []netstate.Value
	for rest := e.Values; rest.Len() > 0; {
		var t wire.ValueType
		t, _, rest = rest.Next()
		values = append(values, netstate.Value{Type: t})
	}
	layout, err := netstate.NewLayout(values)
	if err != nil {
		c.conn.Reject(e.Link)
		return
	}
	state := netstate.NewState(layout)
	state.SetAll(e.Values)
	s := c.add(&dnptest.Link{ID: e.Link, ReadOnly: e.ReadOnly, Phase: dnptest.LinkIsUp, Message: bytes.Clone(e.Data), State: state})
	if c.conn.Accept(e.Link, s.source) != nil {
		c.remove(s) // the edge has withdrawn the link
		return
	}
	c.tell(c.App.LinkUp, s)
}

func (c *numberedClient) update(s *numberedState, e *dnp.Event) {
	for i, v, ok := e.Update.Next(); ok; i, v, ok = e.Update.Next() {
		if e.Order < s.orders[i] {
			continue
		}
		taken := e.Order.Generation() > s.orders[i].Generation()
		if s.orders[i] = e.Order; c.out.Receive(numberedValue{s, i}, e.Order, v) {
			if taken { // by an edge whose copy may be from before a write that the former edge acknowledged
				s.newest[i] = 0
			}
			c.show(s, i, v)
		}
	}
}

func (c *numberedClient) writeEnded(now time.Time, e *dnp.Event) {
	refusal := func(k numberedValue) (wire.RefusalCode, bool) {
		i := slices.IndexFunc(e.Refused, func(v wire.RefusedValue) bool { return v.Link == k.ID && int(v.Index) == k.index })
		if i < 0 {
			return 0, false
		}
		return e.Refused[i].Code, true
	}
	for _, ended := range c.out.Acknowledge(now, uint32(e.Number), e.Order, refusal, nil) {
		k := ended.Key
		ended.Tell()
		if ended.Result.Refused {
			k.newest[k.index] = 0 // the client shows an earlier value again
		}
		k.orders[k.index] = max(k.orders[k.index], e.Order)
		if ended.Value != nil {
			c.show(k.numberedState, k.index, ended.Value)
		}
	}
}

// show takes a value of the edge.
func (c *numberedClient) show(s *numberedState, i int, value []byte) {
	s.State.Set(i, value)
	if len(value) == 2 {
		c.shown(s, i, binary.LittleEndian.Uint16(value))
	}
	if c.App.Updated != nil {
		c.App.Updated(s.Link, i)
	}
}

// shown judges a number that the client shows.
func (c *numberedClient) shown(s *numberedState, i int, n uint16) {
	switch {
	case c.writes[n] == nil: // written by somebody else
	case n >= s.newest[i] || c.Excused != nil && c.Excused(s.since[i]):
		s.newest[i], s.since[i] = n, c.Net.Now()
	case c.undone == "":
		c.undone = fmt.Sprintf("value %d of %s goes back from %d to %d at %v", i, s.Message, s.newest[i], n, c.Net.Elapsed())
	}
}

func (c *numberedClient) unlink(s *numberedState) {
	c.remove(s)
	c.tell(c.App.LinkDown, s)
}

func (c *numberedClient) remove(s *numberedState) {
	s.Phase = dnptest.LinkIsDown
	s.source.Remove()
	c.states = slices.DeleteFunc(c.states, func(x *numberedState) bool { return x == s })
	c.out.Drop(func(k numberedValue) bool { return k.numberedState == s })
}

func (c *numberedClient) ended(reason string) {
	c.phase, c.granted = dnptest.Closed, false
	for len(c.states) > 0 {
		c.remove(c.states[0])
	}
	if c.App.Closed != nil {
		c.App.Closed(reason)
	}
}
