package cluster_test

import (
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/internal/simnet"
)

// An outage is a state of the store.
type outage uint8

const (
	healthy outage = iota
	silent         // the store does not answer; requests are lost, or carried out when the outage ends
	refused        // the store answers every request at once with "no leader"
	quorum         // the leader answers reads, but writes wait until the outage ends
)

// A simStore is the linearizable store of one shard, with the habits of JetStream: at most one
// write under way per subject with an expected sequence, answers that are lost, writes that are
// applied late.
type simStore struct {
	net *simnet.Net
	chk *checker

	seq       uint64
	holder    cluster.Holder
	heartbeat cluster.Heartbeat
	states    map[int]version // stored values
	past      [2]struct {     // the answers of a deposed leader
		holder    cluster.Holder
		heartbeat cluster.Heartbeat
	}

	outage  outage
	held    []func() // requests to carry out when the outage ends
	pending bool     // a write is under way in a store without quorum

	loss, late, busy, old float64 // probabilities
	watchers              []*simNode
}

// A version orders stored values: by epoch, then by a counter of the holder.
type version struct{ epoch, n uint64 }

func (v version) before(w version) bool {
	return v.epoch < w.epoch || v.epoch == w.epoch && v.n < w.n
}

// latency draws the latency of one way.
func (s *simStore) latency() time.Duration {
	d := time.Duration(200+s.net.Rand().IntN(2000)) * time.Microsecond
	if s.net.Rand().IntN(200) == 0 {
		d += time.Duration(s.net.Rand().IntN(80)) * time.Millisecond
	}
	return d
}

func (s *simStore) chance(p float64) bool { return s.net.Rand().Float64() < p }

// ask sends an action of a node to the store.
func (s *simStore) ask(n *simNode, a cluster.Action, values map[int]version, answer func(cluster.Answer)) {
	if n.broken && a.Kind == cluster.ActionAcquire {
		return
	}
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
		reply(cluster.Answer{Verdict: fence.OK, Holder: p.holder, Heartbeat: p.heartbeat})
	default:
		do()
	}
}

// do carries out actions in one order.
func (s *simStore) do(n *simNode, a cluster.Action, values map[int]version) cluster.Answer {
	if a.Kind == cluster.ActionRead {
		return cluster.Answer{Verdict: fence.OK, Holder: s.holder, Heartbeat: s.heartbeat}
	}
	// An expected sequence of 0 stands for a message without the header.
	fresh := a.Kind == cluster.ActionAcquire && s.holder.Seq == 0
	if a.ExpectHolder != s.holder.Seq && !(a.ExpectHolder == 0 && !fresh && a.Kind != cluster.ActionAcquire) {
		return cluster.Answer{Verdict: fence.Stale}
	}
	if a.Kind == cluster.ActionStore && a.ExpectHeartbeat != s.heartbeat.Seq && a.ExpectHeartbeat != 0 ||
		a.Kind == cluster.ActionAcquire && a.ExpectHeartbeat != s.heartbeat.Seq {
		return cluster.Answer{Verdict: fence.Stale}
	}
	s.past[0] = s.past[1]
	s.past[1].holder, s.past[1].heartbeat = s.holder, s.heartbeat
	switch a.Kind {
	case cluster.ActionAcquire, cluster.ActionRelease:
		if a.Kind == cluster.ActionAcquire {
			s.seq++
			s.heartbeat = a.Heartbeat
			s.heartbeat.Seq = s.seq
		}
		s.seq++
		was := s.holder
		s.holder = a.Holder
		s.holder.Seq = s.seq
		s.chk.newHolder(n, was, s.holder)
	default:
		s.chk.written(n, a, s.holder)
		for k, v := range values {
			s.seq++
			s.chk.stored(k, s.states[k], v)
			s.states[k] = v
		}
		s.seq++
		s.heartbeat = a.Heartbeat
		s.heartbeat.Seq = s.seq
	}
	holder, heartbeat := s.holder, s.heartbeat
	for _, w := range s.watchers {
		w.watch(s.latency(), holder, heartbeat)
	}
	return cluster.Answer{Verdict: fence.OK, Seq: s.seq, Heartbeat: s.heartbeat}
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
