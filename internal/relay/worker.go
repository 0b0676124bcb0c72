package relay

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/internal/turn"
	"github.com/dnprelay/dnprelay/internal/turn/heap"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
)

// Bounds of a worker's inbox. The worker drops and counts what does not fit; a sender
// that waits for an answer asks again.
const (
	inboxMessages = 8192
	inboxBytes    = 64 << 20
)

// A posted message waits for its worker.
type posted struct {
	shard  int
	handle handler
	msg    bus.Msg
}

// A handler handles a message about a shard that the worker serves.
type handler func(w *Worker, now time.Time, o *ownership, m bus.Msg)

// A command is something to do that must not be lost: about leases and the durable store.
// There are few of them: for each shard one of each kind, and as many parts of a load as
// the shard has.
type command func(now time.Time)

// A Worker owns the stores of some shards. All of it belongs to the goroutine in loop,
// except asked, commands, inbox and wake.
type Worker struct {
	relay    *Relay
	index    int          // among the workers of the relay
	owned    []*ownership // in the order in which they began
	former   []*ownership // complete ones whose shards no relay is known to hold since
	spaces   map[string]*space
	due      *heap.Heap[*space]
	headsDue time.Time
	counts   Counts
	past     replication.StoreStats // of spaces that this worker no longer has

	askDue time.Time // when to look for the spaces to ask about next
	fullAt time.Time // when there was no room for a space, and none could be made

	quota      quota // of states to be stored
	durableDue time.Time

	loads loads

	comparisons comparisons

	place placement
	doubt doubt

	answers answers

	parser payload.Parser // of publishes

	refusedLine refusedLine

	lastToken uint64
	asked     atomic.Int64    // when watch asked for a turn that has not come, in Unix nanoseconds; 0 for never
	drained   chan<- struct{} // closed when the worker owns no shard; nil if that is of no interest

	commands *turn.Queue[command]
	inbox    *turn.Inbox[posted]
	sleep    turn.Wake // of loop
	wake     func()    // wakes loop, or the caller that turns the worker
}

func newWorker(r *Relay, index int) *Worker {
	w := &Worker{
		relay: r, index: index, spaces: make(map[string]*space),
		due: heap.New(
			func(a, b *space) bool { return a.due.Before(b.due) },
			func(sp *space) *int { return &sp.place },
		),
		quota:   quota{rate: float64(r.cfg.DurableRate) / float64(r.cfg.Workers)},
		sleep:   turn.NewWake(),
		answers: newAnswers(),
	}
	w.wake, w.loads.worker, w.doubt.worker, w.comparisons.worker = w.sleep.Wake, w, w, w
	woken := func() { w.wake() }
	w.commands, w.inbox = turn.NewQueue[command](woken), turn.NewInbox[posted](inboxMessages, inboxBytes, woken)
	w.place.changed = turn.NewWake()
	return w
}

// OnWake sets what is called, from any goroutine, when the worker should be turned, for a
// caller that turns it.
func (w *Worker) OnWake(wake func()) { w.wake = wake }

// loop turns a worker until ctx ends. It reads the clock once per turn.
func (w *Worker) loop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			w.finish(time.Now())
			return
		case <-w.sleep:
		case <-timer.C:
		}
		now := time.Now()
		timer.Reset(w.Turn(now).Sub(now))
	}
}

// finish handles what was posted and emits everything, whatever the tick, so that no
// publisher that was answered, or still waits, is let down.
func (w *Worker) finish(now time.Time) {
	w.Turn(now)
	w.advance(now.Add(w.relay.cfg.Tick))
}

// Turn handles what was posted and does what is due, all at the time now. It returns when
// it must be called again at the latest.
func (w *Worker) Turn(now time.Time) (next time.Time) {
	for i, do := range w.commands.Take() {
		do(now)
		if i%aliveCommands == aliveCommands-1 {
			w.sayAlive()
		}
	}
	if w.doubt.turn(now) {
		return earliest(w.doubt.end, w.advancePlacement(now), w.loads.advance(now))
	}
	w.inbox.Take(func(p posted) {
		if o := w.served(p.shard); o != nil { // only the holder of the shard answers
			p.handle(w, now, o, p.msg)
		}
	})
	next = w.advance(now)
	if w.drained != nil && len(w.owned) == 0 {
		close(w.drained)
		w.drained = nil
	}
	return next
}

// post gives the worker a message, from any goroutine. It never blocks.
func (w *Worker) post(shard int, handle handler, m bus.Msg) {
	w.inbox.Post(posted{shard, handle, m}, len(m.Data))
}

// command has the worker do something with its ownership of a shard, unless that has ended by
// then. An epoch of 0 stands for any. Any goroutine may call it, and no command is lost.
func (w *Worker) command(shard int, epoch uint64, do func(now time.Time, o *ownership)) {
	w.commands.Put(func(now time.Time) {
		if o := w.ownership(shard); o != nil && (epoch == 0 || epoch == o.epoch) {
			do(now, o)
		}
	})
}

// advance has every store that is due emit, and says how far all spaces are. It returns
// when it must be called again.
func (w *Worker) advance(now time.Time) time.Time {
	for sp, ok := w.due.First(); ok && !sp.due.After(now); sp, ok = w.due.First() {
		if !now.Before(sp.gathered) {
			sp.publishDeferred(func(m bus.Msg) { w.publish(now, sp.owner, m) })
		}
		w.emit(now, sp)
		w.answerWaiting(now, sp)
		w.plan(sp)
	}
	next := earliest(w.advanceHeads(now), w.advancePlacement(now), w.loads.advance(now), w.advanceDurable(now), w.advancePresence(now), w.comparisons.advance(now))
	if sp, ok := w.due.First(); ok && sp.due.Before(next) {
		next = sp.due
	}
	return next
}

func earliest(times ...time.Time) time.Time { return slices.MinFunc(times, time.Time.Compare) }

// plan has a space advanced when its store wants that, or a request for repair that waits. It
// is called after every call of the store.
func (w *Worker) plan(sp *space) {
	due, ok := sp.store.NextTimeout()
	if at := sp.repairs.due; !at.IsZero() && (!ok || at.Before(due)) {
		due, ok = at, true
	}
	if len(sp.deferred) > 0 && (!ok || sp.gathered.Before(due)) {
		due, ok = sp.gathered, true
	}
	if !ok {
		w.due.Remove(sp)
		return
	}
	sp.due = due
	w.due.Set(sp)
}

// Counts are the counters of a relay besides those of its stores.
type Counts struct {
	Publishes   uint64 // messages of publishers
	Refused     uint64 // of those and gets, before they reached a store
	Repairs     uint64 // answered
	RepairAsked uint64 // bytes of requests for repair
	RepairBytes uint64 // bytes of the answers

	RepairsCoalesced uint64 // requests for repair that waited
	CoalescedBytes   uint64 // their bytes

	Malformed     uint64 // messages of edges
	Lost          uint64 // messages that the bus refused
	SpacesRefused uint64
	SessionsLost  uint64 // that no edge named for too long
	InboxLost     uint64 // messages that did not fit into an inbox
	NotHeld       uint64 // messages for shards that this relay does not hold
	Stored        uint64 // states, by the durable store
	RestoreErrors uint64 // stored states that could not be read
	Compared      uint64 // times that the states of a shard were compared with those that are stored
}

// Stats are the counters of a relay, summed over its workers.
type Stats struct {
	Counts
	Store  replication.StoreStats // summed over the spaces
	Spaces uint64
	Shards uint64 // that are served

	InboxBytes, InboxMessages uint64 // waiting

	StoredStates uint64 // of the shards that are served, as of the last comparisons
	Unserved     uint64 // of those

	Unstored   uint64        // states that changed and are not stored
	DurableAge time.Duration // of the oldest of them
}

// Store returns the store of a space that the worker serves, or else nil, for a caller that
// turns it.
func (w *Worker) Store(space string) *replication.Store {
	if sp, ok := w.spaces[space]; ok && sp.owner.serving {
		return sp.store
	}
	return nil
}

// Stats returns the counters of a worker, for a caller that turns it.
func (w *Worker) Stats(now time.Time) Stats {
	s := Stats{Counts: w.counts, Store: w.past, Spaces: uint64(len(w.spaces))}
	s.InboxLost, s.InboxBytes, s.InboxMessages = w.inbox.Lost(), uint64(w.inbox.Bytes()), uint64(w.inbox.Len())
	s.DurableAge = w.durableAge(now)
	for _, o := range w.owned {
		if o.serving {
			s.Shards++
			s.StoredStates += uint64(o.comparison.stored)
			s.Unserved += uint64(o.comparison.unserved)
		}
		s.Unstored += uint64(o.dirty() + len(o.storing))
	}
	for _, sp := range w.spaces {
		telemetry.Sum(&s.Store, sp.store.Stats())
	}
	return s
}
