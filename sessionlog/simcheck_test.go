package sessionlog_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// A checker observes from outside of the edges which writes the log applies, which datagrams are sent to
// clients, and which messages clients and the game get.
type checker struct {
	w      *world
	errors []string
	facts  map[string]*facts

	kills, pauses, hands, adoptions, fenced int
	interrupted, excusedCount, attempts     int
	gaps, handGaps                          []time.Duration
}

// facts are the content of a session's log, from all writes that were applied.
type facts struct {
	rx           map[uint64][]byte
	tx           map[uint64]dnp.SentCommand
	rxMax, txMax uint64
	down         map[wire.LinkID]bool // links that ended
	epoch, owner uint64
	closed       bool
	block        sessionlog.Block
	seq          uint64 // of the newest write, if the log has three copies
}

func newChecker(w *world) *checker { return &checker{w: w, facts: map[string]*facts{}} }

func (c *checker) failf(format string, v ...any) {
	if len(c.errors) < 4 {
		c.errors = append(c.errors, fmt.Sprintf("at %v: ", c.w.net.Elapsed())+fmt.Sprintf(format, v...))
	}
}

func (c *checker) of(log string) *facts {
	f := c.facts[log]
	if f == nil {
		f = newFacts()
		c.facts[log] = f
	}
	return f
}

func newFacts() *facts {
	return &facts{rx: map[uint64][]byte{}, tx: map[uint64]dnp.SentCommand{}, down: map[wire.LinkID]bool{}}
}

// applied judges a write that the log applied.
func (c *checker) applied(log string, e sessionlog.Entry) {
	k, err := sessionlog.ParseBlock(e.Data)
	if err != nil {
		c.failf("a stored write cannot be read")
		return
	}
	f := c.of(log)
	if k.Epoch < f.epoch || k.Epoch == f.epoch && k.Owner != f.owner {
		c.failf("a write of epoch %d by %x is accepted after one of epoch %d by %x", k.Epoch, k.Owner, f.epoch, f.owner)
	}
	if k.Adopt != nil && !k.Open && f.block.Hand == nil && k.Owner == f.owner {
		c.failf("an owner adopts its own session, in epoch %d", k.Epoch)
	}
	if k.Open && f.epoch > 0 {
		if !f.closed {
			c.failf("a session begins over another that lives")
		}
		*f = *newFacts() // numbers begin again
	}
	f.epoch, f.owner, f.block = k.Epoch, k.Owner, k
	if k.Close != nil {
		f.closed = true
		c.w.tell("closed: %s", *k.Close)
	}
	for _, r := range k.Changes.Received {
		if old, ok := f.rx[r.Number]; ok && !bytes.Equal(old, r.Body) {
			c.failf("number %d of the client has two meanings", r.Number)
		}
		f.rx[r.Number] = bytes.Clone(r.Body)
		f.rxMax = max(f.rxMax, r.Number)
	}
	for _, s := range k.Changes.Sent {
		if old, ok := f.tx[s.Number]; ok && !same(old, s) {
			c.failf("number %d of the edge has two meanings in the log: %+v and %+v", s.Number, old, s)
		}
		s.Data = bytes.Clone(s.Data)
		f.tx[s.Number] = s
		f.txMax = max(f.txMax, s.Number)
		f.down[s.Link] = f.down[s.Link] || s.TakeDown
	}
	for _, l := range k.Changes.Links {
		f.down[l.Link] = f.down[l.Link] || l.What == dnp.LinkTakenDown || l.What == dnp.LinkRefused
	}
}

func same(a, b dnp.SentCommand) bool {
	if a.Kind >= dnp.SentLink || b.Kind >= dnp.SentLink {
		return a.Kind >= dnp.SentLink && b.Kind >= dnp.SentLink && a.Link == b.Link
	}
	return a.Kind == b.Kind && a.Flags == b.Flags && bytes.Equal(a.Data, b.Data)
}

// lost judges the report of an edge that it lost a session.
func (c *checker) lost(p *simClient, s *sessionlog.Session, a sessionlog.Action) {
	c.fenced++
	if a.Epoch <= s.Epoch() {
		c.failf("the owner of client %d in epoch %d loses the session to epoch %d", p.index, s.Epoch(), a.Epoch)
	}
}

// sends judges a datagram that an edge sends to a client.
func (c *checker) sends(p *simClient, b []byte) {
	f := c.of(p.log)
	if len(b) < 3 {
		return
	}
	seq := wire.Seq(binary.LittleEndian.Uint16(b[1:]))
	switch cmd := wire.Command(b[0]); cmd {
	case wire.CommandReliableAck:
		n, _ := wire.Denetwork.Unwrap(seq, max(f.rxMax, p.start))
		if _, ok := f.rx[n]; !ok {
			c.failf("client %d is sent an acknowledgement of %d, which is not stored", p.index, n)
		}
	case wire.CommandReliableMessage, wire.CommandReliableLinkState, wire.CommandReliableMessageLong:
		n, _ := wire.Denetwork.Unwrap(seq, max(f.txMax, p.start))
		s, ok := f.tx[n]
		switch {
		case n == 0 && !ok && cmd == wire.CommandReliableMessageLong: // the probe
		case !ok:
			c.failf("client %d is sent number %d, which is not stored", p.index, n)
		case !means(s, cmd, b[3:]):
			c.failf("client %d is sent number %d as %x, but the log has %+v", p.index, n, b, s)
		}
	case wire.CommandLinkDown:
		if id := wire.LinkID(seq); !f.down[id] {
			c.failf("client %d is told the end of link %x, which is not stored", p.index, id)
		}
	case wire.CommandConnectionClose:
		if !f.closed {
			c.failf("client %d is told the end of the session, which is not stored", p.index)
		}
	}
}

// means reports whether a command has the meaning that the log has.
func means(s dnp.SentCommand, cmd wire.Command, body []byte) bool {
	switch s.Kind {
	case dnp.SentMessage:
		return cmd == wire.CommandReliableMessage && bytes.Equal(body, s.Data)
	case dnp.SentPart, dnp.SentProbe:
		return cmd == wire.CommandReliableMessageLong && body[0] == byte(s.Flags) && bytes.Equal(body[1:], s.Data)
	}
	if s.Kind == dnp.SentFrozen && s.Flags != 0 && bytes.Equal(body, []byte{byte(wire.PartFirst), 0, 0}) {
		return cmd == wire.CommandReliableMessageLong // a trial
	}
	if cmd == wire.CommandReliableMessageLong { // stands for an offer whose state is gone
		return len(body) == 1 && body[0] == 0
	}
	return cmd == wire.CommandReliableLinkState && wire.LinkID(binary.LittleEndian.Uint16(body)) == s.Link
}

// toClient judges a message that a client's application gets.
func (c *checker) toClient(p *simClient, m dnptest.Message) {
	if !m.Reliable {
		return
	}
	for p.refuses(p.got) {
		p.got++
	}
	if want := p.payload(p.got); !bytes.Equal(m.Data, want) {
		c.failf("client %d gets %.20q, want %.20q", p.index, m.Data, want)
	}
	p.got++
}

// toGame judges a message that the game gets, which may come again.
func (c *checker) toGame(p *simClient, m sessionlog.Message) {
	if m.Number < p.cursor {
		return
	}
	want := fmt.Sprintf("c%d", len(p.consumed))
	text, _, _ := strings.Cut(string(m.Data), ".")
	if m.Previous != p.cursor || text != want {
		c.failf("the game gets %q as %d after %d of client %d, want %q after %d", text, m.Number, m.Previous, p.index, want, p.cursor)
	}
	p.cursor = m.Number + 1
	p.consumed = append(p.consumed, text)
}

func (c *checker) closed(p *simClient, reason string) {
	if p.frozen {
		return
	}
	p.frozen = true
	c.w.tell("client %d is interrupted: %s", p.index, reason)
	if p.owner == nil { // there was no session yet, so the client tries again
		c.attempts++
		return
	}
	if c.w.excused && c.w.net.Elapsed() < playTime+4*time.Second || c.w.store.Starved(p.log) { // the client's own 3 s began before
		c.excusedCount++
		return
	}
	c.interrupted++
	c.failf("client %d is interrupted: %s", p.index, reason)
}

// final judges the end state, after everything had time to happen.
func (c *checker) final() {
	for _, p := range c.w.clients {
		if p.frozen {
			continue
		}
		if len(p.consumed) != p.sent || p.Queued() > 0 {
			c.failf("client %d sent %d messages, the game got %d, %d wait", p.index, p.sent, len(p.consumed), p.Queued())
		}
		for p.got < p.outLen && p.refuses(p.got) {
			p.got++
		}
		if p.got != p.outLen {
			c.failf("the game sent %d messages, client %d got %d", p.outLen, p.index, p.got)
		}
		c.links(p)
	}
}

// links judges the values of a client in the end.
func (c *checker) links(p *simClient) {
	owners := 0
	for _, e := range c.w.edges {
		// A former owner learns that it is one with its next write. It may have nothing to write in the end, until it asks the
		// client, to which it has nothing to say and which says nothing to it.
		if s := e.sessions[p.addr]; s != nil && s.Phase() == sessionlog.Owning && s.Epoch() == c.of(p.log).epoch {
			owners++
		}
	}
	if owners != 1 {
		c.failf("client %d has %d owners of the newest epoch in the end", p.index, owners)
	}
	up := map[string]bool{}
	for _, l := range p.Links() {
		if l.Phase != dnptest.LinkIsUp || l.State == nil { // a question has no values
			continue
		}
		k := int(l.Message[0] - '0')
		v := binary.LittleEndian.Uint32(l.State.Value(0))
		switch sticks := p.Behaviour().LinkDown == dnptest.DownWhileListening; { // the engine keeps links that were taken down
		case v == c.w.values[k]:
			up[string(l.Message)] = true
		case p.wanted[k] && !sticks:
			c.failf("client %d has the value %d of state %d by link %x, want %d", p.index, v, k, l.ID, c.w.values[k])
		case !p.wanted[k] && !sticks:
			c.failf("client %d has state %d by link %x, which it should not have", p.index, k, l.ID)
		}
	}
	for k, wanted := range p.wanted {
		if wanted && !up[fmt.Sprint(k)] {
			c.failf("client %d lacks state %d", p.index, k)
		}
	}
}
