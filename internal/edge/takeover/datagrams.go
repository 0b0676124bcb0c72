package takeover

import (
	"bytes"
	"net/netip"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/internal/turn/heap"
)

// Bounds of orphan datagrams: those whose client this worker does not serve. They wait until
// the worker knows which edge serves the client, or until it has taken the session over. A
// client repeats everything reliable after half a second.
const (
	orphansPerClient     = 8
	orphanBytesPerClient = 64 << 10 // any datagram fits
	orphansMax           = 4096     // clients
	orphanBytesMax       = 16 << 20
	orphanTime           = 250 * time.Millisecond
	askAgainTime         = 50 * time.Millisecond

	// asksMax is how often the worker asks again whether another edge has taken a session over whose owner lives. Then
	// it reads the log itself: that edge may try for ever, because of datagrams that anybody can have written.
	asksMax = 2
)

// An orphan is a datagram of a client that the worker does not serve. hold makes a copy of
// data; before, it belongs to the caller of Intercept.
type orphan struct {
	data []byte
	edge string // over which it came; empty for none
	hops uint8  // how often it was forwarded
}

// orphans are the orphan datagrams of a worker, by client.
type orphans struct {
	byAddr map[netip.AddrPort]*orphanQueue
	byDue  *heap.Heap[*orphanQueue]
	bytes  int // of all
}

// An orphanQueue is the orphan datagrams of one client.
type orphanQueue struct {
	addr  netip.AddrPort
	until time.Time
	again time.Time // when to ask again which edge serves the client; zero for never
	asked int       // how often it was asked again
	place int       // in orphans.byDue
	list  []orphan
	bytes int // of list
}

func newOrphans() orphans {
	return orphans{byAddr: make(map[netip.AddrPort]*orphanQueue), byDue: heap.New(
		func(a, b *orphanQueue) bool { return a.due().Before(b.due()) },
		func(x *orphanQueue) *int { return &x.place },
	)}
}

func (x *orphanQueue) due() time.Time {
	if x.again.IsZero() {
		return x.until
	}
	return earlier(x.again, x.until)
}

// hold keeps a copy of a datagram. It reports whether it is the first of its client, and
// whether there was room.
func (q *orphans) hold(now time.Time, from netip.AddrPort, o orphan) (first, ok bool) {
	x, size := q.byAddr[from], len(o.data)
	switch {
	case q.bytes+size > orphanBytesMax:
		return false, false
	case x == nil && len(q.byAddr) >= orphansMax:
		return false, false
	case x != nil && (len(x.list) >= orphansPerClient || x.bytes+size > orphanBytesPerClient):
		return false, false
	case x == nil:
		first = true
		x = &orphanQueue{addr: from, until: now.Add(orphanTime)}
		q.byAddr[from] = x
		q.byDue.Set(x)
	}
	o.data = bytes.Clone(o.data)
	x.list = append(x.list, o)
	x.bytes += size
	q.bytes += size
	return first, true
}

func (q *orphans) waiting(from netip.AddrPort) bool { return q.byAddr[from] != nil }

// any reports whether f is true of one of the datagrams of a client that wait.
func (q *orphans) any(from netip.AddrPort, f func(datagram []byte) bool) bool {
	x := q.byAddr[from]
	return x != nil && slices.ContainsFunc(x.list, func(o orphan) bool { return f(o.data) })
}

// over reports whether an edge forwarded one of the datagrams of a client that wait. That edge does not serve
// the client.
func (q *orphans) over(from netip.AddrPort, edge string) bool {
	x := q.byAddr[from]
	return x != nil && slices.ContainsFunc(x.list, func(o orphan) bool { return o.edge == edge })
}

// remove removes and returns the datagrams of a client that wait.
func (q *orphans) remove(from netip.AddrPort) []orphan {
	x := q.byAddr[from]
	if x == nil {
		return nil
	}
	delete(q.byAddr, from)
	q.byDue.Remove(x)
	q.bytes -= x.bytes
	return x.list
}

// askLater plans another question about a client whose datagrams wait, unless one is planned.
func (q *orphans) askLater(now time.Time, from netip.AddrPort) {
	if x := q.byAddr[from]; x != nil && x.again.IsZero() {
		x.again = now.Add(askAgainTime)
		q.byDue.Set(x)
	}
}

// asked returns how often it was asked again who serves a client whose datagrams wait.
func (q *orphans) asked(from netip.AddrPort) int {
	if x := q.byAddr[from]; x != nil {
		return x.asked
	}
	return 0
}

// advance drops datagrams that waited for too long, and returns a client about whom it is time
// to ask again. Without one, the address is invalid, and at is when there is more to do.
func (q *orphans) advance(now, next time.Time) (from netip.AddrPort, at time.Time) {
	for x, ok := q.byDue.First(); ok; x, ok = q.byDue.First() {
		switch {
		case x.due().After(now):
			return from, earlier(next, x.due())
		case x.until.After(now):
			x.again = time.Time{}
			x.asked++
			q.byDue.Set(x)
			return x.addr, now
		}
		q.remove(x.addr)
	}
	return from, next
}

// A Path is the return path to a client: how its datagrams come, so that answers leave by
// the address that it knows. The zero Path is directly.
//
// Where a balancer tracks connections (Config.AnswerOnly), the first datagram must be the
// client's: a datagram that an edge sends before leaves an entry for the pair of addresses.
// When the client's datagrams come to that node, the balancer takes the entry and gives
// them another source port. So the edge sends nothing on an unknown path there. Elsewhere
// it sends to the client directly.
type Path struct {
	Edge    string // over which the client's datagrams come; empty for none
	Unknown bool   // none of its datagrams has come yet; only with Config.AnswerOnly, see setPath
}

// A datagram can be forged, so one that comes another way than the return path does not change
// the path: it is a reason to ask the client. Meanwhile its session has other ways, and what
// the edge says reliably goes by all of them. The path becomes the way by which the answer
// comes, which only the client can give (dnp.Conn.Ask).
const (
	waysMax       = 3               // besides the return path
	wayTime       = 2 * time.Second // since a datagram came that way
	askPauseFirst = 2 * time.Second
	askPauseLast  = 4 * time.Second
)

// otherWays are the ways besides the return path by which datagrams in the name of a client
// came lately.
type otherWays struct {
	list  []otherWay    // that heard a datagram last is the last
	again time.Time     // when to ask again
	pause time.Duration // between two questions
}

type otherWay struct {
	edge     string // empty for directly
	until    time.Time
	answered bool // one answer came by it
}

// note notes that a datagram came over an edge. It reports whether to ask the client.
func (w *otherWays) note(now time.Time, edge string) (ask bool) {
	way := otherWay{edge: edge, until: now.Add(wayTime)}
	w.list = slices.DeleteFunc(w.list, func(o otherWay) bool {
		way.answered = way.answered || o.edge == edge && o.answered
		return o.edge == edge || !o.until.After(now)
	})
	if len(w.list) == waysMax {
		w.list = w.list[1:]
	}
	w.list = append(w.list, way)
	if now.Before(w.again) {
		return false
	}
	w.pause = min(max(2*w.pause, askPauseFirst), askPauseLast)
	w.again = now.Add(w.pause)
	return true
}

// has reports whether an edge is one of the ways by which a datagram came lately.
func (w *otherWays) has(now time.Time, edge string) bool {
	return slices.ContainsFunc(w.list, func(o otherWay) bool { return o.edge == edge && o.until.After(now) })
}

// Bounds of the return paths of clients without a session. Such addresses can be forged,
// so their paths are remembered in bounds, and for a while: a client that waits for
// something repeats itself sooner. The edge answers a client whose path it has forgotten
// directly until its next datagram, which names its edge again. The path of a client with
// a session is part of the session.
const (
	pathsMax = 4096
	pathTime = 5 * time.Second
)

// paths are the return paths of clients without a session that come over other edges.
type paths struct {
	byAddr  map[netip.AddrPort]*strangerPath
	byUntil *heap.Heap[*strangerPath]
}

type strangerPath struct {
	addr  netip.AddrPort
	edge  string // empty if the client came directly since
	until time.Time
	place int // in paths.byUntil
}

func newPaths() paths {
	return paths{byAddr: make(map[netip.AddrPort]*strangerPath), byUntil: heap.New(
		func(a, b *strangerPath) bool { return a.until.Before(b.until) },
		func(x *strangerPath) *int { return &x.place },
	)}
}

// note remembers over which edge a client comes; empty for none. It reports whether the
// path of another client, the one that was silent for longest, was forgotten for that.
func (p *paths) note(now time.Time, addr netip.AddrPort, edge string) (displaced bool) {
	x := p.byAddr[addr]
	if x == nil {
		if edge == "" {
			return false
		}
		if displaced = len(p.byAddr) >= pathsMax; displaced {
			delete(p.byAddr, p.byUntil.Pop().addr)
		}
		x = &strangerPath{addr: addr}
		p.byAddr[addr] = x
	}
	x.edge, x.until = edge, now.Add(pathTime)
	p.byUntil.Set(x)
	return displaced
}

// edge returns over which edge a client comes.
func (p *paths) edge(addr netip.AddrPort) string {
	if x := p.byAddr[addr]; x != nil {
		return x.edge
	}
	return ""
}

// advance forgets the paths of clients that were silent for too long.
func (p *paths) advance(now time.Time) {
	for x, ok := p.byUntil.First(); ok && !x.until.After(now); x, ok = p.byUntil.First() {
		delete(p.byAddr, p.byUntil.Pop().addr)
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
