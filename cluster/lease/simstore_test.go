package lease_test

import (
	"maps"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/cluster/lease"
	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/internal/simnet"
)

// An outage is a state of the store.
type outage uint8

const (
	healthy outage = iota
	silent         // no answer; requests are lost, or carried out when the outage ends
	refused        // every request is answered at once with "no leader"
	quorum         // reads are answered; writes wait until the outage ends
	outages
)

// A version orders the values of a state: by epoch, then by a counter of the holder.
type version struct{ epoch, n uint64 }

func (v version) before(w version) bool { return v.epoch < w.epoch || v.epoch == w.epoch && v.n < w.n }

// An entry is a record in the stream.
type entry struct {
	seq   uint64
	node  string // whose lease it is; empty for the owner of a shard
	lease lease.Record
	shard int
	owner lease.Owner
}

func (e *entry) subject() any {
	if e.node != "" {
		return e.node
	}
	return e.shard
}

// A keyframe is a value on its way to the store.
type keyframe struct {
	shard int
	epoch uint64 // in which its holder accepted it
	key   int
	value version
}

// A simStore is a linearizable stream with the habits of JetStream: requests and answers that are lost, slow or late, reads from a
// leader that was deposed, refusals.
type simStore struct {
	w      *world
	net    *simnet.Net
	single bool // it stores messages one by one

	content
	saves []content // what the stream was, once a second
	made  int       // how often the stream was made, or went back

	outage outage
	held   []func()
	slow   time.Duration // the longest latency of a request
	loss   float64
	late   float64
	old    float64
	lag    float64 // the share of watches that a server serves which catches up
	busy   float64
}

// A content is what the stream has.
type content struct {
	seq    uint64
	last   map[any]*entry
	log    []*entry
	values []map[int]version // of the shards
}

func newSimStore(w *world) *simStore {
	s := &simStore{w: w, net: w.net}
	s.wipe()
	return s
}

// wipe makes the stream anew.
func (s *simStore) wipe() {
	s.made++
	s.seq += 1_000_000
	s.last, s.log, s.values, s.saves = map[any]*entry{}, nil, nil, nil
	for range simShards {
		s.values = append(s.values, map[int]version{})
	}
}

// save remembers what the stream has.
func (s *simStore) save() {
	c := content{seq: s.seq, last: maps.Clone(s.last), log: slices.Clip(s.log)}
	for _, v := range s.values {
		c.values = append(c.values, maps.Clone(v))
	}
	s.saves = append(s.saves, c)
}

// goBack has the stream forget the last seconds.
func (s *simStore) goBack() {
	if n := len(s.saves) - 1 - s.net.Rand().IntN(8); n > 0 {
		s.made++
		s.content = s.saves[n]
		s.saves = s.saves[:n]
		s.save()
		s.held = nil
	}
}

func (s *simStore) lastSeq(subject any) uint64 {
	if e := s.last[subject]; e != nil {
		return e.seq
	}
	return 0
}

func (s *simStore) owner(n int) lease.Owner {
	if e := s.last[n]; e != nil {
		return e.owner
	}
	return lease.Owner{}
}

// chance draws.
func (s *simStore) chance(p float64) bool { return s.net.Rand().Float64() < p }

// latency draws that of one way.
func (s *simStore) latency() time.Duration {
	d := time.Duration(200+s.net.Rand().IntN(2000)) * time.Microsecond
	switch r := s.net.Rand(); {
	case s.slow > 0 && r.IntN(4) == 0:
		d += time.Duration(r.Int64N(int64(s.slow)))
	case r.IntN(200) == 0:
		d += time.Duration(r.IntN(80)) * time.Millisecond
	}
	return d
}

// request carries a request of a node to the store in a time, and the answer back.
func (s *simStore) request(n *simNode, write bool, there time.Duration, do func() lease.Answer, answer func(lease.Answer)) {
	if n.cut || s.chance(s.loss) {
		s.w.chk.dropped(n)
		return
	}
	made := s.made
	apply := func() lease.Answer {
		if s.made != made {
			return lease.Answer{Verdict: fence.Unknown} // the stream that was meant is gone
		}
		return do()
	}
	reply := func(a lease.Answer) {
		if n.cut || s.chance(s.loss) {
			s.w.chk.dropped(n)
			return
		}
		s.net.Schedule(s.latency(), func() { answer(a) })
	}
	s.net.Schedule(there, func() {
		switch {
		case s.outage == refused:
			reply(lease.Answer{Verdict: fence.Unreachable})
		case s.outage == silent:
			if write && s.chance(0.5) {
				s.held = append(s.held, func() { apply() })
			}
		case s.outage == quorum && write:
			s.held = append(s.held, func() { reply(apply()) })
		case write && s.chance(s.busy):
			reply(lease.Answer{Verdict: fence.Busy})
		case write && s.chance(s.late):
			s.w.chk.dropped(n)
			s.net.Schedule(time.Duration(s.net.Rand().IntN(20_000))*time.Millisecond, func() { apply() })
		default:
			reply(apply())
		}
	})
}

// put stores a record if the last one of its subject has a sequence.
func (s *simStore) put(expect uint64, e *entry) lease.Answer {
	if s.lastSeq(e.subject()) != expect {
		return lease.Answer{Verdict: fence.Stale}
	}
	s.seq++
	e.seq = s.seq
	if e.node != "" {
		e.lease.Seq = s.seq
	} else {
		e.owner.Seq = s.seq
	}
	s.last[e.subject()] = e
	s.log = append(s.log, e)
	for _, n := range s.w.nodes {
		n.pullSoon()
	}
	return lease.Answer{Verdict: fence.OK, Seq: s.seq}
}

// store stores a keyframe if the last lease of a node has a sequence.
func (s *simStore) store(n *simNode, expect uint64, k keyframe) lease.Answer {
	if s.lastSeq(n.name()) != expect && !*breakFence {
		return lease.Answer{Verdict: fence.Stale}
	}
	s.seq++
	s.w.chk.stores(n, k, s.values[k.shard][k.key])
	s.values[k.shard][k.key] = k.value
	return lease.Answer{Verdict: fence.OK, Seq: s.seq}
}

// read returns the last record of a subject, or an older one if a deposed leader answers.
func (s *simStore) read(subject any) *entry {
	if !s.chance(s.old) {
		return s.last[subject]
	}
	for _, e := range slices.Backward(s.log[:max(0, len(s.log)-1-s.net.Rand().IntN(10))]) {
		if e.subject() == subject {
			return e
		}
	}
	return nil
}

// watch returns the records with which a watch begins, and those that follow. It may be served by a server that was away and catches up: it has what
// there was then, and of what came since it gets the last record of each subject, in their order.
func (s *simStore) watch() (first, next []*entry) {
	away, here := len(s.log), len(s.log)
	if s.lag > 0 && !s.single && s.chance(s.lag) {
		away = s.net.Rand().IntN(len(s.log) + 1)
		here = away + s.net.Rand().IntN(len(s.log)-away+1)
	}
	last := map[any]*entry{}
	for i, e := range s.log {
		switch {
		case i >= away && s.last[e.subject()] != e:
		case i < here:
			last[e.subject()] = e
		default:
			next = append(next, e)
		}
	}
	return slices.SortedFunc(maps.Values(last), func(a, b *entry) int { return int(a.seq) - int(b.seq) }), next
}

// setOutage begins or ends an outage.
func (s *simStore) setOutage(o outage) {
	s.outage = o
	if o != healthy {
		return
	}
	held := s.held
	s.held = nil
	for _, f := range held {
		s.net.Schedule(time.Duration(s.net.Rand().IntN(300))*time.Millisecond, f)
	}
}
