package edge

import (
	"container/heap"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// Bounds of a session in a log. A checkpoint has what is not delivered, the long
// message that is coming in and the backlog, and must fit into one message of NATS with
// the commands of its write.
const (
	keptBytesMax  = 192 << 10
	longKeptMax   = 192 << 10
	blockBytesMax = 128 << 10
)

// A worker with sessions in a log turns each beat. One that did not turn for stallMax
// was stopped, and its sessions may be somebody else's.
const (
	beat     = 100 * time.Millisecond
	stallMax = 300 * time.Millisecond
)

// A keeper looks after the sessions of a worker that a log knows: it tells each what
// happened and carries out what it wants. It belongs to the goroutine of its worker, but
// for the mailbox.
type keeper struct {
	w      *Worker
	d      *Durable
	cfg    sessionlog.Config
	byAddr map[netip.AddrPort]*kept
	byName map[string]*kept // the same, and those whose client is not known yet

	awake   []*kept // that have to be advanced
	due     dueHeap
	batches *sessionlog.Batches[*kept]
	mail    mailbox
	turned  time.Time // when the worker turned last

	strays    strays
	guests    guests
	over      int     // sessions whose clients come over other edges
	waiting   []*kept // that were found and need their space
	preparing []preparation
	reads     readBudget
	silent    silent
	lost      lostClaims
	drain     drain
	count     atomic.Int32
	logSilent time.Time // since when the log answers nothing; zero if it answers
}

func newKeeper(w *Worker, d *Durable) *keeper {
	seed := w.edge.cfg.Seed
	return &keeper{
		w: w, d: d, batches: sessionlog.NewBatches[*kept](d.Shards),
		cfg: sessionlog.Config{
			Node: w.edge.cfg.Node, Rand: rand.New(rand.NewPCG(seed(), seed())),
			UndeliveredBytesMax: keptBytesMax, BlockBytes: blockBytesMax,
		},
		byAddr: make(map[netip.AddrPort]*kept), byName: make(map[string]*kept),
		strays: newStrays(), guests: newGuests(),
		lost: lostClaims{byName: make(map[string]*lostClaim)},
	}
}

// name returns the name of the log of a client.
func (k *keeper) name(client netip.AddrPort) string {
	return sessionlog.Key(k.d.Secret, client, k.w.listener)
}

// begin starts a turn: it notices that the process was stopped, and takes answers.
func (k *keeper) begin(now time.Time) {
	if len(k.byAddr) > 0 && !k.turned.IsZero() && now.Sub(k.turned) > stallMax {
		k.doubt()
	}
	k.turned = now
	for _, l := range k.mail.empty() {
		if l.do != nil {
			l.do(now)
			continue
		}
		if l.answer.Verdict == 0 {
			l.to.core.Delivered(now, k.mail.number(l.to))
		} else {
			k.heardOfLog(now, l.answer.Verdict)
			l.to.core.Answer(now, l.answer)
		}
		k.wake(l.to)
	}
}

// must has something done that must not get lost, unlike tasks. It may be called from any
// goroutine.
func (k *keeper) must(do func(now time.Time)) {
	k.mail.must(do)
	k.w.wake()
}

// doubt makes every session read its log before it says anything, because this process
// was stopped.
func (k *keeper) doubt() {
	k.w.counts.Stalls++
	for _, name := range slices.Sorted(maps.Keys(k.byName)) {
		k.byName[name].core.Revalidate()
		k.wake(k.byName[name])
	}
}

// heardOfLog notes whether the log answers.
func (k *keeper) heardOfLog(now time.Time, v fence.Verdict) {
	switch {
	case v != fence.Unknown && v != fence.Unreachable:
		k.logSilent = time.Time{}
	case k.logSilent.IsZero():
		k.logSilent = now
	}
	k.w.logAway.Store(!k.logSilent.IsZero() && now.Sub(k.logSilent) > logPatience)
}

// logPatience is how long the log may be silent before new sessions are rejected.
const logPatience = time.Second

// wake has the next advance look at a session.
func (k *keeper) wake(x *kept) {
	if !x.awake {
		x.awake = true
		k.awake = append(k.awake, x)
	}
}

// handle takes an event of a connection.
func (k *keeper) handle(now time.Time, ev *dnp.Event) {
	if x := k.byAddr[ev.Conn.Addr()]; x != nil && x.core.Conn() == ev.Conn {
		x.core.Handle(now, ev)
		k.wake(x)
	}
}

// advance does what is due and returns when there is more to do.
func (k *keeper) advance(now, next time.Time) time.Time {
	next = k.askAgain(now, k.strays.advance(now, next))
	k.guests.advance(now)
	next = k.advanceSilent(now, next)
	next = k.advanceLost(now, next)
	next = k.advanceDrain(now, next)
	next = k.advanceWaiting(now, next)
	next = k.advancePreparing(now, next)
	for len(k.due) > 0 && !k.due[0].due.After(now) {
		k.wake(heap.Pop(&k.due).(*kept))
	}
	for i := 0; i < len(k.awake); i++ { // more may get awake meanwhile
		x := k.awake[i]
		k.awake[i] = nil
		x.awake = false
		k.turn(now, x)
	}
	k.awake = k.awake[:0]
	k.batches.Flush(k.append)
	if len(k.due) > 0 {
		next = earlier(next, k.due[0].due)
	}
	if len(k.byName) > 0 {
		next = earlier(next, now.Add(beat))
	}
	k.count.Store(int32(len(k.byName) + k.drain.given))
	return next
}

// append asks the log for the writes of a turn.
func (k *keeper) append(_ int, writes []sessionlog.Write, owners []*kept) {
	k.w.counts.LogWrites += uint64(len(writes))
	k.d.Log.Append(writes, func(i int, a sessionlog.Answer) { owners[i].answer(a) })
}

// turn lets a session do what it wants.
func (k *keeper) turn(now time.Time, x *kept) {
	if x.dropped {
		return
	}
	for _, a := range x.core.Advance(now) {
		k.act(now, x, a)
	}
	if x.again != nil && x.core.Phase() == sessionlog.Owning && !x.core.Revalidating() {
		x.answerAsker() // it is this edge's, so whoever asked is late
		x.again = nil
	}
	at, more := x.core.NextTimeout()
	switch {
	case !more && x.core.Phase() == sessionlog.Over:
		k.forget(x)
		k.takeAgain(x)
	case !more:
		k.plan(x, time.Time{})
	case !at.After(now):
		k.wake(x)
	default:
		k.plan(x, at)
	}
}

// plan has a session advanced at a time; zero for never.
func (k *keeper) plan(x *kept, at time.Time) {
	x.due = at
	switch {
	case at.IsZero() && x.place > 0:
		heap.Remove(&k.due, x.place-1)
	case at.IsZero():
	case x.place > 0:
		heap.Fix(&k.due, x.place-1)
	default:
		heap.Push(&k.due, x)
	}
}

// forget drops a session that is over.
func (k *keeper) forget(x *kept) {
	k.plan(x, time.Time{})
	if k.byName[x.name] == x {
		delete(k.byName, x.name)
		k.w.edge.names.leave(nameAt{name: x.name, at: k.w})
	}
	via := x.via
	k.setWay(x, way{})
	if k.byAddr[x.addr] == x {
		delete(k.byAddr, x.addr)
		k.comesOver(k.turned, x.addr, via) // its end is yet to be told
		k.w.edge.directory.leave(place{x.addr, k.w.listener}, k.w)
	}
}

// act carries out what a session wants.
func (k *keeper) act(now time.Time, x *kept, a sessionlog.Action) {
	switch a.Kind {
	case sessionlog.ActionAppend:
		k.batches.Add(x, a.Write)
	case sessionlog.ActionRead:
		k.d.Log.Read(a.Log, func(answer sessionlog.Answer) { x.answer(answer) })
	case sessionlog.ActionOpened:
		k.opened(now, x)
	case sessionlog.ActionFound:
		k.found(now, x, a)
	case sessionlog.ActionAdopted:
		k.adopted(now, x)
	case sessionlog.ActionDeliver:
		k.w.counts.MessagesIn++
		x.feed.Deliver(a.Message)
	default:
		k.ends(now, x, a)
	}
}

// release says that this edge does not serve a session any more.
func (k *keeper) release(x *kept) {
	x.endFeed()
	if k.d.Affinity != nil {
		k.d.Affinity.Release(x.name, x.core.Epoch())
	}
}

// claim says that it does.
func (k *keeper) claim(x *kept) {
	k.w.edge.directory.own(place{x.addr, k.w.listener}, k.w, x.core.Epoch())
	if k.d.Affinity != nil {
		k.d.Affinity.Claim(x.name, x.core.Epoch())
	}
}

// replaced takes the word of the affinity that another edge has a session.
func (k *keeper) replaced(name string, by cluster.Served) {
	k.overtaken(k.byName[name], by.Epoch)
}

// overtaken takes the word that a session, which may be nil, is in a later epoch.
func (k *keeper) overtaken(x *kept, epoch uint64) {
	if x != nil && epoch > x.core.Epoch() {
		x.core.Revalidate()
		k.wake(x)
	}
}

// A dueHeap is the sessions that have to be advanced at a time, the first first.
type dueHeap []*kept

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i+1, j+1
}

func (h *dueHeap) Push(x any) {
	*h = append(*h, x.(*kept))
	(*h)[len(*h)-1].place = len(*h)
}

func (h *dueHeap) Pop() any {
	old := *h
	x := old[len(old)-1]
	old[len(old)-1] = nil
	*h = old[:len(old)-1]
	x.place = 0
	return x
}
