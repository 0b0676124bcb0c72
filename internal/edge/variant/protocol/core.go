package protocol

import (
	"bytes"
	"errors"
	"time"

	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/godot/variant"
)

// ProtocolVersion is the version of the messages.
const ProtocolVersion = 1

// Bounds of what a Core holds. All numbers are arbitrary.
const (
	// backlogMax and backlogBytesMax bound the reliable messages that wait for a peer. Beyond them the peer is slow, and the
	// connection ends. The last one may have any size.
	backlogMax      = 256
	backlogBytesMax = MessageMax + 256<<10

	// looseMax bounds the unreliable messages that wait. Beyond it they are dropped.
	looseMax      = 64
	looseBytesMax = 32 << 10

	// MessageMax is the most bytes of a message of a client or a game server.
	MessageMax = 1 << 20

	// OfferedMax is how many states a peer may have of its own, as many as an edge takes.
	OfferedMax = 64

	// OfferedValuesMax is how many values each of them may have.
	OfferedValuesMax = 1024

	// ValueMax is the most bytes of a string or data.
	ValueMax = 16_000

	// LoginMax is the most bytes of a login.
	LoginMax = 1350

	// refusalsPerSecond bounds what a peer is told about values that do not fit.
	refusalsPerSecond = 5
)

// flushDelay is how long values wait for others that come in the same datagram of the edge, or in the next ones.
const flushDelay = 4 * time.Millisecond

// settlePeriod is how long a value has to be quiet before it is sent in order, at least; twice as long at most.
const settlePeriod = 200 * time.Millisecond

// partTime bounds the time in which a message in parts has to come: partTime and a second for each partRate bytes.
const (
	partTime = 30 * time.Second
	partRate = 4 << 10
)

// ErrBusy is the error of a Client that cannot take a message now.
var ErrBusy = errors.New("protocol: busy")

// A Hello is the first message of a peer.
type Hello struct {
	Token string // that logs the client in; empty for none
	Login []byte // the whole login message instead
}

// A Field is a value of a state that a peer offers.
type Field struct {
	Name  string
	Type  wire.ValueType
	Value []byte // wire bytes
}

// A Client is the DNP client behind a Core. Its methods do not block, and do not call the Core.
type Client interface {
	// Hello begins to connect. Core.Welcome or Core.End follows.
	Hello(h Hello)

	// Send sends a message to game servers. It returns ErrBusy if it cannot take one more now.
	Send(data []byte, reliable bool) error

	// Offer makes a state of this client, and Withdraw ends it. Core.Linked or Core.Unlinked tells of it by its id.
	Offer(id int64, message string, fields []Field) (State, error)
	Withdraw(id int64)
}

// Config is what a Core is made of.
type Config struct {
	Dialect variant.Dialect
	Client  Client
}

type phase uint8

const (
	fresh   phase = iota // nothing was said
	joining              // the client connects
	joined
	ended
)

// A Core is one client that speaks Variants.
type Core struct {
	cfg     Config
	size    int  // of the longest message to the peer
	settles bool // values to the peer may get lost

	phase   phase
	reason  Reason
	bye     []byte // the last message, if the peer is told of the end
	indices bool   // the peer wants to know values by their indices
	entries map[int64]*entry
	offered int

	order        queue[item, *item] // what the peer gets in order
	rest         []byte             // of a message that is sent in parts, which comes before order
	restOf       ticket
	backlog      int // messages of game servers in order
	backlogBytes int

	dirty     queue[entry, *entry]
	flushAt   time.Time // when values leave; zero for no values
	settling  []*entry
	settleAt  time.Time
	loose     [][]byte // encoded
	looseSize int

	in        bucket
	parts     []byte // of a message of the peer
	partsFrom time.Time
	refusals  bucket
	scratch   []byte
	enc       []byte // the wire bytes of a value

	counts Counts
}

// Rates of what a peer may send. They are those of DNP clients, whose values take a quarter of the bytes.
const (
	inRate  = 256 << 10
	inBurst = 2 * inRate
)

func newCore(cfg Config, size int, settles bool, now time.Time) *Core {
	return &Core{
		cfg: cfg, size: size, settles: settles, entries: make(map[int64]*entry),
		in: newBucket(inRate, inBurst, now), refusals: newBucket(refusalsPerSecond, refusalsPerSecond, now),
	}
}

// Counts returns the counters.
func (c *Core) Counts() *Counts { return &c.counts }

// Ended returns why the connection ended; false while it lasts.
func (c *Core) Ended() (Reason, bool) { return c.reason, c.phase == ended }

// Welcome tells the peer that it is connected.
func (c *Core) Welcome() {
	if c.phase != joining {
		return
	}
	c.phase = joined
	m := c.begin("welcome")
	inner := m.Begin(variant.Dictionary)
	m.String("version")
	m.Int(ProtocolVersion)
	m.Writer.End(inner, 1)
	c.inOrder(&m, 2)
}

// End ends the connection and tells the peer why, after everything that waits in order. text is for the person who wrote the
// client; it may be empty.
func (c *Core) End(r Reason, text string) {
	if c.phase == ended {
		return
	}
	c.phase, c.reason = ended, r
	clear(c.entries)
	c.dirty, c.settling, c.loose, c.parts = queue[entry, *entry]{}, nil, nil, nil
	if r == Gone || r == Silent {
		c.order, c.rest = queue[item, *item]{}, nil
		return
	}
	if r == Slow {
		c.order = queue[item, *item]{}
	}
	c.sayBye(r, text)
}

func (c *Core) sayBye(r Reason, text string) {
	m := c.begin("bye")
	m.String(string(r))
	m.Bool(r.Again())
	m.String(text)
	c.bye = c.inOrder(&m, 4).data
}

// Linked tells of a state that the peer sees from now on. The id of a state that the peer offered is its own.
func (c *Core) Linked(_ time.Time, id int64, s State) {
	if c.phase != joined {
		return
	}
	e := c.entries[id]
	if e == nil {
		e = newEntry(id, s, false)
		c.entries[id] = e
	}
	if e.link != nil || e.told {
		return
	}
	e.link = &item{kind: itemLink, e: e}
	c.order.push(e.link)
}

// Unlinked tells that the peer does not see a state any more.
func (c *Core) Unlinked(_ time.Time, id int64) {
	e := c.entries[id]
	if e == nil {
		return
	}
	unknown := e.link != nil && !e.mine
	c.forget(e)
	if !unknown {
		c.order.push(&item{kind: itemUnlink, id: id})
	}
}

// forget removes a state and what waits for it.
func (c *Core) forget(e *entry) {
	e.gone = true
	delete(c.entries, e.id)
	if e.mine {
		c.offered--
	}
	c.dirty.remove(e)
	for _, x := range []*item{e.link, e.set} {
		if x != nil {
			c.order.remove(x)
		}
	}
	e.link, e.set = nil, nil
}

// Changed tells that the edge changed values of a state.
func (c *Core) Changed(now time.Time, id int64, indices []int) {
	e := c.entries[id]
	if e == nil {
		return
	}
	for _, i := range indices {
		c.change(now, e, i)
	}
}

func (c *Core) change(now time.Time, e *entry, i int) {
	if e.link != nil {
		return // the link message will have the value
	}
	e.dirty.Set(i)
	if e.told {
		c.makeDirty(now, e)
	}
	if !c.settles {
		return
	}
	if e.fresh == nil {
		e.fresh, e.aging = netstate.NewMask(e.state.Len()), netstate.NewMask(e.state.Len())
	}
	e.fresh.Set(i)
	if !e.settling {
		e.settling = true
		c.settling = append(c.settling, e)
	}
	if c.settleAt.IsZero() {
		c.settleAt = now.Add(settlePeriod)
	}
}

func (c *Core) makeDirty(now time.Time, e *entry) {
	c.dirty.push(e)
	if c.flushAt.IsZero() {
		c.flushAt = now.Add(flushDelay)
	}
}

// settle puts values that have been quiet in order, so that they arrive.
func (c *Core) settle(now time.Time) {
	if c.settleAt.IsZero() || now.Before(c.settleAt) {
		return
	}
	kept := c.settling[:0]
	for _, e := range c.settling {
		if e.gone {
			continue
		}
		if e.told { // otherwise its values wait for the link message
			c.settleValues(e)
		}
		if e.settling = !e.aging.Empty() || !e.fresh.Empty(); e.settling {
			kept = append(kept, e)
		}
	}
	clear(c.settling[len(kept):])
	if c.settling = kept; len(kept) > 0 {
		c.settleAt = now.Add(settlePeriod)
	} else {
		c.settleAt = time.Time{}
	}
}

// settleValues ends a period of a state.
func (c *Core) settleValues(e *entry) {
	for i, ok := e.aging.Next(0); ok; i, ok = e.aging.Next(i + 1) {
		if !e.fresh.Has(i) {
			c.setInOrder(e, i)
			e.dirty.Clear(i)
		}
	}
	e.aging.Reset()
	e.fresh, e.aging = e.aging, e.fresh
}

// setInOrder has the peer get a value in order: with others of its state that wait, if there are some.
func (c *Core) setInOrder(e *entry, i int) {
	if e.set == nil {
		e.set = &item{kind: itemSet, e: e, mask: netstate.NewMask(e.state.Len())}
		c.order.push(e.set)
	}
	e.set.mask.Set(i)
}

// Message tells of a message of a game server.
func (c *Core) Message(data []byte, reliable bool) {
	if c.phase != joined {
		return
	}
	m := c.begin("msg")
	m.Data(data)
	m.Bool(reliable)
	if !reliable {
		c.unreliable(&m, 3)
		return
	}
	if c.backlog >= backlogMax || c.backlogBytes > backlogBytesMax {
		c.End(Slow, "")
		return
	}
	x := c.inOrder(&m, 3)
	x.backlog = true
	c.backlog++
	c.backlogBytes += len(x.data)
}

// unreliable has the peer get a message, unless too many wait.
func (c *Core) unreliable(m *message, n int) {
	b := m.end(c, n)
	if len(b) > c.size || len(c.loose) >= looseMax || c.looseSize+len(b) > looseBytesMax {
		c.counts.Drops[DropUnreliable]++
		return
	}
	c.loose = append(c.loose, bytes.Clone(b))
	c.looseSize += len(b)
}

// nextTimeout returns when values or messages leave. The zero time is never.
func (c *Core) nextTimeout() time.Time {
	switch {
	case c.order.head != nil || len(c.rest) > 0 || len(c.loose) > 0:
		return past
	case c.dirty.head == nil:
		return c.settleAt
	}
	return earlier(c.flushAt, c.settleAt)
}

// past is a time at which something is due at once.
var past = time.Unix(0, 0)

// earlier returns the earlier of two times, of which the zero time is never.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
