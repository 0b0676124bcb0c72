package cluster_test

import (
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/internal/simnet"
)

// An outage is what ails the store.
type outage uint8

const (
	healthy outage = iota
	silent         // nothing is answered; what was asked is lost, or written when it ends
	refused        // everything is answered at once with "no leader"
	quorum         // the leader answers reads, but what is written waits until it ends
)

// A simStore is the linearizable store of one shard, with the habits of
// JetStream: one write in flight per subject that is expected something of,
// answers that are lost, writes that are applied late.
type simStore struct {
	net *simnet.Net
	chk *checker

	seq    uint64
	own    cluster.Holder
	beat   cluster.Heartbeat
	states map[int]version // stored values
	past   [2]struct {     // what a leader that was deposed would answer
		own  cluster.Holder
		beat cluster.Heartbeat
	}

	outage  outage
	held    []func() // to be done when it ends
	pending bool     // a write is under way in a store without quorum

	loss, late, busy, old float64 // probabilities
	watchers              []*simNode
}

// A version orders what is stored: by epoch, then by what the holder counts.
type version struct{ epoch, n uint64 }

func (v version) before(w version) bool {
	return v.epoch < w.epoch || v.epoch == w.epoch && v.n < w.n
}

// latency draws the time of one way.
func (s *simStore) latency() time.Duration {
	d := time.Duration(200+s.net.Rand().IntN(2000)) * time.Microsecond
	if s.net.Rand().IntN(200) == 0 {
		d += time.Duration(s.net.Rand().IntN(80)) * time.Millisecond
	}
	return d
}

func (s *simStore) chance(p float64) bool { return s.net.Rand().Float64() < p }

// ask takes an action of a node on its way to the store.
func (s *simStore) ask(n *simNode, a cluster.Action, values map[int]version, answer func(cluster.Answer)) {
	if n.cut || s.chance(s.loss) {
		s.chk.dropped(n)
		return
	}
	s.net.Schedule(s.latency(), func() { s.arrive(n, a, values, answer) })
}

func (s *simStore) arrive(n *simNode, a cluster.Action, values map[int]version, answer func(cluster.Answer)) {
	write := a.Kind != cluster.ActionRead
	reply := func(x cluster.Answer) {
		if n.cut || s.chance(s.loss) {
			s.chk.dropped(n)
			return
		}
		s.net.Schedule(s.latency(), func() { answer(x) })
	}
	do := func() { reply(s.do(n, a, values)) }
	switch {
	case s.outage == refused:
		reply(cluster.Answer{Verdict: fence.Unreachable})
	case s.outage == silent:
		s.chk.waits(n)
		if write && s.chance(0.5) {
			s.held = append(s.held, func() { s.do(n, a, values) })
		}
	case write && s.pending:
		reply(cluster.Answer{Verdict: fence.Busy})
	case s.outage == quorum && write:
		s.pending = true
		s.held = append(s.held, func() { s.pending = false; do() })
	case write && s.chance(s.busy):
		reply(cluster.Answer{Verdict: fence.Busy})
	case write && s.chance(s.late):
		s.chk.dropped(n)
		s.net.Schedule(time.Duration(s.net.Rand().IntN(8000))*time.Millisecond, func() { s.chk.outageChanged(); s.do(n, a, values) })
	case !write && s.chance(s.old):
		p := s.past[0]
		reply(cluster.Answer{Verdict: fence.OK, Holder: p.own, Heartbeat: p.beat})
	default:
		do()
	}
}

// do is where things happen in one order.
func (s *simStore) do(n *simNode, a cluster.Action, values map[int]version) cluster.Answer {
	if a.Kind == cluster.ActionRead {
		return cluster.Answer{Verdict: fence.OK, Holder: s.own, Heartbeat: s.beat}
	}
	// An Expect of 0 stands for a message that was sent without the header.
	fresh := a.Kind == cluster.ActionAcquire && s.own.Seq == 0
	if a.ExpectHolder != s.own.Seq && !(a.ExpectHolder == 0 && !fresh && a.Kind != cluster.ActionAcquire) {
		return cluster.Answer{Verdict: fence.Stale}
	}
	if a.Kind == cluster.ActionStore && a.ExpectHeartbeat != s.beat.Seq && a.ExpectHeartbeat != 0 ||
		a.Kind == cluster.ActionAcquire && a.ExpectHeartbeat != s.beat.Seq {
		return cluster.Answer{Verdict: fence.Stale}
	}
	s.past[0] = s.past[1]
	s.past[1].own, s.past[1].beat = s.own, s.beat
	switch a.Kind {
	case cluster.ActionAcquire, cluster.ActionRelease:
		if a.Kind == cluster.ActionAcquire {
			s.seq++
			s.beat = a.Heartbeat
			s.beat.Seq = s.seq
		}
		s.seq++
		was := s.own
		s.own = a.Holder
		s.own.Seq = s.seq
		s.chk.owned(n, was, s.own)
	default:
		s.chk.written(n, a, s.own, s.beat)
		for k, v := range values {
			s.seq++
			s.chk.stored(k, s.states[k], v)
			s.states[k] = v
		}
		s.seq++
		s.beat = a.Heartbeat
		s.beat.Seq = s.seq
	}
	own, beat := s.own, s.beat
	for _, w := range s.watchers {
		w.watch(s.latency(), own, beat)
	}
	return cluster.Answer{Verdict: fence.OK, Seq: s.seq, Heartbeat: s.beat}
}

// setOutage begins or ends an outage.
func (s *simStore) setOutage(o outage) {
	s.outage = o
	s.chk.outageChanged()
	if o != healthy {
		return
	}
	held := s.held
	s.held = nil
	for _, f := range held {
		s.net.Schedule(time.Duration(s.net.Rand().IntN(300))*time.Millisecond, func() { s.chk.outageChanged(); f() })
	}
}
