package variant

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/internal/edge/adapter"
	"github.com/dnprelay/dnprelay/internal/edge/carrier"
	"github.com/dnprelay/dnprelay/internal/edge/variant/protocol"
	"github.com/dnprelay/dnprelay/internal/turn"
)

// A peer is one client that speaks Variants, and its DNP client.
type peer struct {
	adapter *Adapter
	home    netip.Addr
	udp     bool
	wake    turn.Wake // the goroutine that sends has something to do
	ctx     context.Context
	cancel  context.CancelFunc // ends the making of a connection
	joining sync.WaitGroup

	// mu guards the rest and everything behind core. The goroutines of the DNP client, of the reader and of the sender meet
	// here, each for one event; the core would have to copy all values to be owned by one of them. A holder of mu may call
	// the client, whose goroutine holds no lock when it calls.
	mu       sync.Mutex
	core     *protocol.Core
	client   *client.Client // nil before it has joined
	newcomer bool           // counts as one
	own      map[int64]*client.State
	ownIDs   map[*client.State]int64
}

// newPeer returns a peer that has entered. The caller sets core.
func (a *Adapter) newPeer(home netip.Addr) *peer {
	p := &peer{adapter: a, home: home, wake: turn.NewWake(), newcomer: true}
	p.ctx, p.cancel = context.WithTimeout(context.Background(), joinTimeout)
	return p
}

// Hello implements protocol.Client. mu is held.
func (p *peer) Hello(h protocol.Hello) {
	p.joining.Go(func() { p.join(h) })
}

func (p *peer) join(h protocol.Hello) {
	c, err := adapter.Join(p.ctx, p.adapter.cfg.Hub, carrier.Variant, p.home, client.Config{
		Token: h.Token, Login: h.Login,
		Link: func(c *client.Client, s *client.State) {
			p.event(c, func(now time.Time) { p.core.Linked(now, p.id(s), state{s}) })
		},
		Unlink: func(c *client.Client, s *client.State) {
			p.event(c, func(now time.Time) { p.unlinked(now, s) })
		},
		Change: func(c *client.Client, s *client.State, changed []int) {
			p.event(c, func(now time.Time) { p.core.Changed(now, p.id(s), changed) })
		},
		Message: func(c *client.Client, m client.Message) {
			p.event(c, func(time.Time) { p.core.Message(m.Data, m.Reliable) })
		},
		End: func(c *client.Client, err error) {
			p.event(c, func(time.Time) { p.core.End(p.adapter.reason(err), "") })
		},
	}, nil)
	if err != nil {
		p.end(p.adapter.reason(err))
		return
	}
	p.event(c, func(time.Time) {})
}

// event handles an event of the DNP client, which has joined: events come before Join has returned, too.
func (p *peer) event(c *client.Client, handle func(now time.Time)) {
	p.mu.Lock()
	if p.client == nil {
		p.client = c
		p.core.Welcome()
		p.leaveNewcomers()
		p.adapter.joined.Add(1)
	}
	handle(time.Now())
	p.mu.Unlock()
	p.wake.Wake()
}

// end ends the peer, if it has not ended.
func (p *peer) end(r protocol.Reason) {
	p.mu.Lock()
	p.core.End(r, "")
	p.mu.Unlock()
	p.wake.Wake()
}

// leaveNewcomers notes that the peer has joined or ended. mu is held.
func (p *peer) leaveNewcomers() {
	if p.newcomer {
		p.newcomer = false
		p.adapter.newcomers.Leave(p.home)
	}
}

// close ends the DNP client of a peer that has ended, and waits for that.
func (p *peer) close() {
	p.cancel()
	p.joining.Wait()
	p.mu.Lock()
	p.leaveNewcomers()
	c := p.client
	p.mu.Unlock()
	if c != nil {
		_ = c.Close() // returns no error
	}
	p.adapter.remove(p)
}

// id returns the number under which the peer knows a state. mu is held.
func (p *peer) id(s *client.State) int64 {
	if id, ok := p.ownIDs[s]; ok {
		return id
	}
	return int64(s.ID())
}

func (p *peer) unlinked(now time.Time, s *client.State) {
	id := p.id(s)
	p.core.Unlinked(now, id)
	p.forget(id)
}

func (p *peer) forget(id int64) {
	if s := p.own[id]; s != nil {
		delete(p.own, id)
		delete(p.ownIDs, s)
	}
}

// Send implements protocol.Client. mu is held.
func (p *peer) Send(data []byte, reliable bool) error {
	if !reliable {
		return p.client.SendUnreliable(data)
	}
	err := p.client.Send(data)
	if errors.Is(err, client.ErrFull) {
		return protocol.ErrBusy
	}
	return err
}

// Offer implements protocol.Client. mu is held.
func (p *peer) Offer(id int64, message string, fields []protocol.Field) (protocol.State, error) {
	list := make([]client.Field, len(fields))
	for i, f := range fields {
		list[i] = client.Field{Name: f.Name, Type: f.Type.String()}
		v, ok := client.NewValue(f.Type, f.Value)
		if ok {
			list[i].Value = v
		}
	}
	s, err := p.client.Offer(message, list...)
	if err != nil {
		return nil, err
	}
	if p.own == nil {
		p.own, p.ownIDs = make(map[int64]*client.State), make(map[*client.State]int64)
	}
	p.own[id], p.ownIDs[s] = s, id
	return state{s}, nil
}

// Withdraw implements protocol.Client. mu is held.
func (p *peer) Withdraw(id int64) {
	if s := p.own[id]; s != nil {
		p.client.Withdraw(s)
		p.forget(id)
	}
}

// A state is a client.State as the core sees it.
type state struct{ *client.State }

// Append implements protocol.State.
func (s state) Append(b []byte, i int) []byte { return s.At(i).Append(b) }

// Set implements protocol.State.
func (s state) Set(i int, enc []byte) error {
	v, ok := client.NewValue(s.Type(i), enc)
	if !ok {
		return errors.New("the value does not fit its type")
	}
	return s.SetAt(i, v)
}

// endings are what a peer is told for reasons of the edge, other than protocol.Leaving.
var endings = map[carrier.Reason]protocol.Reason{
	carrier.Full: protocol.Full, carrier.TooMany: protocol.TooMany, carrier.NotReady: protocol.NotReady, carrier.Over: protocol.Over,
}

// reason returns what a peer is told about the end of its DNP client, or that there is none.
func (a *Adapter) reason(err error) protocol.Reason {
	if ended, ok := errors.AsType[*adapter.Ended](err); ok {
		return cmp.Or(endings[ended.Reason], protocol.Leaving)
	}
	end, ok := errors.AsType[*client.EndError](err)
	switch {
	case ok && end.Reason == client.Refused:
		return protocol.Refused
	case ok && end.Reason == client.Peer && a.cfg.Hub.Ready():
		return protocol.Over
	case ok && end.Reason == client.Peer, ok && end.Made: // it drains, or hangs
		return protocol.Leaving
	}
	return protocol.NotReady
}
