package takeover

import (
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/cluster/forward"
	"github.com/dnprelay/dnprelay/internal/turn/heap"
)

// hintsMax is how many clients of other edges the table remembers for each worker. When it
// is full, an older hint is forgotten, and the next datagram of that client asks again.
const hintsMax = 65_536

// How long a hint counts: that another edge serves a client, and that no edge does.
const (
	elsewhereTime = 2 * time.Second
	nowhereTime   = time.Second
)

// Locations is the location table of an edge: where clients are served, as far as this edge
// knows. All workers of the edge share it, because the datagrams of a client may come to any
// of them. They need it for datagrams of clients that they do not serve, and when sessions
// begin or end. Any goroutine may call its methods.
//
// An entry belongs to one client, and is found by the client and by the name of the
// session's log. Each may be unknown for a while: the client of a session that is taken
// over by its name, and the name where only a hint is known. An entry has
//   - a share for each worker of this edge that has the session, opens it, takes it over, or
//     gave it to an edge that has not consented. There is seldom more than one; there are
//     two while one worker takes a session over and the other does not know yet that it
//     lost it;
//   - a hint: another edge serves the client, or no edge does, until some time.
type Locations struct {
	guard    Guard
	byClient map[forward.Client]*location
	byName   map[string]*location
	hints    *heap.Heap[*location] // those with a hint, by until
	room     int                   // for hints
}

// A Guard is a mutex that guards a table which several workers use, so that none can own it.
type Guard interface {
	Lock()
	Unlock()
}

// NewLocations returns an empty table without room for hints; each worker adds some.
func NewLocations(guard Guard) *Locations {
	return &Locations{guard: guard, byClient: make(map[forward.Client]*location), byName: make(map[string]*location), hints: heap.New(
		func(a, b *location) bool { return a.until.Before(b.until) },
		func(x *location) *int { return &x.hint },
	)}
}

type location struct {
	client forward.Client // zero if only the name is known
	name   string         // of the log; empty if only the client is known
	shares []share

	hint  int       // place in hints; 0 without a hint
	node  string    // the edge that serves the client; empty for none
	until time.Time // the hint counts
}

// A share is what one worker has of a session.
type share struct {
	worker int
	epoch  uint64 // in which the worker owns or owned it; 0 before
}

// A placeKind says where a client is served.
type placeKind uint8

const (
	placeUnknown   placeKind = iota
	placeHere                // a worker of this edge has the session, or is taking it over
	placeElsewhere           // another edge has it
	placeNowhere             // no edge has it
)

// grow makes room for the hints of one more worker.
func (l *Locations) grow() {
	l.guard.Lock()
	defer l.guard.Unlock()
	l.room += hintsMax
}

// enter notes that a worker opens a session or takes it over. The address of the client is
// invalid while it is not known.
func (l *Locations) enter(name string, c forward.Client, worker int) {
	l.guard.Lock()
	defer l.guard.Unlock()
	l.at(name, c).shareOf(worker)
}

// own notes in which epoch a worker has a session.
func (l *Locations) own(name string, c forward.Client, worker int, epoch uint64) {
	l.guard.Lock()
	defer l.guard.Unlock()
	l.at(name, c).shareOf(worker).epoch = epoch
}

// leave notes that a worker has nothing to do with a session.
func (l *Locations) leave(name string, worker int) {
	l.guard.Lock()
	defer l.guard.Unlock()
	if x := l.byName[name]; x != nil {
		x.shares = slices.DeleteFunc(x.shares, func(s share) bool { return s.worker == worker })
		l.prune(x)
	}
}

// present reports whether a worker of this edge has a session, opens it, takes it over or
// gave it to an edge that has not consented yet.
func (l *Locations) present(name string) bool {
	l.guard.Lock()
	defer l.guard.Unlock()
	x := l.byName[name]
	return x != nil && len(x.shares) > 0
}

// Server returns the worker that has the session of a client, with its epoch, or one that
// is taking it over: then the epoch is 0.
func (l *Locations) Server(c forward.Client) (worker int, epoch uint64, ok bool) {
	l.guard.Lock()
	defer l.guard.Unlock()
	return l.byClient[c].server()
}

func (x *location) server() (worker int, epoch uint64, ok bool) {
	if x == nil {
		return 0, 0, false
	}
	for _, s := range x.shares {
		if !ok || s.epoch >= epoch {
			worker, epoch, ok = s.worker, s.epoch, true
		}
	}
	return worker, epoch, ok
}

// locate returns where a client is served. An owner in this edge counts for more than the
// hint that another edge serves the client, that hint for more than an attempt of this edge
// to open the session or to take it over, and the attempt for more than the hint that no
// edge does.
func (l *Locations) locate(now time.Time, c forward.Client) (kind placeKind, worker int, node string) {
	l.guard.Lock()
	defer l.guard.Unlock()
	x := l.byClient[c]
	worker, epoch, here := x.server()
	hinted := x != nil && x.until.After(now)
	switch {
	case hinted && x.node != "" && epoch == 0:
		return placeElsewhere, 0, x.node
	case here:
		return placeHere, worker, ""
	case hinted:
		return placeNowhere, 0, ""
	}
	return placeUnknown, 0, ""
}

// hint remembers that the edge node serves a client, or with an empty name that no edge
// does. It forgets two hints that are over, which is enough because one is added at a time.
func (l *Locations) hint(now time.Time, c forward.Client, node string) {
	l.guard.Lock()
	defer l.guard.Unlock()
	for range 2 {
		if x, ok := l.hints.First(); ok && !x.until.After(now) {
			l.dropHint(x)
		}
	}
	x := l.at("", c)
	if first, ok := l.hints.First(); ok && x.hint == 0 && l.hints.Len() >= l.room {
		l.dropHint(first)
	}
	x.node, x.until = node, now.Add(elsewhereTime)
	if node == "" {
		x.until = now.Add(nowhereTime)
	}
	l.hints.Set(x)
}

// Returned notes that node sent a datagram to a client through this edge, so it serves the
// client: the hint that says so goes on to count, and replaces one that no edge does.
func (l *Locations) Returned(now time.Time, c forward.Client, node string) {
	l.guard.Lock()
	defer l.guard.Unlock()
	x := l.byClient[c]
	if x == nil || x.hint == 0 {
		return
	}
	if x.node == "" || x.node == node && x.until.Sub(now) < elsewhereTime/2 {
		x.node, x.until = node, now.Add(elsewhereTime)
		l.hints.Set(x)
	}
}

// Withdraw forgets the hint that node serves a client.
func (l *Locations) Withdraw(c forward.Client, node string) {
	l.guard.Lock()
	defer l.guard.Unlock()
	if x := l.byClient[c]; x != nil && x.node == node {
		l.dropHint(x)
	}
}

func (l *Locations) dropHint(x *location) {
	l.hints.Remove(x)
	x.node, x.until = "", time.Time{}
	l.prune(x)
}

// at returns the entry of a session, which it makes if there is none. Of name and client
// one may be missing. Each name belongs to one client, and each client has one name.
func (l *Locations) at(name string, c forward.Client) *location {
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
	if len(x.shares) == 0 && x.hint == 0 {
		delete(l.byName, x.name)
		delete(l.byClient, x.client)
	}
}
