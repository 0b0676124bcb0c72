package dnptest

import (
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// What only tests of the model do with a Client.

// Restart forgets everything and connects again, like a process that crashed and was
// started again on the same port.
func (c *Client) Restart(now time.Time) {
	c.phase, c.reason, c.inbox, c.links = Idle, "", nil, linkTable{}
	c.forget()
	c.Connect(now)
}

// Free drops the state of a link. The peer is not told. If values of it wait, the
// libraries send a LinkID without values.
func (c *Client) Free(l *Link) { l.State = nil }

// Link returns the link with this LinkID, or nil.
func (c *Client) Link(id wire.LinkID) *Link { return c.links.byID[id] }

// Next returns the reliable number that the client expects.
func (c *Client) Next() int { return c.recv.next }

// Held returns how many reliable commands are queued, repeats included.
func (c *Client) Held() int { return len(c.recv.held) }
