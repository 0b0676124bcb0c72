package edge

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/view"
)

// Bounds and intervals of shared repairs.
const (
	repairJoin  = 100 * time.Millisecond // a request that is older may be lost
	repairKept  = 3 * time.Second        // an answer with keyframes: a holder keeps batches for longer, which bring a replica up to date
	repairLife  = 6 * time.Second        // a request whose answer may still arrive
	repairsMax  = 64                     // requests of a space; the oldest is forgotten
	answerMax   = 4 << 20                // bytes of an answer that is kept for workers that ask later
	answersMax  = 32 << 20               // bytes of all those answers
	repairViews = 32                     // views that one replica may have more than another that uses the same answer
)

// Repairs are the repair requests of the workers of an edge. All workers that follow a space miss the
// same batches and hear of the same new holder, so they share requests: the edge asks once, and gives the
// answer to every worker that asked for the same. Replicas can also use keyframes that another one asked
// for, if that has about the same states or none; and that answer is kept for a moment, for workers that ask a
// little later.
//
// The mutex guards the requests. Workers add to them, and the goroutines of the bus read them to pass
// answers on, so no worker can own them.
type repairs struct {
	node   *node
	inbox  string
	shared atomic.Uint64 // requests that were not sent, because another worker's had been
	prune  atomic.Int64  // when to look for what is over next, in Unix nanoseconds

	mu     sync.Mutex
	spaces map[string][]*repair // in the order in which they were sent
	kept   int                  // bytes of all parts
}

// A repair is one request that was sent, and its answer.
type repair struct {
	id      uint64
	kind    replication.RepairKind
	epoch   uint64
	seq     uint64 // position of the replica
	views   int    // that the request lists
	at      time.Time
	workers []*Worker // that wait for the answer, or got it

	began  bool   // a part arrived
	answer uint64 // position of the answer
	parts  [][]byte
	size   int
	lost   bool // the parts are not kept, because they are too large
}

func newRepairs(n *node, inbox string) *repairs {
	return &repairs{node: n, inbox: inbox, spaces: make(map[string][]*repair)}
}

// ask sends the request of a worker's replica, unless there is one whose answer serves as well. It
// returns the request that is answered.
func (p *repairs) ask(now time.Time, w *Worker, space string, shard int, request []byte) (replication.Asked, error) {
	q, err := replication.ParseRepairRequest(request)
	if err != nil {
		panic("edge: a replica made a malformed request")
	}
	x := &repair{
		id: replication.RequestID(request), kind: q.Kind, epoch: q.Epoch, seq: q.Seq, views: q.Views(),
		at: now, workers: []*Worker{w},
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, old := range slices.Backward(p.spaces[space]) {
		if old.serves(now, w, x) {
			p.join(w, space, old)
			return replication.Asked{ID: old.id, Unlike: old.id != x.id && old.views > 0, Early: old.began}, nil
		}
	}
	m := bus.Msg{Subject: p.node.cfg.Subjects.Repair(shard), Reply: p.inbox + "." + repairToken + "." + space, Data: request}
	if err := p.node.cfg.Bus.Publish(m); err != nil {
		return replication.Asked{ID: x.id}, err
	}
	all := append(p.spaces[space], x)
	if len(all) > repairsMax {
		p.release(all[0])
		all = slices.Delete(all, 0, 1)
	}
	p.spaces[space] = all
	return replication.Asked{ID: x.id}, nil
}

// serves reports whether the answer to r is also one to x, which a worker asks now. No worker uses
// an answer twice: it asks again because that did not help.
func (r *repair) serves(now time.Time, w *Worker, x *repair) bool {
	age := now.Sub(r.at)
	switch {
	case slices.Contains(r.workers, w) || r.kind != x.kind || r.epoch != x.epoch:
		return false
	case r.kind != replication.RepairKeyframes:
		return r.id == x.id && !r.began && age < repairJoin
	case r.id != x.id && r.views > 0 && max(r.views-x.views, x.views-r.views) > repairViews:
		return false
	case r.lost || r.began && (r.answer < x.seq || age > repairKept):
		return false
	}
	return true
}

// join gives a worker what has arrived of an answer, and what will arrive.
func (p *repairs) join(w *Worker, space string, r *repair) {
	p.shared.Add(1)
	r.workers = append(r.workers, w)
	for _, part := range r.parts {
		postReply(w, space, part)
	}
}

// repairToken is in the subject of all answers. A holder knows an edge by that subject.
const repairToken = "edge"

// reply passes a part of an answer on to the workers that wait for it.
func (p *repairs) reply(space string, part []byte) {
	h, _, err := view.Parse(part)
	byID := h.Flags&(view.FlagKeyframes|view.FlagStates|view.FlagSums) != 0
	p.mu.Lock()
	defer p.mu.Unlock()
	var workers []*Worker
	for _, r := range p.spaces[space] {
		if err != nil || byID && r.id == h.Prev || !byID && r.kind != replication.RepairKeyframes {
			for _, w := range r.workers {
				if !slices.Contains(workers, w) {
					workers = append(workers, w)
				}
			}
		}
		if byID && r.id == h.Prev {
			p.keep(r, h, part)
		}
	}
	for _, w := range workers {
		postReply(w, space, part)
	}
}

// keep keeps a part of an answer with keyframes, if there is room.
func (p *repairs) keep(r *repair, h view.Header, part []byte) {
	if r.began && r.answer != h.Seq {
		r.lost = true // parts of two answers
	}
	r.began, r.answer = true, h.Seq
	if r.kind != replication.RepairKeyframes || r.lost || r.size+len(part) > answerMax || p.kept+len(part) > answersMax {
		r.lost = true
		p.release(r)
		return
	}
	r.parts = append(r.parts, part)
	r.size += len(part)
	p.kept += len(part)
}

// release forgets the parts of an answer.
func (p *repairs) release(r *repair) {
	p.kept -= r.size
	r.parts, r.size = nil, 0
}

// advance forgets what is over, once a second at most. Every worker calls it on every turn.
func (p *repairs) advance(now time.Time) {
	at := p.prune.Load()
	if now.UnixNano() < at || !p.prune.CompareAndSwap(at, now.Add(time.Second).UnixNano()) {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for space, all := range p.spaces {
		all = slices.DeleteFunc(all, func(r *repair) bool {
			if now.Sub(r.at) > repairKept {
				p.release(r)
			}
			return now.Sub(r.at) > repairLife
		})
		if p.spaces[space] = all; len(all) == 0 {
			delete(p.spaces, space)
		}
	}
}

// leave forgets that a worker waits for answers about a space.
func (p *repairs) leave(w *Worker, space string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.spaces[space] {
		r.workers = slices.DeleteFunc(r.workers, func(o *Worker) bool { return o == w })
	}
}

// postReply gives a worker a part of an answer.
func postReply(w *Worker, space string, part []byte) {
	w.post(len(part), func(w *Worker, now time.Time) {
		if r := w.spaces.Replica(space); r != nil {
			r.ApplyReply(now, part)
		}
	})
}
