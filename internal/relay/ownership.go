package relay

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/replication"
)

// An ownership is this relay's authority over one shard. It begins when the lease says
// so. The relay serves the shard once it has all that its predecessors stored. The
// ownership ends at once when the lease says so, or in order when another relay should
// have the shard.
type ownership struct {
	shard    int
	epoch    uint64
	serving  bool
	doubted  bool      // the worker stood still, and the durable store has not said since that the shard is its own
	since    time.Time // when it began to serve; zero for the time of the relay's start
	durable  bool      // the durable store answers
	spaces   []*space  // in the order in which they began
	end      []func()  // unsubscribe
	headTurn int       // the quiet space that the next head begins with

	loading
	storing    []storedState // on their way to the durable store
	comparison comparison    // of what is stored with what is served

	leaving  bool   // another relay should hold the shard
	to       string // which
	released bool   // the leases were told so: the shard is not served again
	paused   bool   // the durable store has been silent for too long
}

// firstNumberBase is the beginning of 2025 in Unix milliseconds. Epochs count up from the
// time at which the durable store was made.
const firstNumberBase = 1_735_689_600_000

// firstNumber returns the first state number of an epoch. A holder can die before it has
// stored a state that it numbered, so the numbers of an epoch must not depend on what was
// stored: they begin where no earlier epoch can have come, as every message in the stream
// of the shard, a renewal twice a second at least, leaves room for 16,384 states.
func firstNumber(epoch uint64) uint64 {
	if epoch > firstNumberBase {
		epoch -= firstNumberBase
	}
	return epoch<<14 + 1
}

// acquire begins an ownership, and ends an older one of the shard. The relay serves the
// shard when the stored states are loaded, or at once if it still has the newest ones.
func (w *Worker) acquire(now time.Time, shard int, epoch, former uint64, wiped bool) {
	if old := w.ownership(shard); old != nil {
		w.lose(now, old)
	}
	o := &ownership{shard: shard, epoch: epoch, durable: true, loading: loading{began: now, complete: w.relay.cfg.Leases == nil}}
	w.owned = append(w.owned, o)
	if w.relay.cfg.Leases == nil {
		w.serve(now, o)
		return
	}
	if old := w.takeFormer(shard, former); old != nil {
		w.inherit(now, o, old, wiped)
		return
	}
	w.loads.begin(o)
}

// ownership returns the ownership of a shard, or nil.
func (w *Worker) ownership(shard int) *ownership {
	if i := slices.IndexFunc(w.owned, func(o *ownership) bool { return o.shard == shard }); i >= 0 {
		return w.owned[i]
	}
	return nil
}

// served returns the ownership of a shard that this relay serves. It returns nil for
// another shard, which it counts.
func (w *Worker) served(shard int) *ownership {
	if o := w.ownership(shard); o != nil && o.serving {
		return o
	}
	w.counts.NotHeld++
	return nil
}

// serve begins to answer for a shard, and tells replicas and publishers so.
func (w *Worker) serve(now time.Time, o *ownership) {
	o.serving, o.since = true, now
	o.end = w.subscribeShard(o.shard)
	for _, sp := range o.spaces {
		w.enter(now, sp)
		w.announce(now, sp)
	}
	w.sendHead(now, o)
	w.relay.cfg.Log.Debug("serving shard", "shard", o.shard, "epoch", o.epoch, "spaces", len(o.spaces))
	w.relay.shards.serve(now, o.shard)
	w.relay.shards.compare(now, o.shard, o.comparison.unserved, o.comparison.example)
}

// subscribeShard brings the messages of a shard to its worker.
func (w *Worker) subscribeShard(n int) (end []func()) {
	s := w.relay.cfg.Subjects
	subs := subscriptions{bus: w.relay.cfg.Bus}
	subs.add(s.ShardPublishAll(n), func(m bus.Msg) { w.post(n, (*Worker).publish, m) })
	subs.add(s.ShardGetAll(n), func(m bus.Msg) { w.post(n, (*Worker).get, m) })
	subs.add(s.Repair(n), func(m bus.Msg) { w.post(n, (*Worker).repair, m) })
	subs.add(s.Write(n), func(m bus.Msg) { w.post(n, (*Worker).write, m) })
	if subs.err != nil { // the bus is closed, so this relay is about to end
		w.relay.cfg.Log.Error("cannot serve a shard: subscribing fails", "shard", n, "error", subs.err)
	}
	return subs.end
}

// Subscriptions are some of a bus that begin and end together.
type subscriptions struct {
	bus bus.Bus
	end []func()
	err error
}

func (s *subscriptions) add(subject string, handle func(bus.Msg)) {
	if s.err != nil {
		return
	}
	end, err := s.bus.Subscribe(subject, handle)
	if err != nil {
		s.err = fmt.Errorf("subscribe to %s: %w", subject, err)
		return
	}
	s.end = append(s.end, end)
}

// announce asks publishers to say again what the predecessor may not have stored.
func (w *Worker) announce(now time.Time, sp *space) {
	epoch, seq := sp.store.Position()
	w.publishEvent(&replication.Event{
		Type: replication.EventReassert, Space: sp.name, Time: now, Epoch: epoch, Seq: seq, Shard: sp.owner.shard,
	})
}

// lose ends an ownership at once. A sender that waits for an answer asks the next holder.
func (w *Worker) lose(now time.Time, o *ownership) {
	w.relay.shards.stop(now, o.shard)
	o.stopServing()
	for _, sp := range o.spaces {
		w.removeSpace(sp)
	}
	w.owned = slices.DeleteFunc(w.owned, func(x *ownership) bool { return x == o })
}

// A worker that has no turn for a while may have lost its shards without hearing of it. What it then applies to them, or tells of
// them, is undone by the next holder, so it first asks the durable store whether they are still its own.
const (
	standstill  = time.Second             // other relays wait longer before they take a shard
	confirmWait = 1500 * time.Millisecond // for a store that does not answer
)

// A doubt is the question of a worker that stood still, from its standstill to the answers.
type doubt struct {
	worker *Worker
	turned time.Time // when the last turn began
	end    time.Time // until when the worker waits for the store
}

// turn begins a turn. It reports whether a shard may not be the worker's own any more: messages wait for the answer, and nothing is sent.
func (d *doubt) turn(now time.Time) bool {
	if now.Sub(d.turned) >= standstill && d.worker.relay.cfg.Leases != nil {
		d.end = now.Add(confirmWait)
		for _, o := range d.worker.owned {
			if o.serving {
				d.ask(o)
			}
		}
	}
	d.turned = now
	return now.Before(d.end) && slices.ContainsFunc(d.worker.owned, func(o *ownership) bool { return o.serving && o.doubted })
}

func (d *doubt) ask(o *ownership) {
	o.doubted = true
	shard, epoch := o.shard, o.epoch
	d.worker.relay.cfg.Leases.Store(shard, epoch, []cluster.Keyframe{}, func(err error) {
		if err == nil {
			d.worker.command(shard, epoch, func(_ time.Time, o *ownership) { o.doubted = false })
		}
	})
}

// stopServing ends the subscriptions to the shard and the answers for it.
func (o *ownership) stopServing() {
	o.serving = false
	for _, f := range o.end {
		f()
	}
	o.end = nil
}

// handOver gives a shard to another relay, or to any relay that wants it if to is empty.
// The relay goes on serving while much is left to be stored; what is left then takes no
// longer to store than a publisher waits.
func (w *Worker) handOver(now time.Time, o *ownership, to string) {
	if o.leaving {
		o.to = to
		return
	}
	o.leaving, o.to = true, to
	if !o.complete {
		w.release(o)
		return
	}
	w.advanceLeaving(now, o)
}

// handOverDirty is how many states may be left to be stored while no relay serves the
// shard. One batch of the durable store has so many.
const handOverDirty = cluster.BatchKeyframesMax

// advanceLeaving takes the last step of a hand-over when little is left to store.
func (w *Worker) advanceLeaving(now time.Time, o *ownership) {
	if !o.leaving || o.released || len(o.storing) > 0 || o.dirty() > handOverDirty {
		return
	}
	for _, sp := range o.spaces {
		w.emit(now, sp)
	}
	w.relay.shards.stop(now, o.shard)
	o.stopServing()
	w.store(o, o.dirty())
	w.release(o)
}

func (w *Worker) release(o *ownership) {
	o.released = true
	w.relay.cfg.Leases.Release(o.shard, o.epoch, o.to)
}

// pause ends serving a shard that this relay holds.
func (w *Worker) pause(now time.Time, o *ownership) {
	o.paused = true
	if o.serving {
		w.relay.shards.stop(now, o.shard)
		o.stopServing()
	}
}

// resume goes on serving a shard with what this relay has.
func (w *Worker) resume(now time.Time, o *ownership) {
	o.paused = false
	if o.complete && !o.released {
		states := 0
		for _, sp := range o.spaces {
			states += int(sp.store.Stats().States)
		}
		w.relay.shards.inherit(now, states)
		w.serve(now, o)
	}
}

// Bounds of writing to the durable store.
const (
	durableInterval = 50 * time.Millisecond // between two searches for what has changed
	durableBatch    = 500                   // states in one write, so that a hand-over waits for little
)

// A storedState is a state that is on its way to the durable store.
type storedState struct {
	space  *space
	number uint64
	since  time.Time
	ends   bool // it was removed
}

// A quota is a token bucket of states that a worker may store.
type quota struct {
	rate   float64 // per second
	tokens float64
	at     time.Time
}

func (q *quota) refill(now time.Time) {
	q.tokens = min(q.tokens+q.rate*now.Sub(q.at).Seconds(), q.rate/2)
	q.at = now
}

// advanceDurable stores what has changed, oldest change first, as fast as is allowed. It
// returns when it must be called again.
func (w *Worker) advanceDurable(now time.Time) time.Time {
	if w.relay.cfg.Leases == nil || len(w.owned) == 0 {
		return now.Add(time.Hour)
	}
	if now.Before(w.durableDue) {
		return w.durableDue
	}
	w.durableDue = now.Add(durableInterval)
	w.quota.refill(now)
	for _, o := range w.owned {
		if !o.complete || o.released || len(o.storing) > 0 {
			continue
		}
		n := min(durableBatch, int(w.quota.tokens))
		if o.leaving {
			n = durableBatch // the sooner the shard changes hands the better
		}
		w.quota.tokens -= float64(w.store(o, n))
		w.advanceLeaving(now, o)
	}
	return w.durableDue
}

// dirty returns how many states of the shard wait to be stored.
func (o *ownership) dirty() (n int) {
	for _, sp := range o.spaces {
		n += sp.store.Dirty()
	}
	return n
}

// setDurable notes whether the durable store answers.
func (o *ownership) setDurable(durable bool) {
	o.durable = durable
	for _, sp := range o.spaces {
		sp.store.SetDurable(durable)
	}
}

// logStore logs when the durable store goes silent and when it answers again, once for all shards of
// the relay. A worker without shards does not ask the store.
func (w *Worker) logStore(now time.Time) {
	r := w.relay
	switch {
	case len(w.owned) == 0:
	case slices.ContainsFunc(w.owned, func(o *ownership) bool { return !o.durable }):
		if r.connection.Settled(now) && r.silence.Fails(now) { // the loss of the bus says it all
			r.cfg.Log.Warn("the durable store does not answer; changes get lost if this relay ends before it answers", "node", r.cfg.Node)
		}
	case r.silence.Works(now):
		r.cfg.Log.Info("the durable store answers again", "node", r.cfg.Node)
	}
}

// store gives up to n states to the durable store and returns how many.
func (w *Worker) store(o *ownership, n int) int {
	var batch []cluster.Keyframe
	var states []storedState
	for _, sp := range o.oldestFirst() {
		since, _ := sp.store.DirtySince()
		for _, d := range sp.store.TakeDirty(nil, n-len(batch)) {
			batch = append(batch, cluster.Keyframe{Space: sp.name, Number: d.Number, Data: d.Data})
			states = append(states, storedState{sp, d.Number, since, d.Data == nil})
		}
		if len(batch) >= n {
			break
		}
	}
	if len(batch) == 0 {
		return 0
	}
	o.storing = states
	shard, epoch := o.shard, o.epoch
	w.relay.cfg.Leases.Store(shard, epoch, batch, func(err error) {
		w.command(shard, epoch, func(now time.Time, o *ownership) { w.storedBatch(now, o, states, err) })
	})
	return len(batch)
}

// oldestFirst returns the spaces that have something to store.
func (o *ownership) oldestFirst() []*space {
	var dirty []*space
	for _, sp := range o.spaces {
		if sp.store.Dirty() > 0 {
			dirty = append(dirty, sp)
		}
	}
	slices.SortStableFunc(dirty, func(a, b *space) int {
		x, _ := a.store.DirtySince()
		y, _ := b.store.DirtySince()
		return x.Compare(y)
	})
	return dirty
}

// storedBatch handles the answer of the durable store.
func (w *Worker) storedBatch(now time.Time, o *ownership, states []storedState, err error) {
	if errors.Is(err, cluster.ErrNotHeld) {
		return // the ownership ends, and the next one may need to know what was on its way
	}
	o.storing = nil
	switch {
	case err == nil:
		w.counts.Stored += uint64(len(states))
		for _, st := range states {
			if st.ends {
				w.comparisons.noteRemoved(o, st.space.name, st.number)
			}
		}
	case errors.Is(err, cluster.ErrQueueFull):
		for _, s := range states {
			s.space.store.MarkDirty(s.since, s.number)
		}
	}
	w.advanceLeaving(now, o)
}

// durableAge returns how long the oldest change has been waiting to be stored.
func (w *Worker) durableAge(now time.Time) (age time.Duration) {
	if w.relay.cfg.Leases == nil {
		return 0
	}
	for _, sp := range w.spaces {
		if since, ok := sp.store.DirtySince(); ok {
			age = max(age, now.Sub(since))
		}
	}
	return age
}

// How often and for how long the holder says how far a space is.
const (
	headInterval = 250 * time.Millisecond
	headRecent   = 60 * time.Second // spaces that changed within it are in every head
)

// advanceHeads tells replicas how far the spaces of the worker are, if it is time, so that
// a replica that missed the last batch of a space notices it without another one. It
// returns when it is next.
func (w *Worker) advanceHeads(now time.Time) time.Time {
	if len(w.owned) == 0 {
		return now.Add(time.Hour)
	}
	if now.Before(w.headsDue) {
		return w.headsDue
	}
	w.headsDue = now.Add(headInterval)
	for _, o := range w.owned {
		if o.serving {
			w.sendHead(now, o)
		}
	}
	return w.headsDue
}

// sendHead tells how far the spaces of a shard are. A head without a space still says who
// holds the shard.
func (w *Worker) sendHead(now time.Time, o *ownership) {
	if w.relay.cfg.Leases == nil && len(o.spaces) == 0 {
		return // there is no other holder that a replica could have followed
	}
	data := replication.AppendHead(nil, o.epoch, o.head(now))
	w.send(bus.Msg{Subject: w.relay.cfg.Subjects.Head(o.shard), Data: data})
}

// head returns the spaces that changed lately, and as many of the others as fit, in turn.
func (o *ownership) head(now time.Time) []replication.SpaceHead {
	var all []replication.SpaceHead
	room := replication.HeadBytesMax - 16
	add := func(sp *space) bool {
		_, seq := sp.store.Position()
		head := replication.SpaceHead{Space: sp.name, Seq: seq}
		if room -= head.Size(); room < 0 {
			return false
		}
		all = append(all, head)
		return true
	}
	recent := func(sp *space) bool { return now.Sub(sp.emitted) < headRecent }
	for _, sp := range o.spaces {
		if recent(sp) && !add(sp) {
			return all
		}
	}
	for range o.spaces {
		sp := o.spaces[o.headTurn%len(o.spaces)]
		if !recent(sp) && !add(sp) {
			return all
		}
		o.headTurn = (o.headTurn + 1) % len(o.spaces)
	}
	return all
}
