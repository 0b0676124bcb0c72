package dnptest

import (
	"bytes"
	"errors"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// ErrLinked reports a state that is linked, or whose offer was refused: the libraries
// ignore the refusal, and their link never stops waiting.
var ErrLinked = errors.New("dnptest: link with state present")

// A LinkPhase is a stage in the life of a link.
type LinkPhase uint8

const (
	LinkIsDown LinkPhase = iota
	LinkListening
	LinkIsUp
)

// A Link binds a state to the connection. Tests may read it and must change it
// through the Client.
type Link struct {
	ID       wire.LinkID
	Phase    LinkPhase
	Own      bool // offered by this side
	ReadOnly bool
	Message  []byte
	State    *netstate.State // nil after the application freed it, and for an offer without values

	sent    *netstate.State // the values last sent or marked, with which precision compares
	changed netstate.Mask
	pending bool // the library believes that the link is in its list of changed ones
}

// An Offer is a link that the peer offers.
type Offer struct {
	Message []byte // valid during the call
	Types   []wire.ValueType
}

// An Answer is the application's answer to an offer.
type Answer uint8

const (
	Accept   Answer = iota
	Reject          // no state: LinkDown
	Mismatch        // a state of another layout
)

// A linkTable holds the links of both directions: they share the LinkIDs.
type linkTable struct {
	port     *port
	all      []*Link
	byID     map[wire.LinkID]*Link
	nextID   int
	modified []*Link
}

func (t *linkTable) add(l *Link) {
	t.all = append(t.all, l)
	t.byID[l.ID] = l
}

// Links returns all links, including those that are down, in the order of creation.
func (c *Client) Links() []*Link { return c.links.all }

// LinkNamed returns the newest link with this link message that is not down,
// or nil.
func (c *Client) LinkNamed(message string) *Link {
	for i := len(c.links.all) - 1; i >= 0; i-- {
		if l := c.links.all[i]; l.Phase != LinkIsDown && string(l.Message) == message {
			return l
		}
	}
	return nil
}

// Offer offers the peer a state of this side. A state whose link is down keeps its old
// LinkID.
func (c *Client) Offer(now time.Time, s *netstate.State, message []byte, readOnly bool) (*Link, error) {
	c.now = now
	if c.phase != Connected {
		return nil, ErrNotConnected
	}
	l := c.links.of(s)
	switch {
	case l == nil:
		l = newLink(c.links.freeID(c.b.SkipsOneID), message, readOnly, s)
		l.Own = true
		c.links.add(l)
	case l.Phase != LinkIsDown:
		return nil, ErrLinked
	}
	l.Phase = LinkListening
	c.queue.add(func(n wire.Seq) []byte {
		m := wire.LinkState{Seq: n, Link: l.ID, ReadOnly: readOnly, Message: message}
		return s.AppendTyped(wire.AppendLinkStateHead(nil, m, s.Layout().Len()))
	})
	return l, nil
}

func newLink(id wire.LinkID, message []byte, readOnly bool, s *netstate.State) *Link {
	l := &Link{ID: id, ReadOnly: readOnly, Message: bytes.Clone(message), State: s}
	if s == nil {
		return l
	}
	l.sent = netstate.NewState(s.Layout())
	l.changed = netstate.NewMask(s.Layout().Len())
	for i := range s.Layout().Len() {
		l.sent.Set(i, s.Value(i))
	}
	return l
}

func (t *linkTable) of(s *netstate.State) *Link {
	if i := slices.IndexFunc(t.all, func(l *Link) bool { return l.State == s }); i >= 0 {
		return t.all[i]
	}
	return nil
}

// freeID returns the next LinkID of this side. Java and Python skip only one used ID, so
// they may use one of the peer.
func (t *linkTable) freeID(skipsOneID bool) wire.LinkID {
	id := t.nextID
	for t.byID[wire.LinkID(id)] != nil {
		id = (id + 1) % 65535
		if skipsOneID || id == t.nextID {
			break
		}
	}
	t.nextID = (id + 1) % 65535
	return wire.LinkID(id)
}

// offered handles an offer. It reports false if the library raises.
func (c *Client) offered(m wire.LinkState) bool {
	old := c.links.byID[m.Link]
	present := old != nil && old.Phase != LinkIsDown
	if present && !c.b.AsksAgain {
		return true // neither LinkUp nor LinkDown
	}
	types := typesOf(m.Values)
	answer := Accept
	if c.cfg.App.Offered != nil {
		answer = c.cfg.App.Offered(Offer{Message: m.Message, Types: types})
	}
	switch {
	case answer == Reject, answer == Mismatch && c.b.MismatchDown:
		c.emit(wire.LinkDown{Link: m.Link}.Append(nil))
		return true
	case answer == Mismatch || !c.b.readable(m.Values):
		return false
	case present, old != nil && !c.b.Relinks:
		return true // the application was asked, but there is no link
	}
	return c.accept(m, types)
}

func (c *Client) accept(m wire.LinkState, types []wire.ValueType) bool {
	s, ok := stateOf(types, m.Values)
	if !ok {
		return false
	}
	l := newLink(m.Link, m.Message, m.ReadOnly, s)
	l.Phase = LinkIsUp
	c.links.add(l)
	c.emit(wire.LinkUp{Link: m.Link}.Append(nil))
	c.up(l)
	for i := range types {
		c.updated(l, i)
	}
	return true
}

// stateOf builds the state that an offer describes: nil for an offer without values,
// which the libraries link like any other. It reports false for more values than a
// netstate.State can have.
func stateOf(types []wire.ValueType, initial wire.Values) (s *netstate.State, ok bool) {
	if len(types) == 0 {
		return nil, true
	}
	values := make([]netstate.Value, len(types))
	for i, t := range types {
		values[i].Type = t
	}
	layout, err := netstate.NewLayout(values)
	if err != nil {
		return nil, false
	}
	s = netstate.NewState(layout)
	s.SetAll(initial)
	return s, true
}

func typesOf(v wire.Values) []wire.ValueType {
	types := make([]wire.ValueType, 0, v.Len())
	for v.Len() > 0 {
		var t wire.ValueType
		t, _, v = v.Next()
		types = append(types, t)
	}
	return types
}

// readable reports whether the library can read the values without raising.
func (b *Behaviour) readable(v wire.Values) bool {
	for v.Len() > 0 {
		var t wire.ValueType
		var value []byte
		t, value, v = v.Next()
		if !b.readableValue(t, value) {
			return false
		}
	}
	return true
}

// readableValue: Python compares the length in bytes with the number of
// characters, and gives vectors the type of a scalar. The engine's reader throws when it is to
// read no bytes.
func (b *Behaviour) readableValue(t wire.ValueType, value []byte) bool {
	if b.CrashesOnNoData && t == wire.TypeData && len(value) == 2 {
		return false
	}
	if b.NoVectors && t.Kind() == wire.KindFloat && t.Components() > 1 {
		return false
	}
	if !b.ASCIIOnly || t != wire.TypeString {
		return true
	}
	return !slices.ContainsFunc(value[2:], func(letter byte) bool { return letter >= 0x80 })
}

func (c *Client) handleLinkUp(body []byte) {
	m, err := wire.ParseLinkUp(body)
	if err != nil {
		c.bad("truncated LinkUp")
		return
	}
	if l := c.links.byID[m.Link]; l != nil && l.Phase == LinkListening {
		l.Phase = LinkIsUp
		c.up(l)
	}
}

func (c *Client) up(l *Link) {
	if c.cfg.App.LinkUp != nil {
		c.cfg.App.LinkUp(l)
	}
}

func (c *Client) handleLinkDown(body []byte) {
	m, err := wire.ParseLinkDown(body)
	if err != nil {
		c.bad("truncated LinkDown")
		return
	}
	l := c.links.byID[m.Link]
	if l == nil || !c.b.LinkDown.heeds(l.Phase) {
		return
	}
	l.Phase = LinkIsDown
	if c.cfg.App.LinkDown != nil {
		c.cfg.App.LinkDown(l)
	}
}

func (r LinkDownRule) heeds(p LinkPhase) bool {
	switch r {
	case DownWhileUp:
		return p == LinkIsUp
	case DownWhileListening:
		return p == LinkListening
	}
	return p != LinkIsDown
}

// A longLink collects the parts of one LinkStateLong.
type longLink struct {
	open            bool
	link            wire.LinkID
	readOnly        bool
	message, values []byte
}

// handleLinkPart handles one part of a LinkStateLong. It reports false if the library
// raises.
func (c *Client) handleLinkPart(body []byte) bool {
	m, err := wire.ParseLinkStateLong(append([]byte{0, 0}, body...))
	if err != nil || c.b.LongLink == LongLinkSticks {
		return false
	}
	b := &c.recv.link
	last := wire.LinkStateLast
	if c.b.LongLink == LongLinkSingle {
		last = wire.LinkStateFirst // the flag of command 10: bit 2 means "last" there
	}
	if m.Flags&wire.LinkStateFirst != 0 {
		*b = longLink{open: true, link: m.Link, readOnly: m.Flags&wire.LinkStateReadOnly != 0}
	}
	if !b.open {
		return true
	}
	if len(b.message)+len(b.values) < longMax {
		b.message = append(b.message, m.Message...)
		b.values = append(b.values, m.Values...)
	}
	if m.Flags&last == 0 {
		return true
	}
	b.open = false
	values, err := wire.ParseValues(b.values)
	if err != nil {
		return false
	}
	return c.offered(wire.LinkState{Link: b.link, ReadOnly: b.readOnly, Message: b.message, Values: values})
}
