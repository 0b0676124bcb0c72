package viewer

import (
	"fmt"
	"time"

	"github.com/dnprelay/dnprelay/lludp"
	"github.com/dnprelay/dnprelay/lludp/wire"
)

// Config says who the viewer is, and what it sees.
type Config struct {
	Region  string // its name
	Opening wire.Opening
	First   string // the name of the agent
	Last    string
}

// Times and numbers of a viewer, all arbitrary.
const (
	flushPause = 25 * time.Millisecond  // between two sendings of what moved
	settle     = 200 * time.Millisecond // after which an object that moved counts as being at rest, unless it moved again
	scrubPause = 10 * time.Second       // in which the scrub comes to every object
	scrubLeast = time.Second            // between two packets of it
	leaveTime  = 3 * time.Second        // for the last messages
	arriveTime = 10 * time.Second       // after which a viewer that has not sent CompleteAgentMovement gets nothing more
	window     = 128                    // packets in flight
	windowSize = 128 << 10
	spare      = 8 // packets of the window that are kept for messages
)

// A stage is how far a viewer is.
type stage uint8

const (
	awaited stage = iota // it has not opened its circuit
	opened               // it has not confirmed the region
	shown                // it sees objects
	leaving              // it has logged out, or has to go
	over
)

// A Viewer is what one viewer knows and does. It is not safe for concurrent use.
type Viewer struct {
	cfg     Config
	stage   stage
	scratch *wire.Scratch // nil before the first datagram
	circuit *lludp.Circuit
	scene   scene
	outbox  outbox
	pace    pace
	calls   []Call
	own     own
	town    town

	token     uint64    // of the latest message that asked for an acknowledgement
	packets   int       // of moves
	flushAt   time.Time // when what moved may be sent again
	scrubAt   time.Time
	probeAt   time.Time // when a packet of moves asks for an acknowledgement
	leaveAt   time.Time // when the circuit ends
	arrived   bool      // the viewer has sent CompleteAgentMovement
	arriveAt  time.Time // when the circuit ends of a viewer that has not
	throttled uint32    // the generation of the latest AgentThrottle

	bodyBuf []byte
	ids     []uint32
	moves   []move
	stats   Stats
}

// Stats are the counters of a Viewer.
type Stats struct {
	Objects  uint64 // sent in full
	Moves    uint64 // sent
	Repeats  uint64 // of the two, because the viewer had not confirmed them in time
	Kills    uint64
	GivenUp  uint64 // messages that the viewer did not confirm
	Asked    uint64 // objects that the viewer asked for
	Writes   uint64 // values that the viewer set
	Said     uint64 // messages of the viewer
	Drops    [NumDropReasons]uint64
	Circuits lludp.Stats
}

// A DropReason says why something of the viewer, or for it, was ignored.
type DropReason uint8

const (
	DropForged    DropReason = iota // names another circuit, agent or session
	DropTrusted                     // a message that only simulators may send
	DropMalformed                   // a body that ends inside a field
	DropUnknown                     // a message that is not understood
	DropStage                       // a message that comes too early or too late
	DropOutbox                      // a message for the viewer that found no room
	DropLong                        // a message for the viewer that is too long
	DropCalls                       // more writes or messages at once than are taken
	DropReadOnly                    // a write of what the viewer may not write, or that is not there

	NumDropReasons = int(iota)
)

// String returns the name of r in metrics.
func (r DropReason) String() string {
	return [NumDropReasons]string{
		"forged", "trusted", "malformed", "unknown", "stage", "outbox", "long", "calls", "read_only",
	}[r]
}

func (v *Viewer) drop(r DropReason) { v.stats.Drops[r]++ }

// New returns a Viewer that has not opened its circuit.
func New(cfg Config) *Viewer {
	return &Viewer{cfg: cfg, scene: newScene()}
}

// Stats returns the counters.
func (v *Viewer) Stats() Stats {
	s := v.stats
	if v.circuit != nil {
		s.Circuits = *v.circuit.Stats()
	}
	return s
}

// Over reports whether the viewer is gone.
func (v *Viewer) Over() bool { return v.stage == over }

// Link shows a state.
func (v *Viewer) Link(s State) *Object {
	o := v.scene.add(s)
	v.town.linked(o)
	return o
}

// Unlink ends the showing of a state.
func (v *Viewer) Unlink(o *Object) {
	v.scene.remove(o)
	v.town.unlinked(o)
}

// Changed tells which values of a state changed.
func (v *Viewer) Changed(o *Object, indices []int) {
	if o.gone {
		return
	}
	v.scene.changed(o, indices)
	v.town.changed(o)
}

// Receive processes a datagram of the viewer. The first one opens its circuit.
func (v *Viewer) Receive(now time.Time, datagram []byte, out lludp.Sender) {
	if v.stage == over || !v.genuine(datagram) {
		return
	}
	if v.circuit == nil {
		v.open(now)
	}
	v.handle(now, v.circuit.Receive(now, datagram, out), out)
	v.flush(now, out)
}

// Advance does what is due.
func (v *Viewer) Advance(now time.Time, out lludp.Sender) {
	if v.circuit == nil || v.stage == over {
		return
	}
	if v.stage == opened && !v.arrived && !now.Before(v.arriveAt) {
		v.end()
		return
	}
	v.handle(now, v.circuit.Advance(now, out), out)
	v.flush(now, out)
}

func (v *Viewer) open(now time.Time) {
	c, err := lludp.New(now, lludp.Config{Window: window, WindowBytes: windowSize, Scratch: v.scratch})
	if err != nil {
		panic(fmt.Sprintf("viewer: the configuration of the circuit: %v", err)) // it is constant
	}
	v.circuit, v.pace, v.stage = c, newPace(now), opened
	v.scrubAt = now.Add(scrubPause)
	v.arriveAt = now.Add(arriveTime)
}

// NextTimeout returns when Advance must be called, and false if there is nothing to wait for.
func (v *Viewer) NextTimeout() (time.Time, bool) {
	if v.circuit == nil || v.stage == over {
		return time.Time{}, false
	}
	at, ok := v.circuit.NextTimeout()
	sooner := func(t time.Time) {
		if !ok || t.Before(at) {
			at, ok = t, true
		}
	}
	switch {
	case v.stage == leaving:
		sooner(v.leaveAt)
	case v.stage == opened && !v.arrived:
		sooner(v.arriveAt)
	}
	if v.outbox.waits(v.stage == shown) {
		sooner(v.pace.next())
	}
	if v.stage != shown || v.circuit.Blocked() {
		return at, ok
	}
	if !v.scene.idle() {
		sooner(latest(v.flushAt, v.pace.next()))
	}
	if due, any := v.scene.next(); any {
		sooner(due)
	}
	if due, any := v.town.next(); any {
		sooner(due)
	}
	if len(v.scene.all) > 0 {
		sooner(v.scrubAt)
	}
	return at, ok
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// handle takes the events of the circuit.
func (v *Viewer) handle(now time.Time, events []lludp.Event, out lludp.Sender) {
	for _, e := range events {
		switch e.Kind {
		case lludp.EventPacket:
			v.message(now, e.Packet)
		case lludp.EventDelivered:
			v.outcome(now, e.Token, true)
		case lludp.EventLost:
			v.outcome(now, e.Token, false)
		case lludp.EventClosed:
			v.end()
		}
	}
	if v.stage == leaving && (v.outbox.empty() || !now.Before(v.leaveAt)) {
		v.circuit.Close(out)
		v.end()
	}
}

// end ends everything.
func (v *Viewer) end() {
	if v.stage < leaving {
		v.call(Call{Kind: Leave})
	}
	v.stage = over
}

// Cut ends the circuit without a word to the viewer.
func (v *Viewer) Cut() { v.end() }

// outcome takes what became of a message that asked for an acknowledgement.
func (v *Viewer) outcome(now time.Time, token uint64, arrived bool) {
	v.outbox.blocked = false
	if left, ok := v.scene.outcome(token, arrived); ok {
		if arrived {
			v.pace.confirmed(now.Sub(left))
		} else {
			v.pace.missed()
		}
		return
	}
	if arrived && v.scene.buried(token) {
		return
	}
	if _, givenUp := v.outbox.outcome(token, arrived); givenUp {
		v.stats.GivenUp++
	}
}

func (v *Viewer) nextToken() uint64 {
	v.token++
	return v.token
}

// post sends a message that must arrive.
func (v *Viewer) post(n wire.Number, body []byte, later bool) {
	if !v.outbox.add(&control{number: n, body: body, token: v.nextToken(), later: later}) {
		v.drop(DropOutbox)
	}
}
