package relay

import (
	"container/heap"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/replication"
)

// Bounds of a lane's inbox. What does not fit is dropped and counted; whoever
// asked hears nothing and asks again.
const (
	inboxMessages = 8192
	inboxBytes    = 64 << 20
)

// A kind says what a message is about.
type kind uint8

const (
	kindPublish kind = iota + 1
	kindGet
	kindRepair
	kindWrite
	kindJoined
	kindLeft
)

// A posted message waits for its lane.
type posted struct {
	kind  kind
	shard int
	msg   bus.Msg

	space, client, session string // of joined and left
}

// A Lane owns the stores of some shards. All of it belongs to the goroutine in
// loop, except control, inbox, queued, lost and wake.
type Lane struct {
	relay    *Relay
	holdings []*holding // in the order of their coming
	spaces   map[string]*space
	due      dueHeap
	headsDue time.Time
	counts   Counts
	past     replication.StoreStats // of spaces that this lane has no more

	askDue time.Time // when to look whom to ask about next
	fullAt time.Time // when there was no room for a space, and none to be made

	quota      quota // of states to be stored
	durableDue time.Time

	heldAt    time.Time // when what is held changed; zero once that was logged
	lastToken uint64
	drained   chan<- struct{} // closed when nothing is held; nil if nobody waits for that

	control control
	inbox   chan posted
	queued  atomic.Int64 // bytes in inbox
	lost    atomic.Uint64
	wake    func() // called when something was posted; nil while loop watches the inbox
}

// OnWake sets what is called, from any goroutine, when the lane should be turned.
func (l *Lane) OnWake(wake func()) { l.wake = wake }

// Turn handles what was posted and does what is due, all at the time now. It
// returns when it must be called again at the latest.
func (l *Lane) Turn(now time.Time) (next time.Time) {
	l.commands(now)
	for range len(l.inbox) {
		l.take(now, <-l.inbox)
	}
	next = l.advance(now)
	if l.drained != nil && len(l.holdings) == 0 {
		close(l.drained)
		l.drained = nil
	}
	return next
}

func newLane(r *Relay) *Lane {
	return &Lane{
		relay: r, spaces: make(map[string]*space),
		quota:   quota{rate: float64(r.cfg.DurableRate) / float64(r.cfg.Lanes)},
		control: control{wake: make(chan struct{}, 1)},
		inbox:   make(chan posted, inboxMessages),
	}
}

// post gives the lane a message, from any goroutine. It never blocks.
func (l *Lane) post(k kind, shard int, m bus.Msg) {
	l.postMsg(posted{kind: k, shard: shard, msg: m})
}

func (l *Lane) postMsg(p posted) {
	size := int64(len(p.msg.Data))
	if l.queued.Add(size) > inboxBytes {
		l.queued.Add(-size)
		l.lost.Add(1)
		return
	}
	select {
	case l.inbox <- p:
		l.woken()
	default:
		l.queued.Add(-size)
		l.lost.Add(1)
	}
}

func (l *Lane) woken() {
	if l.wake != nil {
		l.wake()
	}
}

// take handles one message. Who holds its shard answers; others are silent.
func (l *Lane) take(now time.Time, p posted) {
	l.queued.Add(-int64(len(p.msg.Data)))
	h := l.speaker(p.shard)
	if h == nil {
		return
	}
	switch p.kind {
	case kindPublish:
		l.publish(now, h, p.msg)
	case kindGet:
		l.get(h, p.msg)
	case kindRepair:
		l.repair(now, h, p.msg)
	case kindWrite:
		l.write(now, h, p.msg)
	case kindJoined:
		if sp, ok := l.space(now, h, p.space); ok {
			l.join(now, sp, p.client, p.session)
			l.touch(sp)
		}
	case kindLeft:
		if sp, ok := l.spaces[p.space]; ok {
			l.part(sp, p.client, p.session)
			l.touch(sp)
		}
	}
}

// advance lets every store whose time has come emit, and says how far all are.
// It returns when it must be called again.
func (l *Lane) advance(now time.Time) time.Time {
	for len(l.due) > 0 && !l.due[0].due.After(now) {
		sp := l.due[0]
		l.emit(now, sp)
		l.touch(sp)
	}
	next := l.advanceHeads(now)
	for _, at := range [...]time.Time{l.advanceDurable(now), l.advancePresence(now), l.tellHeld(now)} {
		if at.Before(next) {
			next = at
		}
	}
	if len(l.due) > 0 && l.due[0].due.Before(next) {
		next = l.due[0].due
	}
	return next
}

// touch puts a space where its next deadline belongs. It is called after every
// call of its store.
func (l *Lane) touch(sp *space) {
	due, ok := sp.store.NextTimeout()
	switch {
	case !ok && sp.index >= 0:
		heap.Remove(&l.due, sp.index)
	case !ok:
	case sp.index < 0:
		sp.due = due
		heap.Push(&l.due, sp)
	default:
		sp.due = due
		heap.Fix(&l.due, sp.index)
	}
}

// A dueHeap is the spaces that have something to do, the most urgent first.
type dueHeap []*space

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

func (h *dueHeap) Push(x any) {
	sp := x.(*space)
	sp.index = len(*h)
	*h = append(*h, sp)
}

func (h *dueHeap) Pop() any {
	old := *h
	sp := old[len(old)-1]
	old[len(old)-1] = nil
	sp.index = -1
	*h = old[:len(old)-1]
	return sp
}
