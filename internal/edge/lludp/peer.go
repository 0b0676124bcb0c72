package lludp

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/client"
	dnp "github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/edge/adapter"
	"github.com/dnprelay/dnprelay/internal/edge/carrier"
	"github.com/dnprelay/dnprelay/internal/edge/lludp/viewer"
	"github.com/dnprelay/dnprelay/lludp/wire"
)

// A peer is one viewer: its core, and the DNP client that speaks for it.
type peer struct {
	server  *Server
	opening wire.Opening
	home    netip.Addr
	first   string
	last    string
	expires time.Time // of the login, if no circuit opens
	seed    string    // the secret of its capabilities; empty without HTTP login
	client  *client.Client
	wake    chan struct{} // holds one when run has something to do
	gone    chan struct{} // closed when run has ended
	poll    poll

	// mu guards the rest. The goroutines of the socket, of the client and of run meet here, each for one datagram or one change of a
	// state, and none waits for anything meanwhile.
	mu      sync.Mutex
	core    *viewer.Viewer
	addr    netip.AddrPort // invalid until the circuit opens
	objects map[*client.State]*viewer.Object
	armed   time.Time // when run wakes by itself; zero for never

	// run owns these.
	own     *client.State
	refused bool // the edge takes no state of the viewer
	buffer  [2 * wire.PacketMax]byte
}

// A state is a State of the client as a Viewer reads it.
type state struct{ *client.State }

// Floats implements viewer.State.
func (s state) Floats(i int) (f [4]float64) {
	v := s.At(i)
	for k := range min(v.Len(), len(f)) {
		f[k] = v.Component(k)
	}
	return f
}

// Text implements viewer.State.
func (s state) Text(i int) string { return s.At(i).String() }

// Type implements viewer.State.
func (s state) Type(i int) dnp.ValueType { return s.State.Type(i) }

// newPeer returns a peer without a client.
func (s *Server) newPeer(o wire.Opening, home netip.Addr, first, last string) *peer {
	return &peer{
		server: s, opening: o, home: home, first: first, last: last, wake: make(chan struct{}, 1), gone: make(chan struct{}),
		core:    viewer.New(viewer.Config{Region: s.cfg.Region, Opening: o, First: first, Last: last}),
		objects: map[*client.State]*viewer.Object{},
	}
}

// join makes the client. credentials are its token, or its login.
func (p *peer) join(ctx context.Context, credentials client.Config) (err error) {
	cfg := credentials
	cfg.Link, cfg.Unlink, cfg.Change = p.linked, p.unlinked, p.changed
	cfg.Message = func(_ *client.Client, m client.Message) { p.do(func() { p.core.Say(m.Data) }) }
	cfg.End = func(_ *client.Client, err error) { p.ended(err) }
	p.client, err = adapter.Join(ctx, p.server.cfg.Hub, carrier.LLUDP, p.home, cfg)
	return err
}

// do changes the core, and wakes run if it has to do something sooner than it thinks.
func (p *peer) do(change func()) {
	p.mu.Lock()
	change()
	next, ok := p.core.NextTimeout()
	sooner := ok && (p.armed.IsZero() || next.Before(p.armed))
	p.mu.Unlock()
	if sooner {
		p.rouse()
	}
}

func (p *peer) rouse() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

func (p *peer) linked(_ *client.Client, s *client.State) {
	if s.Own() {
		return
	}
	p.do(func() { p.objects[s] = p.core.Link(state{s}) })
}

func (p *peer) unlinked(_ *client.Client, s *client.State) {
	p.do(func() {
		if o := p.objects[s]; o != nil {
			p.core.Unlink(o)
			delete(p.objects, s)
		}
	})
}

func (p *peer) changed(_ *client.Client, s *client.State, indices []int) {
	p.do(func() {
		if o := p.objects[s]; o != nil {
			p.core.Changed(o, indices)
		}
	})
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

func (p *peer) kick(why string) {
	p.mu.Lock()
	p.core.Kick(time.Now(), why, p)
	p.mu.Unlock()
	p.rouse()
}

// cut ends the circuit without a word.
func (p *peer) cut() {
	p.mu.Lock()
	p.core.Cut()
	p.mu.Unlock()
	p.rouse()
}

// receive takes a datagram of the viewer. The goroutine of the socket calls it.
func (p *peer) receive(datagram []byte) {
	p.mu.Lock()
	p.core.Receive(time.Now(), datagram, p)
	p.mu.Unlock()
	p.rouse() // for calls, and because of the new deadline
}

// Datagram implements lludp.Sender. mu is held.
func (p *peer) Datagram(size int) []byte {
	if size > len(p.buffer) {
		return make([]byte, 0, size)
	}
	return p.buffer[:0]
}

// Send implements lludp.Sender. mu is held; the socket is one that does not block for long, and drops instead.
func (p *peer) Send(b []byte) {
	if _, err := p.server.socket.WriteToUDPAddrPort(b, p.addr); err != nil && !errors.Is(err, net.ErrClosed) {
		p.server.counts.unsent.Add(1)
	}
}

// run serves the viewer until it is gone.
func (p *peer) run() {
	defer close(p.gone)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		p.mu.Lock()
		now := time.Now()
		p.core.Advance(now, p)
		calls, over, opened := p.core.Calls(), p.core.Over(), p.addr.IsValid()
		next, ok := p.core.NextTimeout()
		if !opened {
			next, ok = p.expires, true
		}
		p.armed = time.Time{}
		if ok {
			p.armed = next
		}
		p.mu.Unlock()
		for _, c := range calls {
			p.call(c)
		}
		if !opened && !now.Before(p.expires) && p.server.expire(p) {
			over = true
		}
		if over {
			break
		}
		wait := time.Hour
		if ok {
			wait = max(0, time.Until(next))
		}
		timer.Reset(wait)
		select {
		case <-timer.C:
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
			p.server.counts.unset.Add(1)
		}
		p.do(func() { p.core.Written(c.Object) })
	case viewer.Send:
		if p.client.Send(c.Data) != nil {
			p.server.counts.unsaid.Add(1)
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
