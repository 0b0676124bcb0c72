package client

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/udp"
)

// run drives the endpoint until the connection ends.
func (c *Client) run() {
	defer close(c.done)
	for {
		due, ended := c.turn()
		if ended {
			break
		}
		err := c.carrier.read(due, c.receive)
		if errors.Is(err, errResumed) {
			c.resume()
		} else if err != nil && !passing(err) {
			c.fail(err)
		}
	}
	c.finish()
}

// passing reports whether an error of a read only says that there is something else to do.
func passing(err error) bool {
	return errors.Is(err, udp.ErrWoken) || errors.Is(err, os.ErrDeadlineExceeded)
}

// turn sends what is due, and returns when the next turn is (zero time = never).
func (c *Client) turn() (due time.Time, ended bool) {
	c.advance()
	c.mu.Lock()
	now := time.Now()
	up := c.carrier.status().up
	if up { // otherwise values wait, and the newest ones are sent when the session is resumed
		c.sendWrites(now)
	}
	due, ended = c.nextTimeout(now, up), c.ended != nil
	c.ready = c.ready || c.made && !ended && (c.login() == nil || c.endpoint.Undelivered(c.conn) == 0)
	c.idle = true
	if c.turned != nil && !ended {
		close(c.turned)
		c.turned = nil
	}
	c.mu.Unlock()
	if err := c.carrier.flush(); err != nil {
		c.fail(err)
		return time.Time{}, true
	}
	return due, ended
}

// advance lets the endpoint do what is due. It is apart from turn because the functions of the program
// hear its events without the lock.
func (c *Client) advance() {
	c.mu.Lock()
	c.idle = false
	now := time.Now()
	c.tell(c.apply(c.endpoint.Advance(now, c.carrier), now))
}

// nextTimeout returns when there is something to do. Without a connection no values are sent.
func (c *Client) nextTimeout(now time.Time, up bool) time.Time {
	due, ok := c.endpoint.NextTimeout()
	switch {
	case !ok:
		due = time.Time{}
	case due.IsZero():
		due = now
	}
	if !up {
		return due
	}
	return earlier(due, c.writesAt())
}

// earlier returns the earlier of two times, of which the zero time is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

// receive handles a datagram.
func (c *Client) receive(p []byte) {
	c.mu.Lock()
	now := time.Now()
	c.tell(c.apply(c.endpoint.Receive(now, c.carrier.peer(), p, c.carrier), now))
}

// A call is an event for the program.
type call struct {
	kind    dnp.EventKind
	state   *State
	changed []int
	message Message
	refused *WriteError
}

// tell releases mu and calls the functions of the program. Data of a message alias buffers that stay
// until the next call of the endpoint, which only this goroutine makes.
func (c *Client) tell(calls []call) {
	c.mu.Unlock()
	for i := range calls {
		e := &calls[i]
		switch {
		case e.kind == dnp.EventMessage && c.cfg.Message != nil:
			c.cfg.Message(c, e.message)
		case e.kind == dnp.EventLinkUp && c.cfg.Link != nil:
			c.cfg.Link(c, e.state)
		case e.kind == dnp.EventLinkDown && c.cfg.Unlink != nil:
			c.cfg.Unlink(c, e.state)
		case e.kind == dnp.EventUpdate && c.cfg.Change != nil:
			c.cfg.Change(c, e.state, e.changed)
		case e.kind == dnp.EventWriteEnded && c.cfg.Refused != nil:
			c.cfg.Refused(c, e.state, e.refused)
		}
	}
}

// apply handles the events of the endpoint and returns what the program hears of them. mu is held. The
// result and the indices in it are valid until the next apply.
func (c *Client) apply(events []dnp.Event, now time.Time) []call {
	calls := c.calls[:0]
	c.indices = c.indices[:0]
	for i := range events {
		e := &events[i]
		switch e.Kind {
		case dnp.EventConnected:
			c.connected()
		case dnp.EventClosed:
			c.ended = c.endError(c.reason(e.Reason), c.trouble(e.Reason))
		case dnp.EventSent:
			c.dequeue()
		case dnp.EventMessage:
			if m := (Message{Data: e.Data, Reliable: e.Reliable, Number: e.Number}); c.envelope(&m) {
				calls = append(calls, call{kind: e.Kind, message: m})
			}
		case dnp.EventLinkOffered:
			if s := c.accept(e); s != nil {
				calls = append(calls, call{kind: dnp.EventLinkUp, state: s})
			}
		case dnp.EventLinkUp:
			if s := c.own[e.Source]; s != nil && !s.linked {
				s.linked = true
				calls = append(calls, call{kind: e.Kind, state: s})
			}
		case dnp.EventUpdate:
			if s, changed := c.update(e); len(changed) > 0 {
				calls = append(calls, call{kind: e.Kind, state: s, changed: changed})
			}
		case dnp.EventWriteEnded:
			calls = c.writeEnded(e, now, calls)
		case dnp.EventLinkDown:
			if s := c.unlink(e); s != nil {
				calls = append(calls, call{kind: e.Kind, state: s})
			}
		}
	}
	c.calls = calls
	return calls
}

// connected notes that the edge answered, and logs in.
func (c *Client) connected() {
	c.made = true
	if login := c.login(); login != nil { // the edge ignores everything before it
		_ = c.conn.Send(login, 0) // a new connection has room for it
	}
	if !c.cfg.Plain {
		c.sayHello()
	}
}

// login returns the login message, or nil.
func (c *Client) login() []byte {
	if c.cfg.Token == "" {
		return c.cfg.Login
	}
	b := append([]byte(nil), 'D', 'N', 'P', 'A', 1) // INTERFACES.md, Logging in
	b = binary.LittleEndian.AppendUint16(b, uint16(len(c.cfg.Token)))
	return append(b, c.cfg.Token...)
}

func (c *Client) reason(r dnp.CloseReason) Reason {
	if r == dnp.ClosePeer && c.made && !c.ready {
		return Refused
	}
	return Reason(r.String())
}

// trouble returns what the carrier knows about an edge that does not answer.
func (c *Client) trouble(r dnp.CloseReason) error {
	if r != dnp.CloseTimeout {
		return nil
	}
	return c.carrier.status().trouble
}

// fail notes that the carrier ended.
func (c *Client) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil {
		return
	}
	if end, ok := errors.AsType[*EndError](err); ok { // the carrier knows why
		if end.Reason == Peer {
			end.Reason = c.reason(dnp.ClosePeer)
		}
		c.ended = c.endError(end.Reason, end.Err)
		return
	}
	if errors.Is(err, net.ErrClosed) && c.closing {
		err = nil
	}
	c.ended = c.endError(Lost, err)
}

// finish tells the program of the end.
func (c *Client) finish() {
	c.mu.Lock()
	var calls []call
	for id, s := range c.states {
		delete(c.states, id)
		s.end()
		calls = append(calls, call{kind: dnp.EventLinkDown, state: s})
	}
	for source, s := range c.own {
		delete(c.own, source)
		if s.linked {
			calls = append(calls, call{kind: dnp.EventLinkDown, state: s})
		}
		s.end()
	}
	ready, ended := c.ready, c.ended
	c.tell(calls)
	if ready && !c.carrier.status().ordered {
		c.leave()
	}
	_ = c.carrier.close() // there is nothing left that its failure could harm
	if ready && c.cfg.End != nil {
		c.cfg.End(c, ended)
	}
}

// leave repeats to the edge that the connection has ended, until the edge answers, a second at most.
func (c *Client) leave() {
	for {
		c.mu.Lock()
		c.endpoint.Advance(time.Now(), c.carrier)
		due, _ := c.endpoint.NextTimeout()
		leaving := c.endpoint.Leaving()
		c.mu.Unlock()
		if err := c.carrier.flush(); !leaving || err != nil || !c.carrier.status().up {
			return
		}
		if err := c.carrier.read(due, c.hearAnswer); err != nil && !passing(err) {
			return
		}
	}
}

// hearAnswer handles a datagram behind the end of the connection, of which the program hears nothing.
func (c *Client) hearAnswer(p []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endpoint.Receive(time.Now(), c.carrier.peer(), p, c.carrier)
}
