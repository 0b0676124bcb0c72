package dnp

import (
	"net/netip"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// A Conn is a connection with one peer. Its methods only queue; the next Advance
// sends. After EventClosed they do nothing or return ErrClosed.
type Conn struct {
	addr netip.AddrPort
	data any
}

// Addr returns the address of the peer.
func (c *Conn) Addr() netip.AddrPort { return c.addr }

// Data returns what SetData was given.
func (c *Conn) Data() any { return c.data }

// SetData keeps something for the owner.
func (c *Conn) SetData(data any) { c.data = data }

// Established reports whether the connection is made and not closed.
func (c *Conn) Established() bool { return false }

// SpeaksLong reports whether the peer is known to understand command 10.
func (c *Conn) SpeaksLong() bool { return false }

// LastHeard returns when a datagram that made sense arrived last.
func (c *Conn) LastHeard() time.Time { return time.Time{} }

// Send queues a reliable message of 1 to LongMax bytes (60,000 in profile spec),
// which it copies. With a token that is not 0, EventSent tells its number. Errors
// are ErrEmpty, ErrTooLarge, ErrClosed, and ErrBacklog, which closes the
// connection, because a peer that misses a message must know.
func (c *Conn) Send(data []byte, token uint64) error { return nil }

// SendUnreliable queues an unreliable message of 1 to MessageMax bytes, which it
// copies, for the next Advance. It is dropped, and counted, when too many wait.
// Errors are ErrEmpty, ErrTooLarge and ErrClosed.
func (c *Conn) SendUnreliable(data []byte) error { return nil }

// Link offers the peer a link to s, as soon as the send window has room. Errors
// are ErrClosed, ErrLinked, and ErrLinks if LinksMax links exist or the LinkIds
// are used up.
func (c *Conn) Link(s *Source, readOnly bool) error { return nil }

// Unlink takes the link to s down, whoever offered it, and sends the farewell of
// s before if wanted. Without a link it does nothing.
func (c *Conn) Unlink(s *Source, farewell bool) {}

// Accept answers EventLinkOffered: the state of s, whose layout must fit the
// values offered, is linked. Its initial values are those that the peer sent, so
// s should have them. Errors are ErrClosed, ErrNoLink and ErrLinked.
func (c *Conn) Accept(link wire.LinkID, s *Source) error { return nil }

// Reject answers EventLinkOffered with LinkDown.
func (c *Conn) Reject(link wire.LinkID) {}

// A LinkPhase is how far a link is.
type LinkPhase uint8

const (
	LinkQueued   LinkPhase = iota + 1 // we will offer it
	LinkOffered                       // offered, by us or the peer, and not answered
	LinkPresumed                      // we offered it, the peer acknowledged the offer and said nothing for half a second
	LinkUp                            // linked
)

// A LinkInfo describes a link of a connection.
type LinkInfo struct {
	ID       wire.LinkID
	Phase    LinkPhase
	ReadOnly bool // the side that did not offer it must not write
	ByPeer   bool // the peer offered it
}

// SourceOf returns the state that is linked as link.
func (c *Conn) SourceOf(link wire.LinkID) (*Source, bool) { return nil, false }

// LinkOf returns the link to s.
func (c *Conn) LinkOf(s *Source) (LinkInfo, bool) { return LinkInfo{}, false }

// Hold says that the peer wrote value, which is copied, to element index of a
// link. That element is not sent to the peer until Release or Refuse, nor
// afterwards for as long as the state has these very bytes.
func (c *Conn) Hold(link wire.LinkID, index int, value []byte) {}

// Release says that what the peer wrote has become the truth, for now.
func (c *Conn) Release(link wire.LinkID, index int) {}

// Refuse says that what the peer wrote did not become the truth. The peer is sent
// the value that did.
func (c *Conn) Refuse(link wire.LinkID, index int) {}

// Close ends the connection: the next Advance sends ConnectionClose and reports
// EventClosed with this reason. With CloseMoved nothing is sent.
func (c *Conn) Close(reason CloseReason) {}

// AppendSnapshot appends all that Restore needs to go on with this connection
// elsewhere. Snapshots do not survive a change of this package's version byte.
func (c *Conn) AppendSnapshot(b []byte) []byte { return b }
