package dnp

import (
	"math"

	"github.com/dnprelay/dnprelay/dnp/netstate"
)

// A SourceConfig describes a network state that peers can be linked to.
type SourceConfig struct {
	// State holds the values. Its owner sets them and then calls Source.Changed.
	State *netstate.State

	// Message is the link message, 1 to 16,000 bytes, that tells the peer what
	// the state is. Farewell, if not empty, is sent as a reliable message when a
	// link ends. Both are kept, not copied.
	Message, Farewell []byte

	// Ref names the state in snapshots.
	Ref uint64

	// Priority is the weight of the state among those that wait for a peer's
	// budget, 1 to PriorityMax. 0 stands for 1.
	Priority uint8

	// Data is the owner's.
	Data any
}

// noSource is the handle of no Source, in links that nobody accepted yet.
const noSource = math.MaxUint32

// A Source is a network state as all connections of an Endpoint share it.
//
// It has a version, which every Flush with changes ends, and knows at which
// version each value changed last. A link needs no more than the version up to
// which it was sent: the values that it lacks are those that are newer.
type Source struct {
	cfg     SourceConfig
	e       *Endpoint
	handle  uint32
	links   []linkRef
	removed bool

	version uint32   // what Changed gives to values; at least 1
	changed []uint32 // per value, the version at which it changed last; at least 1
	dirty   bool     // some value has this version and was not flushed

	real   uint32  // the version of the last true change that was flushed
	realAt instant // when that was; the time of its Flush

	encoded        []byte // count and values of the newest version, as they follow a LinkId
	encodedVersion uint32 // the version that encoded is of; 0 if it has to be worked out per link

	refresh refresher
}

// A linkRef is a link of some connection.
type linkRef struct{ conn, slot uint32 }

// NewSource adds a network state that connections can be linked to. The state
// and both messages stay the caller's to keep alive, and Message must not be empty.
func (e *Endpoint) NewSource(cfg SourceConfig) *Source {
	s := &Source{cfg: cfg, e: e, version: 1, realAt: never, changed: make([]uint32, cfg.State.Layout().Len())}
	s.SetPriority(cfg.Priority)
	for i := range s.changed {
		s.changed[i] = 1
	}
	s.refresh.timer.source = s
	if n := len(e.freeSources); n > 0 {
		s.handle = e.freeSources[n-1]
		e.freeSources = e.freeSources[:n-1]
		e.sources[s.handle] = s
		return s
	}
	s.handle = uint32(len(e.sources))
	e.sources = append(e.sources, s)
	return s
}

// Changed says that value i of the state was set.
func (s *Source) Changed(i int) {
	if len(s.links) == 0 {
		return // whoever is linked later gets all values with the offer
	}
	s.touch()
	s.refresh.wanted = true
	s.changed[i] = s.version
}

// ChangedMask says that the values in m were set.
func (s *Source) ChangedMask(m netstate.Mask) {
	for i, ok := m.Next(0); ok; i, ok = m.Next(i + 1) {
		s.Changed(i)
	}
}

// touch starts a new version, unless one is open.
func (s *Source) touch() {
	if s.dirty {
		return
	}
	s.dirty = true
	s.e.dirty = append(s.e.dirty, s)
	if s.version == math.MaxUint32 {
		s.renumber()
	}
	s.version++
}

// renumber starts the versions again. All links are due for everything, which
// happens once in years.
func (s *Source) renumber() {
	for i := range s.changed {
		s.changed[i] = 1
	}
	s.version, s.refresh.base, s.real = 1, 0, 0
	for _, r := range s.links {
		c := s.e.conns[r.conn]
		l := &c.links.l[r.slot]
		l.sent = 0
		if p, ok := c.peer[l.id]; ok && l.has(linkByPeer) {
			c.peer[l.id] = peerLink{slot: p.slot}
		}
	}
}

// settled returns the version that a peer has that is given all values now. The
// open version does not count: more changes may come under its number.
func (s *Source) settled() uint32 {
	if s.dirty {
		return s.version - 1
	}
	return s.version
}

// Message returns the link message.
func (s *Source) Message() []byte { return s.cfg.Message }

// SetDescription replaces the link message and the farewell of links to come and
// links to end. Both are kept, not copied.
func (s *Source) SetDescription(message, farewell []byte) {
	s.cfg.Message, s.cfg.Farewell = message, farewell
}

// SetPriority replaces SourceConfig.Priority.
func (s *Source) SetPriority(priority uint8) { s.cfg.Priority = min(max(priority, 1), PriorityMax) }

// updateSize returns how many bytes a link with all values takes at most.
func (s *Source) updateSize() int {
	p, state := s.e.cfg.Profile, s.cfg.State
	return p.UpdateLinkSize() + state.TypedSize() + (p.UpdateValueSize(0)-1)*state.Layout().Len()
}

// Remove takes down all links, with farewell. The Source must not be used after.
func (s *Source) Remove() {
	if s.removed {
		return
	}
	s.removed = true
	for len(s.links) > 0 {
		r := s.links[len(s.links)-1]
		s.e.conns[r.conn].unlink(int(r.slot), s.cfg.Farewell)
	}
	s.e.timers.remove(&s.refresh.timer)
	s.e.sources[s.handle] = nil
	s.e.freeSources = append(s.e.freeSources, s.handle)
}

// detach forgets the link at place i. The last one takes its place.
func (s *Source) detach(i uint32) {
	last := len(s.links) - 1
	if moved := s.links[last]; int(i) != last {
		s.links[i] = moved
		s.e.conns[moved.conn].links.l[moved.slot].ref = i
	}
	s.links = s.links[:last]
}

// State returns the values.
func (s *Source) State() *netstate.State { return s.cfg.State }

// Ref returns the name of the state in snapshots.
func (s *Source) Ref() uint64 { return s.cfg.Ref }

// Data returns what the owner put into the SourceConfig.
func (s *Source) Data() any { return s.cfg.Data }

// Links returns the number of links, up or not.
func (s *Source) Links() int { return len(s.links) }
