package takeover

import (
	"net/netip"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// An edge that is cut off from everything cannot tell that from the death of all others. So an edge
// that knows of no other edge takes over no inherited claim while the log does not answer it, nor
// for rejoinTime afterwards: gossip tries to join lost nodes every 10 s. It begins alonePatience
// after it lost the last edge, when a dead one does not count as alive in the affinity any more.
const (
	rejoinTime    = 10 * time.Second
	alonePatience = 2 * time.Second

	logGap = time.Second // without an answer after which the log counts as not reached
)

// A worker asks the log whether it answers, so that it knows before a client comes: each probePause, and
// each probeInterval while the log is silent or no other edge is known.
const (
	probePause    = time.Second
	probeInterval = 250 * time.Millisecond
)

// logPatience is how long the log may be silent before new clients are rejected. Libraries repeat a
// request that has no answer for 5 s, and take a rejection as final.
const logPatience = 4 * time.Second

// permissionTime is how long the permission of the affinity to take a session over counts. A log
// that is read later says nothing about whether its owner is dead.
const permissionTime = time.Second

// answers reports whether a verdict is an answer of the log.
func answers(v fence.Verdict) bool { return v != fence.Unknown && v != fence.Unreachable }

// A reach notes whether the log answers this worker.
type reach struct {
	heard time.Time // when it answered last
	gap   time.Time // when it was last known not to answer
	cut   bool      // it has not answered since, and no other edge was known meanwhile
}

// note notes an answer of the log, and whether no other edge is known. It reports whether this edge was cut
// off, and is not any more.
func (r *reach) note(now time.Time, v fence.Verdict, alone bool) (back bool) {
	switch {
	case answers(v):
		back, r.cut, r.heard = r.cut, false, now
	case now.Sub(r.heard) > logGap:
		r.cut, r.gap = r.cut || alone, now
	}
	return back
}

// settled reports whether the log answers, and did for rejoinTime.
func (r *reach) settled(now time.Time) bool {
	return now.Sub(r.heard) <= logGap && now.Sub(r.gap) >= rejoinTime
}

// mayJudge reports whether this edge may believe that another edge is dead.
func (c *claims) mayJudge(now time.Time) bool {
	return !c.host.View().alone || c.reach.settled(now)
}

// advanceProbe asks the log whether it answers, and returns when to ask again. The answers decide about
// inherited claims only if no other edge is known.
func (c *claims) advanceProbe(now, next time.Time) time.Time {
	hear, interval := c.noteSilence, probePause
	if (c.host.View().alone || c.reach.cut) && len(c.byName)+len(c.lists)+len(c.inherited) > 0 {
		hear, interval = c.heardLog, probeInterval
	}
	if !c.silent.IsZero() {
		interval = probeInterval
	}
	c.probe.next = earlier(c.probe.next, now.Add(interval))
	if c.probe.take(now, interval) {
		c.cfg.Log.Read(sessionlog.Key(c.cfg.Secret, netip.AddrPort{}, 0), func(a sessionlog.Answer) {
			c.host.Must(func(now time.Time) { hear(now, a.Verdict) })
		})
	}
	return earlier(next, c.probe.next)
}

// noteSilence notes since when the log is silent.
func (b *base) noteSilence(now time.Time, v fence.Verdict) {
	switch {
	case answers(v):
		b.silent = time.Time{}
		b.host.LogAnswers(now, true)
	case b.silent.IsZero():
		b.silent = now
	case now.Sub(b.silent) >= logGap: // a few answers may get lost
		b.host.LogAnswers(now, false)
	}
}

// Admission says whether a session may begin. While the log is silent, the edge could only answer the
// client's request, and store nothing. It keeps nothing of clients that wait, because their addresses may
// be forged: how long the log has been silent decides for all of them.
func (b *base) Admission() dnp.AdmitVerdict {
	switch {
	case b.silent.IsZero():
		return dnp.AdmitAccept
	case b.turned.Sub(b.silent) < logPatience:
		return dnp.AdmitWait
	}
	return dnp.AdmitRefuse
}

// heardLog notes an answer of the log. Other edges may have the sessions of an edge that was cut off.
func (b *base) heardLog(now time.Time, v fence.Verdict) {
	b.noteSilence(now, v)
	if b.reach.note(now, v, b.host.View().alone) {
		b.revalidateAll()
	}
}
