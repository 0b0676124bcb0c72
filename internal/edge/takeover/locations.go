package takeover

import (
	"net/netip"
	"slices"
	"time"
)

// hintsMax is how many clients of other edges the table remembers for each worker. When it
// is full, an older hint is forgotten, and the next datagram of that client asks again.
const hintsMax = 65_536

// How long a hint counts: that another edge serves a client, and that no edge does.
const (
	elsewhereTime = 2 * time.Second
	nowhereTime   = time.Second
)

// A ClientKey is one end of a session: the address of a client and the port that it talks
// to, because an edge may have several listeners.
type ClientKey struct {
	Addr     netip.AddrPort
	Listener uint16
}

// Locations is the location table of an edge: where clients are served, as far as this edge
// knows. All workers of the edge share it, because the datagrams of a client may come to any
// of them. The zero value is an empty table without room for hints; each worker adds some.
//
// An entry belongs to one client, and is found by the client and by the name of the
// session's log. Each may be unknown for a while: the client of a session that is taken
// over by its name, and the name where only a hint is known. An entry has
//   - a share for each worker of this edge that has the session, opens it, takes it over or
//     gave it away, or that looks after a superseded claim on it. There is seldom more than
//     one; there are two while one worker takes a session over and the other does not know
//     yet that it lost it;
//   - a hint: another edge serves the client, or no edge does, until some time.
type Locations struct {
	byClient map[ClientKey]*location
	byName   map[string]*location
	hints    []*location // those with a hint, each once; the next to be examined first
	room     int         // for hints
}

type location struct {
	client ClientKey // zero if only the name is known
	name   string    // of the log; empty if only the client is known
	shares []share

	hinted bool      // it is in hints
	node   string    // the hint: the edge that serves the client; empty for none
	until  time.Time // the hint counts; zero if it was withdrawn
}

// A share is what one worker has of a session.
type share struct {
	worker  int
	present bool             // the worker has the session, opens it, takes it over, or gave it to an edge that has not consented
	epoch   uint64           // in which the worker owns or owned it; 0 before
	claim   *supersededClaim // that the worker looks after; nil for none
}

// A placeKind says where a client is served.
type placeKind uint8

const (
	placeUnknown   placeKind = iota
	placeHere                // Place.Worker has the session, or is taking it over
	placeElsewhere           // the edge Place.Node has it
	placeNowhere             // no edge has it
)

// A place is where a client is served.
type place struct {
	Kind   placeKind
	Worker int
	Node   string
}

// grow makes room for the hints of one more worker.
func (l *Locations) grow() { l.room += hintsMax }

// enter notes that a worker opens a session or takes it over. The address of the client is
// invalid while it is not known.
func (l *Locations) enter(name string, c ClientKey, worker int) {
	s := l.at(name, c).shareOf(worker)
	s.present = true
}

// own notes in which epoch a worker has a session.
func (l *Locations) own(name string, c ClientKey, worker int, epoch uint64) {
	s := l.at(name, c).shareOf(worker)
	s.present, s.epoch = true, epoch
}

// leave notes that a worker has nothing to do with a session, except for a superseded claim.
func (l *Locations) leave(name string, worker int) {
	if x, i := l.find(name, worker); i >= 0 {
		x.shares[i].present, x.shares[i].epoch = false, 0
		l.prune(x)
	}
}

// present reports whether a worker of this edge has a session, opens it, takes it over or
// gave it to an edge that has not consented yet.
func (l *Locations) present(name string) bool {
	x := l.byName[name]
	return x != nil && slices.ContainsFunc(x.shares, func(s share) bool { return s.present })
}

// Server returns the worker that has the session of a client, with its epoch, or one that
// is taking it over: then the epoch is 0.
func (l *Locations) Server(c ClientKey) (worker int, epoch uint64, ok bool) {
	x := l.byClient[c]
	if x == nil {
		return 0, 0, false
	}
	for _, s := range x.shares {
		if s.present && (!ok || s.epoch >= epoch) {
			worker, epoch, ok = s.worker, s.epoch, true
		}
	}
	return worker, epoch, ok
}

// locate returns where a client is served. An owner in this edge counts for more than the
// hint that another edge serves the client, that hint for more than an attempt of this edge
// to open the session or to take it over, and the attempt for more than the hint that no
// edge does.
func (l *Locations) locate(now time.Time, c ClientKey) place {
	worker, epoch, here := l.Server(c)
	x := l.byClient[c]
	hinted := x != nil && x.until.After(now)
	switch {
	case hinted && x.node != "" && epoch == 0:
		return place{Kind: placeElsewhere, Node: x.node}
	case here:
		return place{Kind: placeHere, Worker: worker}
	case hinted:
		return place{Kind: placeNowhere}
	}
	return place{}
}

// hint remembers that the edge node serves a client, or with an empty name that no edge
// does.
func (l *Locations) hint(now time.Time, c ClientKey, node string) {
	until := now.Add(elsewhereTime)
	if node == "" {
		until = now.Add(nowhereTime)
	}
	l.expire(now)
	x := l.at("", c)
	if !x.hinted {
		if len(l.hints) >= l.room {
			l.dropHint(l.nextHint())
		}
		x.hinted = true
		l.hints = append(l.hints, x)
	}
	x.node, x.until = node, until
}

// Withdraw forgets the hint that node serves a client.
func (l *Locations) Withdraw(c ClientKey, node string) {
	if x := l.byClient[c]; x != nil && x.node == node {
		x.node, x.until = "", time.Time{}
	}
}

// expire forgets hints that are over. It examines two, which is enough because one is
// added at a time.
func (l *Locations) expire(now time.Time) {
	for range min(2, len(l.hints)) {
		if x := l.nextHint(); x.until.After(now) {
			l.hints = append(l.hints, x)
		} else {
			l.dropHint(x)
		}
	}
}

func (l *Locations) nextHint() *location {
	x := l.hints[0]
	l.hints[0] = nil
	l.hints = l.hints[1:]
	return x
}

func (l *Locations) dropHint(x *location) {
	x.hinted, x.node, x.until = false, "", time.Time{}
	l.prune(x)
}

// supersede has a worker look after its claim on a session.
func (l *Locations) supersede(name string, c ClientKey, worker int, claim *supersededClaim) {
	l.at(name, c).shareOf(worker).claim = claim
}

// superseded returns the claim on a session that a worker looks after; nil for none.
func (l *Locations) superseded(name string, worker int) *supersededClaim {
	if x, i := l.find(name, worker); i >= 0 {
		return x.shares[i].claim
	}
	return nil
}

// dropSuperseded returns the claim on a session that a worker looks after, and stops looking
// after it; nil for none.
func (l *Locations) dropSuperseded(name string, worker int) (claim *supersededClaim) {
	if x, i := l.find(name, worker); i >= 0 {
		claim, x.shares[i].claim = x.shares[i].claim, nil
		l.prune(x)
	}
	return claim
}

// at returns the entry of a session, which it makes if there is none. Of name and client
// one may be missing. Each name belongs to one client, and each client has one name.
func (l *Locations) at(name string, c ClientKey) *location {
	if l.byClient == nil {
		l.byClient, l.byName = make(map[ClientKey]*location), make(map[string]*location)
	}
	x, y := l.byName[name], l.byClient[c]
	switch {
	case x == nil && y == nil:
		x = &location{}
	case x == nil:
		x = y
	case y != nil && x != y: // the client of x is that of y
		y.shares = append(y.shares, x.shares...)
		x = y
	}
	if name != "" {
		x.name = name
		l.byName[name] = x
	}
	if c.Addr.IsValid() {
		x.client = c
		l.byClient[c] = x
	}
	return x
}

func (l *Locations) find(name string, worker int) (x *location, i int) {
	if x = l.byName[name]; x == nil {
		return nil, -1
	}
	return x, slices.IndexFunc(x.shares, func(s share) bool { return s.worker == worker })
}

// shareOf returns the share of a worker, which it makes if there is none. It is valid
// until the next call.
func (x *location) shareOf(worker int) *share {
	i := slices.IndexFunc(x.shares, func(s share) bool { return s.worker == worker })
	if i < 0 {
		i = len(x.shares)
		x.shares = append(x.shares, share{worker: worker})
	}
	return &x.shares[i]
}

// prune forgets an entry that says nothing.
func (l *Locations) prune(x *location) {
	x.shares = slices.DeleteFunc(x.shares, func(s share) bool { return !s.present && s.claim == nil })
	if len(x.shares) > 0 || x.hinted {
		return
	}
	delete(l.byName, x.name)
	delete(l.byClient, x.client)
}
