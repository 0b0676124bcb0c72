package systest

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/sessionlog"
)

// takeoverStall is for how long an edge has to be stopped to be sure to notice that itself.
const takeoverStall = 300 * time.Millisecond

// A fence watches that nothing is accepted from an edge whose sessions others took over
// while it was stopped: by the log, by the game, by the affinity, or by clients.
type fence struct {
	w    *takeoverWorld
	logs map[string]*fencedLog
	seen fenceCounts
}

// A fencedLog is what the writes say that a log took.
type fencedLog struct {
	epoch, owner uint64
	node         string          // of the owner
	stored       map[uint64]bool // commands of the client, by number
}

// fenceCounts are what woken edges tried. All of it but the last was refused, or the test
// fails.
type fenceCounts struct {
	woken   int // sessions that an edge found to be another's when it went on
	writes  int // that it asked the log for
	claims  int
	repeats int // messages that the game had
	firsts  int // messages that it had not; the log had them before the edge was replaced
}

func (c fenceCounts) String() string {
	return fmt.Sprintf("%d sessions of edges that woke too late: %d writes, %d claims and %d messages in vain; %d messages that the next owner had not published yet",
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
	feeds  []*takeoverFeed         // that go on with it
	others map[netip.AddrPort]bool // clients that another edge took over meanwhile
}

// stops notes whose sessions an edge has that is stopped. It need not know yet that the log
// says so.
func (e *takeoverEdge) stops() {
	e.stopped.at, e.stopped.had = e.w.net.Elapsed(), nil
	for _, p := range e.w.players {
		if e.w.fence.of(p.log()).node == e.name {
			e.stopped.had = append(e.stopped.had, p)
		}
	}
}

// wakes notes whose sessions are not its own any more, and lets it publish what waits
// before it can find that out.
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

// passes reports whether a datagram to a client is one of another edge that leaves here.
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

// applied judges a write that the log took.
func (f *fence) applied(log string, e sessionlog.Entry) {
	k, err := sessionlog.ParseBlock(e.Data)
	if err != nil {
		f.w.failf("the log takes a write that cannot be read")
		return
	}
	l := f.of(log)
	if k.Epoch < l.epoch || k.Epoch == l.epoch && k.Owner != l.owner {
		f.w.failf("the log takes a write of epoch %d of %x after one of epoch %d of %x, %s", k.Epoch, k.Owner, l.epoch, l.owner, l.node)
	}
	l.epoch, l.owner = k.Epoch, k.Owner
	if k.Adopt != nil {
		l.node = *k.Adopt
		f.back(log)
	}
	for _, r := range k.Changes.Received {
		l.stored[r.Number] = true
	}
}

// back notes that the owner of a log is no stranger to its client.
func (f *fence) back(log string) {
	for _, e := range f.w.edges {
		for _, p := range f.w.players {
			if p.log() == log && f.of(log).node == e.name {
				delete(e.stopped.others, p.addr)
			}
		}
	}
}

// tries counts a write that a woken edge asks for.
func (f *fence) tries(e *takeoverEdge, w sessionlog.Write) {
	if e.paused || len(e.stopped.others) == 0 {
		return
	}
	if k, err := sessionlog.ParseBlock(w.Data); err == nil && k.Epoch < f.of(w.Log).epoch {
		f.seen.writes++
	}
}

// consumes judges a message of a client that comes to the game from an edge: it is stored.
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
	claimed := func() bool { // and not an earlier epoch only
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

// sends judges a datagram of an edge's own to a client.
func (f *fence) sends(e *takeoverEdge, to netip.AddrPort, b []byte) {
	if e.stopped.others[to] && f.w.old == 0 { // an old answer of the log says that all is well
		p := f.w.player(to)
		f.w.failf("%s went on and sends % x to player %d, whom %s serves in epoch %d", e.name, b[:min(len(b), 8)], p.index, f.of(p.log()).node, f.of(p.log()).epoch)
	}
}

// A takeoverLog is the log as an edge sees it.
type takeoverLog struct {
	e *takeoverEdge
	sessionlog.Log
}

// Append implements sessionlog.Log.
func (l takeoverLog) Append(writes []sessionlog.Write, answer func(i int, a sessionlog.Answer)) {
	for _, w := range writes {
		l.e.w.fence.tries(l.e, w)
	}
	l.Log.Append(writes, answer)
}
