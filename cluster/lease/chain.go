package lease

import (
	"slices"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/internal/fence"
)

// Bounds of one write.
const (
	opKeyframesMax = 998 // with the record, a batch of JetStream has 1,000 messages at most
	opBytesMax     = 900 << 10
)

// A chain is the writes of this relay to the stream, one at a time: each is conditional on the one before. A write of a
// relay whose lease was revoked, or a copy of a write that arrives late, has a condition that never holds again.
type chain struct {
	joined  bool      // this incarnation has written
	last    uint64    // sequence of this relay's last record
	write   uint64    // ordinal of the last write
	op      *op       // the write under way, or nil
	renewed time.Time // when the newest confirmed write was asked
	sent    time.Time // when a write was sent last
	closed  bool      // what the newest record says
	paused  bool      // silent for too long
	grace   time.Time // until when no lease is revoked
	floor   uint64    // the highest epoch that this relay knew when the stream lost it; it holds nothing below

	queue     []*batch  // what waits to be stored, oldest first
	limit     int       // keyframes of the next write
	failures  int       // of writes in a row
	refusals  int       // of writes with keyframes in a row
	retry     time.Time // when to send the write under way again, or to make the next one
	bareUntil time.Time // until when writes spare the keyframes, because one with keyframes failed
}

// A batch waits to be stored.
type batch struct {
	shard *shard
	token uint64
	sizes []int // of the keyframes, in bytes
	done  int   // keyframes that are stored
	since time.Time
}

// An op is one write.
type op struct {
	record Record
	parts  []Part
	shards []*shard  // of the parts
	first  time.Time // when it was asked first
	sent   time.Time // when it was sent last
	read   time.Time // when the leader was asked last what became of it
	unsure bool      // an attempt had no answer, or one that says nothing
	lacks  time.Time // since when the leader says that the stream lacks this relay's last record
}

// Store asks to store a batch of keyframes, whose sizes it keeps, for a shard that this relay holds in an epoch. Either ActionStored or
// ActionFailed follows, unless Store reports false: the shard is not held, or is being released. A batch without
// keyframes is a question: the shard was held at a moment after the call.
func (l *Lease) Store(now time.Time, n int, epoch, token uint64, sizes []int) bool {
	s := l.shard[n]
	if s == nil || s.epoch == 0 || s.epoch != epoch || s.releasing {
		return false
	}
	l.queue = append(l.queue, &batch{shard: s, token: token, sizes: sizes, since: now})
	return true
}

// watchSilence acts on the silence of the store.
func (l *Lease) watchSilence(now time.Time) {
	silent := now.Sub(l.renewed)
	if l.joined && silent >= ownSilence {
		for _, p := range l.peers {
			p.wait(now)
		}
	}
	if paused := silent >= l.cfg.Silence; paused != l.paused {
		l.paused = paused
		for _, s := range l.list {
			if s.epoch != 0 {
				l.pause(s)
			}
		}
	}
	oldest := map[*shard]time.Time{}
	for _, b := range slices.Backward(l.queue) {
		oldest[b.shard] = b.since
	}
	for _, s := range l.list {
		if s.epoch == 0 {
			continue
		}
		since, waits := oldest[s]
		if durable := silent < durableSilence && !(waits && now.Sub(since) >= batchSilence); durable != s.durable {
			s.durable = durable
			l.emit(Action{Kind: ActionDurable, Shard: s.n, Epoch: s.epoch, Durable: durable})
		}
	}
}

// valid reports whether the lease was confirmed lately.
func (l *Lease) valid(now time.Time) bool { return l.joined && now.Sub(l.renewed) < durableSilence }

// open reports whether this relay takes shards: all its workers turn, and it does not leave.
func (l *Lease) open(now time.Time) bool {
	return !slices.ContainsFunc(l.list, func(s *shard) bool { return !s.open || s.hung(now) })
}

// advanceChain makes the next write, or follows up the one that is under way.
func (l *Lease) advanceChain(now time.Time) {
	switch {
	case l.op != nil && l.retry.IsZero():
		if now.Sub(l.op.sent) >= settleWait {
			l.op.unsure = true
			l.settle(now)
		}
		return
	case now.Before(l.retry):
		return
	case l.op != nil:
		l.send(now, true)
		return
	}
	l.retry = time.Time{}
	waits := len(l.queue) > 0 && !now.Before(l.bareUntil)
	open := l.open(now)
	if l.joined && !waits && !l.low() && l.closed == !open && now.Sub(l.sent) < renewInterval {
		return
	}
	l.write++
	o := &op{record: Record{Format: l.recordFormat(), Incarnation: l.incarnation, Write: l.write, Closed: !open}, first: now}
	if waits && l.joined {
		l.take(o)
	}
	l.op = o
	l.send(now, false)
}

// chainDue returns when advanceChain or watchSilence has something to do.
func (l *Lease) chainDue() time.Time {
	next := l.sent.Add(renewInterval)
	switch {
	case !l.retry.IsZero():
		next = l.retry
	case l.op != nil:
		next = later(l.op.sent, l.op.read).Add(settleWait)
	case len(l.queue) > 0 && l.bareUntil.After(l.advanced):
		next = earlier(next, l.bareUntil)
	case !l.joined || len(l.queue) > 0 || l.low() || l.closed != !l.open(l.advanced):
		return time.Time{}
	}
	for _, at := range [...]time.Time{l.renewed.Add(durableSilence), l.renewed.Add(l.cfg.Silence)} {
		if at.After(l.advanced) && at.Before(next) {
			next = at
		}
	}
	for _, b := range l.queue {
		if at := b.since.Add(batchSilence); b.shard.durable && at.Before(next) {
			next = at
		}
	}
	return next
}

// take gives a write its parts of batches.
func (l *Lease) take(o *op) {
	room, count := opBytesMax, l.limit
	for _, b := range l.queue {
		p := Part{b.token, b.done, b.done}
		for p.To < len(b.sizes) && count > 0 && (room >= b.sizes[p.To] || count == l.limit) {
			room -= b.sizes[p.To]
			count--
			p.To++
		}
		if p.To == p.From && len(b.sizes) > 0 {
			break
		}
		o.parts, o.shards = append(o.parts, p), append(o.shards, b.shard)
		if p.To < len(b.sizes) {
			break
		}
	}
}

func (l *Lease) send(now time.Time, again bool) {
	o := l.op
	o.sent, l.sent, l.retry = now, now, time.Time{}
	l.emit(Action{Kind: ActionWrite, Expect: l.last, Record: o.record, Parts: o.parts, Again: again, Asked: now})
}

// Wrote answers the ActionWrite of a record, which was asked at a time.
func (l *Lease) Wrote(now, asked time.Time, r Record, a Answer) {
	o := l.op
	if o == nil || r.Incarnation != l.incarnation || r.Write != o.record.Write {
		return
	}
	switch a.Verdict {
	case fence.OK:
		l.written(now, asked, a)
	case fence.Stale: // it has been written already, or the lease is lost, or this relay has not read the last one
		l.settle(now)
	case fence.Unknown:
		o.unsure = true
		l.settle(now)
	default: // certainly not written
		l.retry = now.Add(backoff(l.failures))
		l.failures++
		if len(o.parts) > 0 {
			l.bareUntil = now.Add(backoff(l.refusals))
			l.refusals++
		}
		if a.Verdict == fence.TooLarge {
			l.shrink()
		}
		if !o.unsure {
			l.op, l.sent = nil, time.Time{} // the next write is due after the pause
		}
	}
}

// backoff returns the pause after so many failures before the last one.
func backoff(failures int) time.Duration { return min(pause<<min(failures, 8), pauseMax) }

// shrink has the next write carry fewer keyframes, so that one that is never stored does not keep the others. If it is
// alone already, its batch goes behind all others.
func (l *Lease) shrink() {
	if l.limit > 1 {
		l.limit /= 2
		return
	}
	if len(l.queue) > 1 {
		l.queue = append(l.queue[1:], l.queue[0])
	}
}

// written notes that the write under way is stored.
func (l *Lease) written(now, asked time.Time, a Answer) {
	o, took := l.op, now.Sub(asked)
	if l.joined {
		silent := now.Sub(l.renewed)
		took = max(took, silent-renewInterval) // attempts before this one had no answer
		if silent >= l.cfg.Silence {
			l.grace = now.Add(afterOutage)
		}
	}
	l.op, l.retry, l.failures = nil, time.Time{}, 0
	l.last, l.joined, l.closed = a.Seq, true, o.record.Closed
	l.proved.saw(a.Seq)
	if l.floor > l.last+floorMax {
		l.floor = 0
	}
	l.renewed = later(l.renewed, asked)
	for _, p := range l.peers {
		p.confirmed(now, asked, took)
	}
	if a.Partly {
		l.shrink()
		return
	}
	if len(o.parts) > 0 {
		l.limit, l.refusals = min(2*l.limit, opKeyframesMax), 0
	}
	for _, part := range o.parts {
		i := slices.IndexFunc(l.queue, func(b *batch) bool { return b.token == part.Token })
		if i < 0 {
			continue // its shard was lost
		}
		b := l.queue[i]
		if b.done = part.To; b.done == len(b.sizes) {
			l.queue = slices.Delete(l.queue, i, i+1)
			l.emit(Action{Kind: ActionStored, Shard: b.shard.n, Epoch: b.shard.epoch, Token: b.token})
		}
	}
}

// settle asks the leader what became of the write under way, once in a while.
func (l *Lease) settle(now time.Time) {
	if o := l.op; now.Sub(o.read) >= settleWait {
		o.read = now
		l.emit(Action{Kind: ActionReadLease, Node: l.cfg.Node, Asked: now})
	}
}

// ReadLease answers the ActionReadLease of a node, which was asked at a time; r is the zero Record if there is none.
func (l *Lease) ReadLease(now, asked time.Time, node string, r Record, v fence.Verdict) {
	if p := l.peers[node]; p != nil && v == fence.OK && r.Seq == 0 && !p.lives() {
		l.forget(node) // servers remove the record of a lease that was revoked long ago
	} else if p != nil {
		l.checked(now, &p.proved, p.Seq, r.Seq, v)
	} else if node == l.cfg.Node {
		l.checked(now, &l.proved, l.last, r.Seq, v)
	}
	switch {
	case v != fence.OK:
	case node != l.cfg.Node:
		if r.Seq != 0 {
			l.Saw(now, node, r)
		}
		l.leased(now, asked, node, r.Seq != 0)
	case l.op == nil: // an answer that comes late
	case r.Seq < l.last:
		if !asked.Before(l.op.first) {
			l.lacks(now, &l.op.lacks)
		}
		return
	case r.Seq > l.last || l.joined && (r.Incarnation != l.incarnation || r.Revoked != ""):
		l.sawOwn(now, r)
	default: // not written; a copy that is still on its way has the same condition
		l.retry, l.op.lacks = now, time.Time{}
	}
	if l.op != nil && v != fence.OK && node == l.cfg.Node {
		l.op.read, l.op.lacks = now.Add(pauseMax-settleWait), time.Time{}
	}
}

// low reports whether the sequences of the stream are still below an epoch that others know. Each write brings them nearer.
func (l *Lease) low() bool { return l.last < l.floor }

// sawOwn takes a record of this relay's name.
func (l *Lease) sawOwn(now time.Time, r Record) {
	if r.Seq <= l.last {
		if r.Seq == l.last && l.joined && (r.Incarnation != l.incarnation || r.Revoked != "") {
			l.lost()
		}
		return
	}
	mine := r.Incarnation == l.incarnation && r.Revoked == ""
	switch {
	case mine && l.op != nil && r.Write == l.op.record.Write:
		l.written(now, l.op.first, Answer{Seq: r.Seq, Partly: l.partly()})
	case mine: // of a write that was said not to be stored
		l.last = r.Seq
	case l.joined && r.Incarnation != l.incarnation && strings.HasPrefix(r.Incarnation, l.cfg.Start+"."): // a late write of this process, in a stream that went back
		l.revoked(now, r)
	case r.Revoked != "" && (l.joined || r.Incarnation == l.incarnation): // the answer to the first write may be lost, and the lease revoked since
		l.revoked(now, r)
	case !l.joined:
		l.last = r.Seq // the lease of a former incarnation, on whose condition this one begins
		if l.op != nil {
			l.retry = now
		}
	default:
		l.last = r.Seq
		l.end(now, ReasonReplaced)
		l.replaced = true
		l.emit(Action{Kind: ActionReplaced})
	}
}

// partly reports whether a write that was found in the stream may have been stored in part. A store that
// writes all or none has no such writes.
func (l *Lease) partly() bool { return l.cfg.Single && len(l.op.parts) > 0 }

// revoked begins a new incarnation. What this relay has of its shards counts if no other relay holds them before it does again.
func (l *Lease) revoked(now time.Time, r Record) {
	l.end(now, ReasonRevoked)
	l.last = r.Seq
	l.bear()
}

// end loses all shards.
func (l *Lease) end(now time.Time, why Reason) {
	for _, s := range l.list {
		if s.epoch == 0 {
			continue
		}
		l.lose(now, s, why)
		if why == ReasonRevoked {
			s.former = former{epoch: s.last, until: s.owner.Seq}
		}
	}
}

// drop takes the batches of a shard out of the queue.
func (l *Lease) drop(s *shard) {
	l.queue = slices.DeleteFunc(l.queue, func(b *batch) bool {
		if b.shard == s {
			l.emit(Action{Kind: ActionFailed, Shard: s.n, Token: b.token})
		}
		return b.shard == s
	})
}

// busy reports whether batches of a shard wait, or are in the write under way. A write that is not settled may be stored behind
// the load of the next ownership.
func (l *Lease) busy(s *shard) bool {
	return l.op != nil && slices.Contains(l.op.shards, s) || slices.ContainsFunc(l.queue, func(b *batch) bool { return b.shard == s })
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
