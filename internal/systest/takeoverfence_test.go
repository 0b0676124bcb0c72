package systest

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/sessionlog"
)

// takeoverStall is how long an edge must be stopped to be sure to notice it.
const takeoverStall = 300 * time.Millisecond

// A fence checks that nothing is accepted from an edge whose sessions others took over while it
// was stopped: not by the log, the game, the affinity or clients.
type fence struct {
	w    *takeoverWorld
	logs map[string]*fencedLog
	seen fenceCounts
}

// A fencedLog is the state of a log according to the writes that it accepted.
type fencedLog struct {
	epoch, owner uint64
	node         string          // of the owner
	start        int             // of its process
	stored       map[uint64]bool // commands of the client, by number
	ended        bool            // a session of the client
}

// fenceCounts are the attempts of resumed edges. All but the last were refused, or the test
// fails.
type fenceCounts struct {
	woken   int // sessions that another edge owned when an edge resumed
	writes  int // writes that it sent to the log
	claims  int
	repeats int // messages that the game had already
	firsts  int // messages that the game did not have; the log had them before the edge was replaced
}

func (c fenceCounts) String() string {
	return fmt.Sprintf("%d sessions of edges that resumed too late: %d writes, %d claims and %d messages in vain; %d messages that the next owner had not published yet",
		c.woken, c.writes, c.claims, c.repeats, c.firsts)
}

func (c *fenceCounts) add(o fenceCounts) {
	c.woken, c.writes, c.claims, c.repeats, c.firsts = c.woken+o.woken, c.writes+o.writes, c.claims+o.claims, c.repeats+o.repeats, c.firsts+o.firsts
}

func newFence(w *takeoverWorld) *fence { return &fence{w: w, logs: map[string]*fencedLog{}} }

// A takeoverStop is what an edge had when it was stopped, and what became of it.
type takeoverStop struct {
	at     time.Duration
	had    []*takeoverPlayer
	feeds  []*takeoverFeed         // resumed with it
	others map[netip.AddrPort]bool // clients that another edge took over meanwhile
}

// stops records the sessions of an edge that is stopped, according to the log. The edge need not
// know yet that it owns them.
func (e *takeoverEdge) stops() {
	e.stopped.at, e.stopped.had = e.w.net.Elapsed(), nil
	for _, p := range e.w.players {
		if e.w.fence.of(p.log()).node == e.name {
			e.stopped.had = append(e.stopped.had, p)
		}
	}
}

// wakes records the sessions that the edge lost while it was stopped, and lets it publish its
// waiting messages before it can notice.
func (e *takeoverEdge) wakes() {
	f := e.w.fence
	e.stopped.others = map[netip.AddrPort]bool{}
	for _, p := range e.stopped.had {
		if f.of(p.log()).node != e.name && e.w.net.Elapsed()-e.stopped.at > takeoverStall {
			e.stopped.others[p.addr] = true
			f.seen.woken++
		}
	}
	feeds := e.stopped.feeds
	e.stopped.feeds = nil
	for _, d := range feeds {
		d.publish()
	}
}

// passes takes a datagram out of the list of those of other edges that leave here. It reports
// whether the datagram was in it.
func (e *takeoverEdge) passes(to netip.AddrPort, b []byte) bool {
	i := slices.Index(e.passing[to], string(b))
	if i >= 0 {
		e.passing[to] = slices.Delete(e.passing[to], i, i+1)
	}
	return i >= 0
}

func (f *fence) of(log string) *fencedLog {
	if f.logs[log] == nil {
		f.logs[log] = &fencedLog{stored: map[uint64]bool{}}
	}
	return f.logs[log]
}

// applied judges a write that the log accepted.
func (f *fence) applied(log string, e sessionlog.Entry) {
	k, err := sessionlog.ParseBlock(e.Data)
	if err != nil {
		f.w.failf("the log accepts a write that does not parse")
		return
	}
	l := f.of(log)
	if k.Epoch < l.epoch || k.Epoch == l.epoch && k.Owner != l.owner {
		f.w.failf("the log accepts a write of epoch %d by %x after one of epoch %d by %x, %s", k.Epoch, k.Owner, l.epoch, l.owner, l.node)
	}
	l.epoch, l.owner = k.Epoch, k.Owner
	if k.Adopt != nil {
		f.moves(log, l.node, *k.Adopt)
		f.robs(l, log, *k.Adopt)
		l.node = *k.Adopt
		l.start = f.w.edge(l.node).start
		f.forget(log, func(e *takeoverEdge) bool { return e.name == l.node })
	}
	if k.Close != nil {
		l.ended = true
		f.forget(log, func(*takeoverEdge) bool { return true }) // the client is a stranger like any
	}
	for _, r := range k.Changes.Received {
		l.stored[r.Number] = true
	}
}

// forget notes that some edges may send to the client of a log.
func (f *fence) forget(log string, which func(e *takeoverEdge) bool) {
	for _, e := range f.w.edges {
		for _, p := range f.w.players {
			if p.log() == log && which(e) {
				delete(e.stopped.others, p.addr)
			}
		}
	}
}

// tries counts a write that a resumed edge sends to the log.
func (f *fence) tries(e *takeoverEdge, w sessionlog.Write) {
	if e.paused || len(e.stopped.others) == 0 {
		return
	}
	if k, err := sessionlog.ParseBlock(w.Data); err == nil && k.Epoch < f.of(w.Log).epoch {
		f.seen.writes++
	}
}

// consumes judges a client's message that reaches the game from an edge: the log must have it.
func (f *fence) consumes(e *takeoverEdge, p *takeoverPlayer, m sessionlog.Message) {
	if !f.of(p.log()).stored[m.Number] {
		f.w.failf("%s publishes message %d of player %d, which is not in the log", e.name, m.Number, p.index)
	}
	switch {
	case !e.stopped.others[p.addr]:
	case m.Number < p.cursor:
		f.seen.repeats++
	default:
		f.seen.firsts++
	}
}

// claims lets an edge claim a session, and judges what becomes of the claim.
func (f *fence) claims(a *takeoverAffinity, name string, epoch uint64) {
	l := f.of(name)
	claimed := func() bool { // in the current epoch
		node, epoch := f.w.claims.Claim(name)
		return node == l.node && epoch == l.epoch
	}
	late := epoch < l.epoch && l.node != a.e.name && claimed()
	a.Node.Claim(name, epoch)
	if !late {
		return
	}
	f.seen.claims++
	if !claimed() {
		f.w.failf("%s claims a session in epoch %d that %s has in epoch %d", a.e.name, epoch, l.node, l.epoch)
	}
}

// sends judges a datagram that an edge itself sends to a client.
func (f *fence) sends(e *takeoverEdge, to netip.AddrPort, b []byte) {
	if e.stopped.others[to] && f.w.old == 0 && !e.unknowing(b) { // an old answer of the log would say that the session is still the edge's
		p := f.w.player(to)
		f.w.failf("%s resumed and sends % x to player %d, which %s serves in epoch %d", e.name, b[:min(len(b), 8)], p.index, f.of(p.log()).node, f.of(p.log()).epoch)
	}
}

// A takeoverLog is the log as an edge sees it.
type takeoverLog struct {
	e *takeoverEdge
	sessionlog.Log
}

// Append implements sessionlog.Log.
func (l takeoverLog) Append(w sessionlog.Write, answer func(sessionlog.Answer)) {
	l.e.w.fence.tries(l.e, w)
	l.Log.Append(w, answer)
}
