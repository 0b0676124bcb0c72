package lludp

import (
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/dnp/udp"
	dnp "github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/edge/adapter"
	"github.com/dnprelay/dnprelay/internal/edge/carrier"
	"github.com/dnprelay/dnprelay/internal/edge/lludp/viewer"
	"github.com/dnprelay/dnprelay/internal/turn"
	"github.com/dnprelay/dnprelay/lludp/wire"
)

// A peer is one viewer: its core, and the DNP client that speaks for it.
type peer struct {
	server  *Server
	opening wire.Opening
	home    netip.Addr
	first   string
	last    string
	seed    string // the secret of its capabilities; empty without HTTP login
	client  *client.Client
	wake    turn.Wake     // run has something to do
	gone    chan struct{} // closed when run has ended
	poll    poll

	// The goroutine of the client owns these.
	changes []change // that the core does not know yet
	indices []int    // of the values in changes

	// mu guards the rest. The goroutines of the socket, of the client and of run meet here, each for one datagram or one batch of
	// changes, and none waits for anything meanwhile but a Writer, which others hold for one flush.
	mu      sync.Mutex
	core    *viewer.Viewer
	addr    netip.AddrPort // invalid until the circuit opens
	expires time.Time      // of the login, if no circuit opens
	timer   *time.Timer    // wakes run
	armed   time.Time      // when it does; zero for never
	writer  *udp.Writer    // that the core uses; nil if it sends nothing

	// run owns these.
	own     *client.State
	refused bool // the edge takes no state of the viewer
}

// A change is the values of a state that changed: indices[first:last] of the peer.
type change struct {
	object      *viewer.Object
	first, last int
}

// A state is a State of the client as a Viewer reads it.
type state struct{ *client.State }

// Floats implements viewer.State.
func (s state) Floats(i int) (f [4]float64) {
	s.AppendFloats(f[:0], i)
	return f
}

// Text implements viewer.State.
func (s state) Text(i int) string { return s.At(i).String() }

// Type implements viewer.State.
func (s state) Type(i int) dnp.ValueType { return s.State.Type(i) }

// newPeer returns a peer without a client.
func (s *Server) newPeer(o wire.Opening, home netip.Addr, first, last string) *peer {
	return &peer{
		server: s, opening: o, home: home, first: first, last: last, wake: turn.NewWake(), gone: make(chan struct{}),
		core:  viewer.New(viewer.Config{Region: s.cfg.Region, Opening: o, First: first, Last: last}),
		timer: time.NewTimer(0),
	}
}

// join makes the client. credentials are its token, or its login.
func (p *peer) join(ctx context.Context, credentials client.Config) (err error) {
	cfg := credentials
	cfg.Link, cfg.Unlink, cfg.Change = p.linked, p.unlinked, p.changed
	cfg.Message = func(_ *client.Client, m client.Message) { p.do(func() { p.core.Say(m.Data) }) }
	cfg.End = func(_ *client.Client, err error) { p.ended(err) }
	p.client, err = adapter.Join(ctx, p.server.cfg.Hub, carrier.LLUDP, p.home, cfg, p.told)
	return err
}

// do changes the core.
func (p *peer) do(change func()) {
	p.mu.Lock()
	change()
	p.settle()
}

// settle ends a use of the core, for which mu is held: it sets the timer, releases mu, sends what the core wrote, and wakes run if that
// has to do something.
func (p *peer) settle() {
	busy := p.core.Over() || p.core.Called()
	p.arm()
	w := p.writer
	p.writer = nil
	p.mu.Unlock()
	if w != nil {
		p.server.transmit(w)
	}
	if busy {
		p.wake.Wake()
	}
}

// arm sets the timer. mu is held.
func (p *peer) arm() {
	next, ok := p.core.NextTimeout()
	if !p.addr.IsValid() {
		next, ok = p.expires, true
	}
	switch {
	case !ok:
		p.armed = time.Time{}
		p.timer.Stop()
	case !next.Equal(p.armed):
		p.armed = next
		p.timer.Reset(max(0, time.Until(next)))
	}
}

func (p *peer) linked(_ *client.Client, s *client.State) {
	if !s.Own() {
		p.do(func() { s.Data = p.core.Link(state{s}) })
	}
}

func (p *peer) unlinked(_ *client.Client, s *client.State) {
	if o, ok := s.Data.(*viewer.Object); ok {
		p.do(func() { p.core.Unlink(o) })
	}
}

// changed keeps a change until the client has told all of them.
func (p *peer) changed(_ *client.Client, s *client.State, indices []int) {
	if o, ok := s.Data.(*viewer.Object); ok {
		first := len(p.indices)
		p.indices = append(p.indices, indices...)
		p.changes = append(p.changes, change{o, first, len(p.indices)})
	}
}

// told has the core know and send what changed. Doing it once for all datagrams that came together is what makes a change cheap; and
// the goroutine of the client does it, because a wake-up of run costs more than the packets do.
func (p *peer) told() {
	if len(p.changes) == 0 {
		return
	}
	p.mu.Lock()
	for _, c := range p.changes {
		p.core.Changed(c.object, p.indices[c.first:c.last])
	}
	clear(p.changes)
	p.changes, p.indices = p.changes[:0], p.indices[:0]
	if next, ok := p.core.NextTimeout(); ok {
		if now := time.Now(); !now.Before(next) {
			p.core.Advance(now, p)
		}
	}
	p.settle()
}

// ended is told why the client ended.
func (p *peer) ended(err error) {
	why := "The session has ended. Please log in again."
	var ended *adapter.Ended
	if errors.As(err, &ended) && (ended.Reason == carrier.Leaving || ended.Reason == carrier.NotReady) {
		why = "The region restarts. Please log in again."
	}
	p.kick(why)
}

func (p *peer) kick(why string) { p.do(func() { p.core.Kick(time.Now(), why, p) }) }

// cut ends the circuit without a word.
func (p *peer) cut() { p.do(p.core.Cut) }

// receive takes a datagram of the viewer. The goroutine of the socket calls it.
func (p *peer) receive(datagram []byte) { p.do(func() { p.core.Receive(time.Now(), datagram, p) }) }

// Datagram implements lludp.Sender. mu is held.
func (p *peer) Datagram(size int) []byte {
	if p.writer == nil {
		p.writer = <-p.server.writers
	}
	return p.writer.Datagram(size)
}

// Send implements lludp.Sender. mu is held.
func (p *peer) Send(b []byte) { p.writer.Send(p.addr, b) }

// run serves the viewer until it is gone.
func (p *peer) run() {
	defer close(p.gone)
	defer p.timer.Stop()
	for over := false; !over; {
		p.mu.Lock()
		now := time.Now()
		p.core.Advance(now, p)
		calls, opened := p.core.Calls(), p.addr.IsValid()
		expired := !opened && !now.Before(p.expires)
		over = p.core.Over()
		p.settle()
		for _, c := range calls {
			p.call(c)
		}
		if over = over || expired && p.server.expire(p); over {
			break
		}
		select {
		case <-p.timer.C:
		case <-p.wake:
		}
	}
	p.leave()
	p.server.remove(p)
}

// leave ends the session.
func (p *peer) leave() { _ = p.client.Close() } // the error is why it ended before

// call does what the viewer wants.
func (p *peer) call(c viewer.Call) {
	switch c.Kind {
	case viewer.Set:
		s := c.Object.State().(state)
		if s.SetAt(c.Index, c.Value) != nil {
			p.server.count(&p.server.counts.unset)
		}
		p.do(func() { p.core.Written(c.Object) })
	case viewer.Send:
		if p.client.Send(c.Data) != nil {
			p.server.count(&p.server.counts.unsaid)
		}
	case viewer.Own:
		p.show(c.Agent)
	case viewer.Leave:
		p.server.serving.Go(p.leave) // run has to send the answer meanwhile
	}
}

// show sets the viewer's own state.
func (p *peer) show(a viewer.Agent) {
	switch {
	case p.refused:
	case p.own == nil:
		var err error
		p.own, err = p.client.Offer(viewer.OwnKey+p.first+" "+p.last,
			client.Field{Name: "pos", Type: "vector3f32", Value: a.Position},
			client.Field{Name: "rot", Type: "quaternionf32", Value: a.Rotation},
			client.Field{Name: "keys", Type: "uint32", Value: a.Keys})
		p.refused = err != nil
	default:
		err := errors.Join(p.own.SetAt(0, a.Position), p.own.SetAt(1, a.Rotation), p.own.SetAt(2, a.Keys))
		p.refused = err != nil // the edge does not take it
	}
}
