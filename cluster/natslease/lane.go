package natslease

import (
	"context"
	"encoding/json"
	"strconv"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/lease"
	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/internal/jetstream"
	"github.com/dnprelay/dnprelay/internal/turn"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

const (
	// keyframeOverhead is what a keyframe counts beside its data: subject, headers and
	// bookkeeping, generously.
	keyframeOverhead = 256

	// tombstoneTTL is how long the store remembers that a state was removed, or a lease revoked.
	tombstoneTTL = "1h"
)

// A lane is this relay in one stream. Its lease and the fields below belong to the goroutine in loop.
type lane struct {
	l     *Leases
	g     int  // number of the stream
	alone bool // the stream has one copy, which makes a batch slower than its messages

	commands *turn.Queue[func(time.Time)]
	wake     turn.Wake
	rewatch  turn.Wake // the watch must begin anew
	mu       sync.Mutex
	ended    bool

	lease    *lease.Lease
	watching int // the watch whose records count; 0 for none
	token    uint64
	batches  map[uint64]*batch // by token
	sending  []sent            // the keyframes of the write under way
	sends    uint64            // atomic batches so far
}

// A batch waits to be stored.
type batch struct {
	shard     int
	keyframes []cluster.Keyframe
	sizes     []int
	size      int
	done      func(error)
}

// A sent is a keyframe on its way.
type sent struct {
	shard int
	cluster.Keyframe
}

func newLane(l *Leases, g int, alone bool) *lane {
	s := &lane{l: l, g: g, alone: alone, wake: turn.NewWake(), rewatch: turn.NewWake(), batches: map[uint64]*batch{}}
	s.commands = turn.NewQueue[func(time.Time)](s.wake.Wake)
	var shards []int
	for n := g; n < l.cfg.Shards; n += l.cfg.Streams {
		shards = append(shards, n)
	}
	cfg := l.lease(shards)
	cfg.Single = alone
	s.lease = lease.New(cfg)
	return s
}

// put has the lane do something, from any goroutine. Nothing is lost before the end; after it put reports false.
func (s *lane) put(do func(now time.Time)) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.ended {
		s.commands.Put(do)
	}
	return !s.ended
}

// loop owns the lease. It reads the clock once per turn.
func (s *lane) loop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-timer.C:
		}
		now := time.Now()
		for _, do := range s.commands.Take() {
			do(now)
		}
		for _, a := range s.lease.Advance(now) {
			s.act(a)
		}
		next, ok := s.lease.NextTimeout()
		if !ok {
			next = now.Add(time.Hour)
		}
		timer.Reset(next.Sub(now))
	}
}

// end is called after loop has ended.
func (s *lane) end() {
	s.mu.Lock()
	s.ended = true
	left := s.commands.Take()
	s.mu.Unlock()
	for _, do := range left {
		do(time.Now())
	}
	for _, b := range s.batches {
		s.finish(b, cluster.ErrNotHeld)
	}
	clear(s.batches)
	for n := s.g; n < s.l.cfg.Shards; n += s.l.cfg.Streams {
		s.l.held[n].Store(0)
	}
}

// store gives a batch to the lease.
func (s *lane) store(now time.Time, epoch uint64, b *batch) {
	s.token++
	if !s.lease.Store(now, b.shard, epoch, s.token, b.sizes) {
		s.finish(b, cluster.ErrNotHeld)
		return
	}
	s.batches[s.token] = b
}

func (s *lane) finish(b *batch, err error) {
	s.l.queued[b.shard].Add(-int64(b.size))
	b.done(err)
}

// act carries out what the lease wants.
func (s *lane) act(a lease.Action) {
	switch a.Kind {
	case lease.ActionWrite:
		s.write(a)
	case lease.ActionReadLease:
		s.read(s.l.cfg.Subjects.StoreLease(s.g, a.Node), func(now time.Time, v fence.Verdict, seq uint64, data []byte) {
			s.lease.ReadLease(now, a.Asked, a.Node, parsed(seq, data, lease.ParseRecord), v)
		})
	case lease.ActionReadOwner:
		s.read(s.l.cfg.Subjects.StoreOwn(a.Shard), func(now time.Time, v fence.Verdict, seq uint64, data []byte) {
			s.lease.ReadOwner(now, a.Shard, parsed(seq, data, lease.ParseOwner), v)
		})
	case lease.ActionRevoke:
		m := s.message(s.l.cfg.Subjects.StoreLease(s.g, a.Node), a.Record.Append(nil))
		m.Header.Set(natsjs.MsgTTLHeader, tombstoneTTL)
		s.publish(jetstream.Expect(m, "", a.Expect), nil, func(now time.Time, x lease.Answer) { s.lease.Revoked(now, a.Node, a.Record, x) })
	case lease.ActionOwn:
		m := s.message(s.l.cfg.Subjects.StoreOwn(a.Shard), a.Owner.Append(nil))
		s.publish(jetstream.Expect(m, "", a.Expect), nil, func(now time.Time, x lease.Answer) { s.lease.WroteOwner(now, a.Shard, a.Expect, a.Owner, x) })
	case lease.ActionStored:
		b := s.batches[a.Token]
		delete(s.batches, a.Token)
		s.l.counts.stored.Add(uint64(len(b.keyframes)))
		s.finish(b, nil)
	case lease.ActionFailed:
		b := s.batches[a.Token]
		delete(s.batches, a.Token)
		s.finish(b, cluster.ErrNotHeld)
	case lease.ActionForgot:
		s.l.cfg.Log.Error("a stream lacks a write that it had confirmed: its servers lost what they had stored, or this relay was away for too long; it begins anew and stores again what it holds", "stream", StreamName(s.g))
		s.wiped()
	case lease.ActionReplaced:
		s.l.setReplaced()
	default:
		s.report(a)
	}
}

// parsed parses a record that was read, if there is one.
func parsed[T any](seq uint64, data []byte, parse func(uint64, []byte) T) (record T) {
	if seq == 0 {
		return record
	}
	return parse(seq, data)
}

// report tells the relay what has become of a shard.
func (s *lane) report(a lease.Action) {
	e := cluster.LeaseEvent{Shard: a.Shard, Epoch: a.Epoch, Node: a.Node, Reason: a.Reason, Durable: a.Durable, Former: a.Former, Wiped: a.Wiped}
	switch a.Kind {
	case lease.ActionAcquired:
		s.l.held[a.Shard].Store(a.Epoch)
		e.Kind, e.Durable = cluster.ShardAcquired, true
	case lease.ActionLost:
		s.l.held[a.Shard].Store(0)
		s.l.counts.lost[a.Reason].Add(1)
		e.Kind = cluster.ShardLost
	case lease.ActionPaused:
		s.l.counts.paused.Add(1)
		e.Kind = cluster.ShardPaused
	case lease.ActionResumed:
		e.Kind = cluster.ShardResumed
	case lease.ActionDurable:
		e.Kind = cluster.ShardDurable
	case lease.ActionPlaced:
		e.Kind = cluster.ShardPlaced
	case lease.ActionSeen:
		e.Kind = cluster.ShardSeen
	}
	s.l.handle(e)
}

// write carries out ActionWrite.
func (s *lane) write(a lease.Action) {
	if !a.Again {
		s.sending = nil // an earlier write may still need the former slice
		for _, p := range a.Parts {
			b := s.batches[p.Token]
			for _, k := range b.keyframes[p.From:p.To] {
				s.sending = append(s.sending, sent{b.shard, k})
			}
		}
	}
	subject := s.l.cfg.Subjects.StoreLease(s.g, s.l.cfg.Node)
	last := jetstream.Expect(s.message(subject, a.Record.Append(nil)), "", a.Expect)
	missing := 0
	wrote := func(now time.Time, x lease.Answer) {
		x.Partly = missing > 0
		s.lease.Wrote(now, a.Asked, a.Record, x)
	}
	all := make([]*nats.Msg, 0, len(s.sending)+1)
	for _, k := range s.sending {
		m := s.message(s.l.cfg.Subjects.StoreKeyframe(k.shard, k.Space, k.Number), k.Data)
		if len(k.Data) == 0 {
			m.Header.Set(natsjs.MsgTTLHeader, tombstoneTTL)
		}
		all = append(all, m)
	}
	if s.alone {
		missing = len(all)
		for _, m := range all {
			s.publish(jetstream.Expect(m, subject, a.Expect), nil, func(_ time.Time, x lease.Answer) {
				if x.Verdict == fence.OK {
					missing--
				}
			})
		}
		all = nil
	}
	s.sends++
	jetstream.Batch(s.l.start+"-"+strconv.Itoa(s.g)+"-"+strconv.FormatUint(s.sends, 36), append(all, last)...)
	s.publish(last, all, wrote)
}

// message returns a message that the store stores under a subject.
func (s *lane) message(stored string, data []byte) *nats.Msg {
	secret := *s.l.secrets[s.g].Load()
	return &nats.Msg{Subject: s.l.cfg.Subjects.StoreInput(stored, secret), Header: nats.Header{}, Data: data}
}

// publish publishes a message behind those that belong to it, and judges the answer. An error code that
// package jetstream does not know counts as Unknown, to be on the safe side.
func (s *lane) publish(m *nats.Msg, before []*nats.Msg, done func(time.Time, lease.Answer)) {
	s.l.requests.Send(jetstream.Request{Msg: m, Before: before, Done: func(reply *nats.Msg, err error) {
		v, ack := jetstream.Judge(reply, err, fence.Unknown)
		s.l.counts.answers[v].Add(1)
		s.l.maintainer.Wrote(s.g, v)
		s.l.heard[s.g].hear(ack.Seq)
		s.put(func(now time.Time) { done(now, lease.Answer{Verdict: v, Seq: ack.Seq}) })
	}})
}

// read asks the leader of the stream for the last message of a subject, because any other server may answer with an old state.
func (s *lane) read(subject string, done func(now time.Time, v fence.Verdict, seq uint64, data []byte)) {
	question, _ := json.Marshal(map[string]string{"last_by_subj": subject})
	s.l.requests.Send(jetstream.Request{Msg: &nats.Msg{Subject: "$JS.API.STREAM.MSG.GET." + StreamName(s.g), Data: question}, Done: func(reply *nats.Msg, err error) {
		v, seq, data := jetstream.LastMessage(reply, err)
		s.l.counts.answers[v].Add(1)
		s.l.heard[s.g].hear(seq)
		s.put(func(now time.Time) { done(now, v, seq, data) })
	}})
}

// wiped says that the stream was made anew, or lacks what it had: the watch begins anew, too.
func (s *lane) wiped() {
	s.put(func(now time.Time) {
		s.watching = 0
		s.lease.Wiped(now)
	})
	s.rewatch.Wake()
}
