package fanout

import (
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/replication"
)

// Game servers hear that a client joined when the holder has it, and that it left when the holder no longer has it, so that
// whatever they do then meets a holder that knows. A holder that does not answer for so long does not hold events up:
// game servers would talk to a client that no event names, and believe that players stand about who have gone.
const (
	joinPatience  = 30 * time.Second
	leavePatience = 5 * time.Second

	// leaveRepeats is for how long the edge tells the holder that a session left. Then the holder has asked which sessions
	// are there.
	leaveRepeats = time.Minute
)

// Bounds of what waits for game servers to hear that the client joined. When it is full, they hear so at once.
const (
	unheardMax      = 256
	unheardBytesMax = 64 << 10
)

// departuresMax bounds the sessions of a space that left and that the holder has not heard of. When there are more,
// game servers hear of the next at once, and the holder by the event.
const departuresMax = 65_536

// A membership is how far the presence of a client in its space is known to others.
type membership struct {
	announced bool // game servers heard that the client joined, and may hear from it
	resumed   bool // they may have heard it from another edge
	patience  time.Time
	join      repeater // of telling the holder that the session is there, with the groups of its client
	leave     []string // groups left over from an earlier session; at most 255, as a replica parses no more

	unheard      []func() // what game servers hear behind that, in order
	unheardBytes int
}

// begin has the holder told of the session, and of the groups of the claims.
func (p *peer) begin(now time.Time, known bool) {
	if known {
		for _, g := range p.replica.Groups(p.Claims.Client) {
			if !slices.Contains(p.Claims.Groups, g) {
				p.leave = append(p.leave, g)
			}
		}
	}
	p.patience = now.Add(joinPatience)
	p.join.want(now)
}

// resume goes on with a session of another edge. That edge announced a session that is old enough; of a younger one the
// holder knows whether it did, because it hears the events.
func (p *peer) resume(now time.Time) {
	if p.patience = p.Began.Add(joinPatience); now.Before(p.patience) {
		p.resumed = true
		p.join.want(now)
		return
	}
	p.announced = true
}

// repeatGroups has a new holder told the groups, because it may not have what the one
// before was told. What game servers changed since stays if the replica shows that the client
// has any group.
func (p *peer) repeatGroups(now time.Time) {
	if len(p.Claims.Groups) > 0 && len(p.replica.Groups(p.Claims.Client)) == 0 {
		p.join.want(now)
	}
}

// advanceJoin tells the holder of the session, if that is due, and returns when there is more to do.
func (p *peer) advanceJoin(now, next time.Time) time.Time {
	if !p.announced {
		if now.Before(p.patience) {
			next = earlier(next, p.patience)
		} else {
			p.announce(now)
		}
	}
	if !p.join.ready(now, &next) {
		return next
	}
	p.join.sent(now, &next)
	w := &replication.Write{Kind: replication.WriteJoin, Join: p.Claims.Groups, Leave: p.leave}
	p.request(w, func(now time.Time, r replication.WriteResult, err error) { p.joined(now, w, r, err) })
	return next
}

// joined handles the holder's answer. An answer of an earlier epoch means nothing. The edge repeats a request whose groups
// are refused, because every refusal passes: the names in a token are valid.
func (p *peer) joined(now time.Time, w *replication.Write, r replication.WriteResult, err error) {
	if w.Epoch != 0 && w.Epoch != p.epoch || mustRepeat(r, err) { // in epoch 0 the replica did not know the holder yet
		return
	}
	if r.Code == replication.WriteOK {
		p.join.stop()
		p.leave = nil
	}
	switch {
	case p.announced:
	case p.resumed && r.State == replication.JoinAnnounced:
		p.release()
	case !p.announce(now):
		p.join.want(now) // the bus is away
	}
}

// announce tells game servers that the client joined, and then what waited for that. It reports false if the bus does
// not take it.
func (p *peer) announce(now time.Time) bool {
	if p.announced {
		return true
	}
	ev := p.fill(now, replication.Event{Type: replication.EventJoined, Edge: p.Node})
	if !p.Emit(ev) {
		return false
	}
	p.release()
	return true
}

func (p *peer) release() {
	p.announced = true
	all := p.unheard
	p.unheard, p.unheardBytes = nil, 0
	for _, publish := range all {
		publish()
	}
}

// wait has publish called when game servers know of the client: at once, if they do. What it publishes has so many bytes.
func (p *peer) wait(now time.Time, size int, publish func()) {
	if !p.announced && (len(p.unheard) >= unheardMax || p.unheardBytes+size > unheardBytesMax) {
		p.announce(now)
	}
	switch {
	case p.announced:
		publish()
	case len(p.unheard) < unheardMax && p.unheardBytes+size <= unheardBytesMax:
		p.unheard, p.unheardBytes = append(p.unheard, publish), p.unheardBytes+size
	default:
		p.counts.EventsLost++ // the bus takes nothing
	}
}

// Tell has publish called when game servers know of the client; see wait.
func (s *Session) Tell(size int, publish func()) { s.wait(s.space.now, size, publish) }

// A departure is a session that left and that the holder may believe to be there.
type departure struct {
	peer
	left  *replication.Event // nil if game servers heard it, or never heard of the session
	since time.Time
	tell  repeater // of telling the holder
}

// depart has the holder told that a session left, and then game servers. Those that never heard that the client joined hear
// both, if the bus takes the first.
func (s *space) depart(now time.Time, p *peer, left replication.Event) {
	d := &departure{peer: peer{spaceInfo: p.spaceInfo, SessionConfig: p.SessionConfig}, since: now}
	if p.announce(now) {
		left = p.fill(now, left)
		d.left = &left
	}
	if d.tell.want(now); len(s.departures) >= departuresMax {
		d.heard()
		return
	}
	s.departures = append(s.departures, d)
}

// heard tells game servers that the session left.
func (d *departure) heard() {
	if d.left != nil {
		d.Emit(*d.left)
		d.left = nil
	}
}

// advance tells the holder that the session left, if that is due, and returns when there is more to do.
func (d *departure) advance(now, next time.Time) time.Time {
	if at := d.since.Add(leavePatience); !now.Before(at) {
		d.heard()
	} else {
		next = earlier(next, at)
	}
	if !now.Before(d.since.Add(leaveRepeats)) {
		d.tell.stop()
	}
	if d.tell.ready(now, &next) {
		d.tell.sent(now, &next)
		d.request(&replication.Write{Kind: replication.WriteLeave}, func(_ time.Time, r replication.WriteResult, err error) {
			if !mustRepeat(r, err) {
				d.tell.stop()
				d.heard()
			}
		})
	}
	return next
}

// advanceDepartures is advance of all that left.
func (s *space) advanceDepartures(now, next time.Time) time.Time {
	s.departures = slices.DeleteFunc(s.departures, func(d *departure) bool {
		next = d.advance(now, next)
		return !d.tell.pending() && d.left == nil
	})
	return next
}

// Finish tells game servers of the sessions that left, whatever the holders answer, because the worker ends.
func (s *Spaces) Finish() {
	for _, sp := range s.order {
		for _, d := range sp.departures {
			d.heard()
		}
	}
}

// left returns the event about the end of a session.
func (s *Session) left(reason dnp.CloseReason) replication.Event {
	ev := replication.Event{Type: replication.EventLeft, Edge: s.Node, Reason: reason.String()}
	if reason == dnp.CloseKicked {
		ev.Detail = s.kickReason
	}
	return ev
}
