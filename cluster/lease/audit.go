package lease

import (
	"time"

	"github.com/dnprelay/dnprelay/internal/fence"
)

// What this relay knows of the stream may be lost there, because the servers lost power. Their clients connect again then, and a watch begins anew. What
// this relay knew before counts again when the watch brings it, or something newer, or when the leader says that it is there. Until then this
// relay takes no shard and revokes no lease. If the leader does not have it, the relay begins anew.

// A proof is the highest sequence of a subject that the stream has for certain: the watch brought it, or the leader said so since the watch began.
type proof struct {
	seq  uint64
	sent time.Time // when the leader was asked
}

// saw notes what the stream has.
func (p *proof) saw(seq uint64) { p.seq = max(p.seq, seq) }

// forgetProofs says that a watch begins.
func (l *Lease) forgetProofs() {
	l.proved, l.lacking = proof{}, time.Time{}
	for _, p := range l.peers {
		p.proved = proof{}
	}
	for _, s := range l.list {
		s.proved = proof{}
	}
}

// doubts asks the leader for what is not proven, and reports whether there is anything.
func (l *Lease) doubts(now time.Time) (any bool) {
	ask := func(p *proof, known uint64, a Action) {
		if known <= p.seq {
			return
		}
		any = true
		if now.Sub(p.sent) >= Timeout {
			p.sent, a.Asked = now, now
			l.emit(a)
		}
	}
	if l.joined {
		ask(&l.proved, l.last, Action{Kind: ActionReadLease, Node: l.cfg.Node})
	}
	for _, name := range l.order {
		p := l.peers[name]
		ask(&p.proved, p.Seq, Action{Kind: ActionReadLease, Node: name})
	}
	for _, s := range l.list {
		ask(&s.proved, s.owner.Seq, Action{Kind: ActionReadOwner, Shard: s.n})
	}
	if !any {
		l.lacking = time.Time{}
	}
	return any
}

// checked takes the last sequence of a subject that the leader has, of which this relay knows one.
func (l *Lease) checked(now time.Time, p *proof, known, seq uint64, v fence.Verdict) {
	switch {
	case v != fence.OK:
		l.lacking = time.Time{}
	case seq >= known:
		p.saw(seq)
	case known > p.seq && !p.sent.IsZero():
		l.lacks(now, &l.lacking)
	}
}

// lacks takes note that the leader does not have a record that was stored, and since when it says so. A leader that was deposed and does not
// know says so for a moment. If it goes on, the servers lost what they had stored, or the lease was revoked so long ago that nothing of it is left.
func (l *Lease) lacks(now time.Time, since *time.Time) {
	switch {
	case since.IsZero():
		*since = now
	case now.Sub(*since) >= lacksWait:
		l.lost()
	}
}

// lost says that the stream lacks what it had: the leader says so, or it has another record with the sequence of one that this relay knows.
func (l *Lease) lost() {
	if !l.forgot {
		l.forgot = true
		l.emit(Action{Kind: ActionForgot})
	}
}
