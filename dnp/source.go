package dnp

import (
	"math"
	"time"

	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// A SourceConfig describes a network state that peers can be linked to.
type SourceConfig struct {
	// State holds the values. Its owner sets them and then calls Source.Changed.
	State *netstate.State

	// Message is the link message, 1 to 16,000 bytes, that tells the peer what
	// the state is. Farewell, if not empty, is sent as a reliable message when a
	// link ends. The Source keeps both slices without copying them.
	Message, Farewell []byte

	// Ref names the state in snapshots.
	Ref uint64

	// Priority is the weight of the state among those that wait for a peer's
	// budget, 1 to PriorityMax. 0 stands for 1.
	Priority uint8

	// Divisor divides Priority, so that sources that stand for the same state can weigh less
	// than it says. 0 stands for 1.
	Divisor uint8

	// Silent says that links to the Source are sent no values. Their offers, and answers to what
	// the peer may not write, have values all the same. A link becomes silent, and ends being
	// silent, with Relink.
	Silent bool

	// Data is the owner's.
	Data any
}

// noSource is the handle of no Source, in links that were not accepted yet.
const noSource = math.MaxUint32

// A Source is a network state that all connections of an Endpoint share.
//
// It has a version, which ends with each Flush that has changes, and knows at which
// version each value changed last. A link needs no more than the version up to
// which it was sent: it lacks the values that are newer.
type Source struct {
	// What each update of a link reads is one cache line.
	version        uint32   // what Changed gives to values; at least 1
	encodedVersion uint32   // the version that encoded is of; 0 if each link must be encoded by itself
	encoded        []byte   // count and values of the newest version, as they follow a LinkId
	repeated       bool     // the version flushed last was a repeat only
	inline         [31]byte // memory for encoded

	refresh refresher

	cfg            SourceConfig
	e              *Endpoint
	handle         uint32
	changedVersion uint32  // the last version flushed that is a change, not only a repeat
	changedAt      instant // when it was flushed
	links          []linkRef
	datas          int     // values of type data: each may be sent with a byte more than the state has
	weight         float32 // of its links among those that wait: priority over divisor
	removed        bool
	dirty          bool     // some value has the newest version and was not flushed
	changed        []uint32 // per value, the version at which it changed last; at least 1
}

// A linkRef is a link of some connection.
type linkRef struct{ conn, slot uint32 }

// NewSource adds a network state that connections can be linked to. The caller must
// keep the state and both messages, and Message must not be empty.
func (e *Endpoint) NewSource(cfg SourceConfig) *Source {
	s := &Source{cfg: cfg, e: e, version: 1, changedAt: never, changed: make([]uint32, cfg.State.Layout().Len())}
	s.SetPriority(cfg.Priority)
	for i, t := range cfg.State.Layout().Types() {
		s.changed[i] = 1
		if t == wire.TypeData {
			s.datas++
		}
	}
	s.refresh.timer.source = s
	s.handle = addHandle(&e.sources, &e.freeSources, s)
	return s
}

// State returns the values.
func (s *Source) State() *netstate.State { return s.cfg.State }

// Data returns SourceConfig.Data.
func (s *Source) Data() any { return s.cfg.Data }

// Message returns the link message.
func (s *Source) Message() []byte { return s.cfg.Message }

// Links returns the number of links, up or not.
func (s *Source) Links() int { return len(s.links) }

// SetDescription replaces the link message of links to come and the farewell of links
// to end. The Source keeps both slices without copying them.
func (s *Source) SetDescription(message, farewell []byte) {
	s.cfg.Message, s.cfg.Farewell = message, farewell
}

// SetPriority replaces the priority of SourceConfig.
func (s *Source) SetPriority(priority uint8) {
	s.weight = float32(min(max(priority, 1), PriorityMax)) / float32(max(s.cfg.Divisor, 1))
}

// Changed says that value i of the state was set.
func (s *Source) Changed(i int) {
	if len(s.links) == 0 {
		return // a link made later gets all values with its offer
	}
	s.touch()
	s.refresh.wanted, s.e.urgent = true, true
	s.changed[i] = s.version
}

// ChangedMask says that the values in m were set.
func (s *Source) ChangedMask(m netstate.Mask) {
	for i, ok := m.Next(0); ok; i, ok = m.Next(i + 1) {
		s.Changed(i)
	}
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

// Weight returns the weight of links to the Source among those that wait for a budget.
func (s *Source) Weight() float32 { return s.weight }

// expectMax is the longest time for which Expect puts repeats off. Of a loss before it, clients see nothing for two and a half
// times as long.
const expectMax = time.Second

// Expect says that the values that changed are going to change again within d, which makes up for a loss as well as a repeat
// would. A change that does not replace all that waits for a repeat puts the rest off, too, but only the first such change. Expect holds
// until it is called again. 0, and more than a second, mean that nothing is expected.
func (s *Source) Expect(d time.Duration) {
	if d > expectMax {
		d = 0
	}
	s.refresh.expected = d
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
	s.version, s.refresh.base, s.changedVersion = 1, 0, 0
	for _, r := range s.links {
		t := &s.e.conns[r.conn].links
		l := &t.slots[r.slot]
		l.sent = 0
		if l.has(linkByPeer) {
			t.addPeerLink(l.id, int(r.slot), 0)
		}
	}
}

// settled returns the version that a peer has once it is given all values of this moment.
// The open version does not count: more changes may follow under its number.
func (s *Source) settled() uint32 {
	if s.dirty {
		return s.version - 1
	}
	return s.version
}

// detach forgets the link at place i. The last one takes its place.
func (s *Source) detach(i uint32) {
	last := len(s.links) - 1
	if s.cfg.Silent {
		s.e.conns[s.links[i].conn].links.silent--
		s.e.stats.Silent--
	}
	if moved := s.links[last]; int(i) != last {
		s.links[i] = moved
		s.e.conns[moved.conn].links.slots[moved.slot].ref = i
	}
	s.links = s.links[:last]
}

// value returns what peers are sent as value i. Every value in a LinkState or LinkUpdate comes from
// here, because the state has what its owner set, and that may be data without bytes
// (dnp/PROTOCOL.md, rule no-empty).
func (s *Source) value(i int) []byte {
	return s.cfg.State.Layout().Type(i).Sendable(s.cfg.State.Value(i))
}

// typedSize returns how many bytes all values with their types take at most.
func (s *Source) typedSize() int { return s.cfg.State.TypedSize() + s.datas }

// updateSize returns how many bytes a link with all values takes at most.
func (s *Source) updateSize() int {
	p := s.e.cfg.Profile
	return p.UpdateLinkSize() + s.typedSize() + (p.UpdateValueSize(0)-1)*len(s.changed)
}

// flushSize returns how many bytes a link takes that lacks the newest version only.
func (s *Source) flushSize() int {
	if s.encodedVersion == s.version {
		return 2 + len(s.encoded)
	}
	return s.updateSize()
}

// encode writes the values of the newest version as they follow a LinkId. If they do
// not fit into a datagram together, each link is encoded by itself. A Silent source has nothing
// encoded, so that a Flush of other links does not look at it.
func (s *Source) encode() {
	p := s.e.cfg.Profile
	room := s.e.cfg.DatagramMax - p.UpdateHeadSize() - 2
	if s.encodedVersion = 0; s.cfg.Silent {
		return
	}
	if s.encoded == nil {
		s.encoded = s.inline[:0]
	}
	b := p.AppendUpdateCount(s.encoded[:0], 0)
	layout, values := s.cfg.State.Layout(), 0
	last := s.lastNewer(s.version - 1)
	for i := 0; i <= last; i++ {
		if s.changed[i] != s.version && p != wire.Spec { // profile spec has no index: all values before the last are sent too
			continue
		}
		v := s.value(i)
		if values++; values > updateValuesMax && p != wire.Spec || len(b)+p.UpdateValueSize(len(v)) > room {
			return
		}
		b = p.AppendUpdateValue(b, i, layout.Type(i), v)
	}
	p.PutUpdateCount(b, values)
	s.encoded, s.encodedVersion = b, s.version
}

// lastNewer returns the last value that is newer than version, or -1.
func (s *Source) lastNewer(version uint32) int {
	for i := len(s.changed) - 1; i >= 0; i-- {
		if s.changed[i] > version {
			return i
		}
	}
	return -1
}

// newer returns how many values are newer than version.
func (s *Source) newer(version uint32) (n int) {
	for _, v := range s.changed {
		if v > version {
			n++
		}
	}
	return n
}

// A refresher is a Source's schedule of repeats. LinkUpdates are neither acknowledged
// nor numbered, so the loss of a last update would never be noticed (dnp/PROTOCOL.md,
// Updates). A Source that stopped changing therefore gives its latest changes a new
// version a few times, which sends them again. The schedule belongs to the Source, not to
// the links, so it costs the same for one peer and for a thousand.
type refresher struct {
	timer    timer         // set while repeats are to come
	wanted   bool          // a true change was made since the last Flush
	step     uint8         // the next of Config.Refresh
	part     bool          // a change replaced a part of what waits, and the rest is expected with the next one: see flushed
	more     bool          // further changes of a part were made since, and wait for repeats of their own
	quiet    instant       // the Flush of the last true change
	base     uint32        // values newer than this are to be repeated
	shift    time.Duration // how much later the repeats are because a change is expected
	rhythm   time.Duration // the part of that which a rhythm of changes shows
	expected time.Duration // see Expect
}

// refreshGrid is the grid of the times at which Sources look whether to repeat something: 200 wake-ups a second serve all.
const refreshGrid = 5 * time.Millisecond

// rhythmMax is the longest pause between changes that counts as a rhythm, 8 Hz. It
// puts a repeat off by at most 127 ms, so that three of the default steps still come
// within 630 ms of the last change.
const rhythmMax = 125 * time.Millisecond

// rhythmShift returns by how much to put off the repeats of a Source whose values were
// all replaced after pause: the next change is expected after the same time, and makes up
// for a loss as well as a repeat would. Without it, states that change ten times a second
// would be sent twenty times, and those that change twenty times a second whenever a change
// is more than 10 ms late.
func rhythmShift(pause, first time.Duration) time.Duration {
	if pause > rhythmMax {
		return 0
	}
	return expectedShift(pause, first)
}

// expectedShift is the same for a change that is expected after a time.
func expectedShift(after, first time.Duration) time.Duration { return max(0, after+after/2-first) }

// flushed notes that the open version was sent.
func (s *Source) flushed(now instant) {
	s.dirty = false
	r, steps := &s.refresh, s.e.cfg.Refresh
	s.repeated = !r.wanted
	r.wanted = false
	if !s.repeated {
		s.changedVersion, s.changedAt = s.version, now
	}
	if s.repeated || len(steps) == 0 {
		return
	}
	switch {
	case r.timer.place == 0:
		r.rhythm, r.part, r.more = 0, false, false
		r.base, r.shift = s.version-1, expectedShift(r.expected, steps[0])
	case s.replaced():
		// The pause behind a change that came late is short, and the next one is longer again.
		r.rhythm, r.part, r.more = max(rhythmShift(now.sub(r.quiet), steps[0]), r.rhythm/2), false, false
		r.base, r.shift = s.version-1, max(r.rhythm, expectedShift(r.expected, steps[0]))
	case r.expected > 0 && r.part: // the rest has waited for one change already
		r.more = true
		return
	case r.expected > 0:
		r.part, r.shift = true, expectedShift(r.expected, steps[0])
	default: // the other values must not wait for the rhythm of one
		r.rhythm, r.shift, r.part, r.more = 0, 0, false, false
	}
	r.step, r.quiet = 0, now
	// A timer that is set already is early at worst; onTimer checks again. That
	// keeps a busy Source from moving its timer at every Flush.
	if at := now.add(steps[0] + r.shift).upTo(refreshGrid); r.timer.place == 0 || r.timer.at > at {
		s.e.timers.set(&r.timer, at)
	}
}

// replaced reports whether the newest change gave new values to all that is to be
// repeated, so that no peer needs what was sent before.
func (s *Source) replaced() bool {
	for _, version := range s.changed {
		if version > s.refresh.base && version != s.version {
			return false
		}
	}
	return true
}

// onTimer repeats the latest changes, if the Source has not changed for long enough.
func (s *Source) onTimer(now instant) {
	r, steps := &s.refresh, s.e.cfg.Refresh
	due := r.quiet.add(steps[r.step] + r.shift)
	if r.wanted { // Flush starts again
		due = now.add(steps[0])
	}
	if now < due {
		s.e.timers.set(&r.timer, due.upTo(refreshGrid))
		return
	}
	s.repeat()
	if r.step++; int(r.step) == len(steps) {
		if !r.more {
			s.e.timers.remove(&r.timer)
			return
		}
		r.more, r.step, r.quiet = false, 0, now
	}
	s.e.timers.set(&r.timer, r.quiet.add(steps[r.step]+r.shift).upTo(refreshGrid))
}

// repeat gives the values of the last burst of changes a new version.
func (s *Source) repeat() {
	s.e.stats.Refreshes++
	s.touch()
	s.e.repeatSoon()
	for i, version := range s.changed {
		if version > s.refresh.base {
			s.changed[i] = s.version
		}
	}
}
