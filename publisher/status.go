package publisher

import (
	"errors"
	"log/slog"
	"time"

	"github.com/nats-io/nats.go"
)

// A StatusKind says what a Status is about.
type StatusKind string

// The kinds of a Status.
const (
	StatusDisconnected StatusKind = "disconnected" // from NATS
	StatusConnected    StatusKind = "connected"    // again
	StatusNoRelay      StatusKind = "no_relay"     // no relay accepts the changes of a space; repeated while that lasts
	StatusCaughtUp     StatusKind = "caught_up"    // after StatusNoRelay: a relay has accepted all changes
)

// A Status is news of a connection or of a space.
type Status struct {
	Kind    StatusKind
	Space   string    // of StatusNoRelay and StatusCaughtUp
	Since   time.Time // when the outage began, or the connection was made
	Pending int       // changes that no relay has accepted
	Err     error     // of StatusNoRelay: why the last attempt did not succeed
}

func (st Status) log(log *slog.Logger) {
	since := slog.Time("since", st.Since)
	switch st.Kind {
	case StatusDisconnected:
		log.Warn("disconnected from NATS; trying to connect again", since)
	case StatusConnected:
		log.Info("connected to NATS again", since)
	case StatusNoRelay:
		log.Warn("no relay accepts the changes of a space; they are kept and repeated", "space", st.Space, since, "pending", st.Pending, "error", st.Err)
	case StatusCaughtUp:
		log.Info("a relay has accepted all changes of a space", "space", st.Space, since)
	}
}

// Why a publish has to be repeated.
var (
	errNoRelay  = errors.New("no relay holds the space")
	errNoAnswer = errors.New("no answer in time")
	errOldRelay = errors.New("the relay that answered has a successor")
	errBusy     = errors.New("the relay is busy")
)

// watch reports when the connection is lost, and when it is there again.
func (p *Publisher) watch() {
	changes := p.nc.StatusChanged(nats.CONNECTED, nats.RECONNECTING, nats.DISCONNECTED)
	defer p.nc.RemoveStatusListener(changes)
	connected := true
	for {
		select {
		case <-p.ctx.Done():
			return
		case status, ok := <-changes:
			if !ok {
				return
			}
			if is := status == nats.CONNECTED; is != connected {
				connected = is
				kind := StatusDisconnected
				if is {
					kind = StatusConnected
				}
				p.cfg.Status(Status{Kind: kind, Since: time.Now()})
			}
		}
	}
}

// A Space reports an outage when it has lasted for outageAge, and again after each outageRepeat: shorter ones
// are a restart of a relay, or a lost message.
const (
	outageAge    = time.Second
	outageRepeat = 10 * time.Second
)

// An outage is the time in which no relay accepts changes. The zero value is none.
type outage struct {
	since time.Time
	told  time.Time // zero: not yet
	over  bool      // a relay answers, and has yet to accept what is pending
	cause error
}

func (o *outage) begin(now time.Time, cause error) {
	if o.since.IsZero() {
		o.since = now
	}
	o.over, o.cause = false, cause
}

// end notes that a relay answers.
func (o *outage) end() { o.over = true }

// next returns when the outage is to be reported.
func (o *outage) next() (at time.Time, ok bool) {
	switch {
	case o.since.IsZero() || o.over:
		return time.Time{}, false
	case o.told.IsZero():
		return o.since.Add(outageAge), true
	}
	return o.told.Add(outageRepeat), true
}

// judge reports an outage, or its end.
func (s *Space) judge(now time.Time) {
	o := &s.outage
	if o.since.IsZero() {
		return
	}
	pending := s.pendingOps()
	if o.over && pending == 0 {
		if !o.told.IsZero() {
			s.tell(Status{Kind: StatusCaughtUp, Space: s.name, Since: o.since})
		}
		*o = outage{}
		return
	}
	if at, ok := o.next(); ok && !at.After(now) {
		o.told = now
		s.tell(Status{Kind: StatusNoRelay, Space: s.name, Since: o.since, Pending: pending, Err: o.cause})
	}
}

func (s *Space) tell(st Status) {
	s.untold = append(s.untold, func() { s.p.cfg.Status(st) })
}

func (s *Space) pendingOps() int {
	n := len(s.out.ops) + len(s.delayed) + len(s.asserting)
	for _, r := range s.sent {
		n += len(r.ops)
	}
	return n
}

// Stats are the figures of a Space.
type Stats struct {
	States  int // in the copy
	Clients int // that have groups of this game server
	Pending int // changes that no relay has accepted

	// Changes since the Space was opened: that a relay accepted, that it refused, and that were sent again.
	Accepted, Refused, Repeated uint64

	Position     Position  // of the last batch with a change of this game server
	Heard        time.Time // when a relay last answered
	WithoutRelay time.Time // since when no relay answers; zero if one does
}

// Stats returns the figures of the Space.
func (s *Space) Stats() Stats {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drain()
	st := s.counters
	st.Clients, st.Pending, st.Heard = len(s.groups), s.pendingOps(), s.heard
	for _, state := range s.states {
		if state.removedAt.IsZero() {
			st.States++
		}
	}
	if !s.outage.over {
		st.WithoutRelay = s.outage.since
	}
	return st
}
