package systest

import (
	"bytes"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/view"
)

// audited is the space that an audit checks.
const audited = "s"

// healMax is how long a replica may take to equal the holder's store once nothing keeps the two
// apart.
const healMax = time.Second

// An audit checks what must hold in a ring at every moment, whatever fails:
//
//   - one relay serves in an epoch, and gives no number to two batches
//   - a healthy relay stops serving soon after another serves in a higher epoch
//   - only the holder writes durably, in its own epoch (leaseHub)
//   - a state number means one key forever, in stores, replicas and on disk
//   - a state whose end was stored never comes back
//   - a complete replica has exactly what the store at its position has
//   - a replica's position never goes back, no checksum differs, no record is bad
//   - a replica reaches the holder's position within a second after nothing stands between
//     the two
//   - a client never gets an older value after a newer one, and has what its edge
//     has without any repetition, where nothing is lost in between
type audit struct {
	g       *ring
	means   map[uint64]string  // key by state number
	ends    map[uint64]uint64  // epoch by number of a state whose end was stored
	batches map[[2]uint64]bool // epoch and number of every batch
	server  map[uint64]string  // the relay that serves, by epoch
	heals   []time.Duration    // that replicas took

	newest uint64 // the highest epoch in which a relay served

	players []*player
	carried *chaosCarried // nil without carried clients

	comparisons int
	damaged     bool   // the bus damages messages, so checksums may differ
	spoiled     bool   // values in replicas are damaged by hand, unknown to clients
	found       uint64 // how often a checksum differed in such a round, in the end
	large       bool   // answers with keyframes are so large that the holder limits them
	problems    []string
}

func newAudit(g *ring) *audit {
	a := &audit{
		g: g, means: make(map[uint64]string), ends: make(map[uint64]uint64),
		batches: make(map[[2]uint64]bool), server: make(map[uint64]string),
	}
	g.hub.Tap, g.leases.OnStore = a.published, a.stored
	g.net.Every(10*time.Millisecond, func() bool {
		a.lag()
		return true
	})
	return a
}

// problem records a violation; only the first few are kept.
func (a *audit) problem(format string, args ...any) {
	if len(a.problems) < 5 {
		a.problems = append(a.problems, fmt.Sprintf("at %v: ", a.g.net.Elapsed())+fmt.Sprintf(format, args...))
	}
}

// published checks every message before the bus may lose or delay it.
func (a *audit) published(from string, m bus.Msg) {
	if a.carried != nil {
		a.carried.published(from, m)
	}
	switch m.Subject {
	case a.g.subjects.Head(cluster.Shard(audited, simShards)):
		epoch, _ := replication.HeadEpoch(m.Data)
		a.outlives(from, epoch)
		return
	case a.g.subjects.Live(audited):
	default:
		return
	}
	h, _, err := view.Parse(m.Data)
	at := [2]uint64{h.Epoch, h.Seq}
	switch other := a.server[h.Epoch]; {
	case err != nil:
		a.problem("%s published a batch that does not parse", from)
	case other != "" && other != from:
		a.problem("%s and %s both serve in epoch %d", other, from, h.Epoch)
	case h.Seq != h.Prev+1 || a.batches[at]:
		a.problem("%s published %d:%d behind %d", from, h.Epoch, h.Seq, h.Prev)
	}
	a.server[h.Epoch], a.batches[at] = from, true
	a.outlives(from, h.Epoch)
}

// servesOnMax is how long a holder may go on serving when it has a successor and can hear it.
const servesOnMax = 2 * time.Second

// heardMin is a number of messages that cannot all have been lost.
const heardMin = 6

// outlives wants a healthy relay to stop when another serves in a higher epoch.
func (a *audit) outlives(from string, epoch uint64) {
	now := a.g.net.Now()
	for _, r := range a.g.relays {
		switch {
		case epoch > a.newest:
			r.told, r.times = now, 1
		case epoch == a.newest && r.times == 0:
			r.told, r.times = now, 1
		case epoch == a.newest:
			r.times++
		case r.node == from && r.times >= heardMin && now.Sub(r.told) > servesOnMax:
			a.problem("%s serves in epoch %d, %v after another relay served in epoch %d", from, epoch, now.Sub(r.told), a.newest)
		}
	}
	a.newest = max(a.newest, epoch)
}

// stored checks what the durable store accepted.
func (a *audit) stored(epoch uint64, k cluster.Keyframe) {
	switch end, ended := a.ends[k.Number]; {
	case k.Space != audited:
	case k.Data == nil:
		a.ends[k.Number] = epoch
	case ended:
		a.problem("state %d was stored in epoch %d, its end in epoch %d", k.Number, epoch, end)
	default:
		records := view.NewRecords(k.Data)
		r, _ := records.Next() // version, length of the key, key
		a.mean(k.Number, string(r.Data[2:2+r.Data[1]]), "the durable store")
	}
}

// mean wants a state number to mean one key.
func (a *audit) mean(number uint64, key, where string) {
	if old, ok := a.means[number]; ok && old != key {
		a.problem("state number %d was %s and is %s in %s", number, old, key, where)
	}
	a.means[number] = key
}

// step checks every store, replica and player. It is called between steps of the scheduler.
func (a *audit) step() {
	var stores []*replication.Store
	for _, r := range a.g.relays {
		if s := r.store(audited); !r.dead && s != nil {
			stores = append(stores, s)
			a.alive(s, r.name)
		}
	}
	for _, e := range a.g.edges {
		r := e.replica(audited)
		if r == nil {
			continue
		}
		for st := range r.All() {
			a.mean(st.Number, st.Desc.Key, e.node)
		}
		for _, s := range stores {
			a.agree(e, r, s)
		}
	}
	if a.spoiled {
		return
	}
	for _, p := range a.players {
		p.prompt(a)
	}
	if a.carried != nil {
		a.carried.step()
	}
}

// alive wants a store to have no state whose end was stored.
func (a *audit) alive(s *replication.Store, name string) {
	list := s.List("", 1<<20)
	for _, st := range list.States {
		a.mean(st.Number, st.Desc.Key, name)
		if end, ok := a.ends[st.Number]; ok && list.Epoch >= end {
			a.problem("%s has %s (%d) in epoch %d, its end was stored in epoch %d", name, st.Desc.Key, st.Number, list.Epoch, end)
		}
	}
}

// agree wants a replica at the position of a store to have what the store has.
func (a *audit) agree(e *simEdge, r *replication.Replica, s *replication.Store) {
	if !at(r, s) || s.Pending() {
		return
	}
	a.comparisons++
	if d := differ(s, r); d != "" && !a.damaged {
		epoch, seq := s.Position()
		a.problem("%s differs from the store at %d:%d: %s", e.node, epoch, seq, d)
	}
}

// at reports whether a replica is complete and at the position of a store.
func at(r *replication.Replica, s *replication.Store) bool {
	x, y := r.Position()
	return r.Complete() && positionOf(s) == position{x, y}
}

// A position is one of a store.
type position struct{ epoch, seq uint64 }

func positionOf(s *replication.Store) position {
	epoch, seq := s.Position()
	return position{epoch, seq}
}

// reached reports whether a replica is complete, and at a position or later.
func (p position) reached(r *replication.Replica) bool {
	epoch, seq := r.Position()
	return r.Complete() && (epoch > p.epoch || epoch == p.epoch && seq >= p.seq)
}

// differ describes the first difference between a replica and a store, or returns "".
func differ(s *replication.Store, r *replication.Replica) string {
	list, n := s.List("", 1<<20).States, 0
	for range r.All() {
		n++
	}
	for _, st := range list {
		switch have := r.State(st.Number); {
		case have == nil:
			return fmt.Sprintf("it lacks %s (%d)", st.Desc.Key, st.Number)
		case !sameDescription(st.Desc, have.Desc):
			return fmt.Sprintf("%s is described as %+v instead of %+v", st.Desc.Key, have.Desc, st.Desc)
		default:
			for i := range sampled(st.Values) {
				if !bytes.Equal(st.Values.Value(i), have.Values.Value(i)) || st.IsNull(i) != have.IsNull(i) {
					return fmt.Sprintf("%s[%d] is % x (null %v) instead of % x (null %v)", st.Desc.Key, i,
						have.Values.Value(i), have.IsNull(i), st.Values.Value(i), st.IsNull(i))
				}
			}
		}
	}
	if n != len(list) {
		return fmt.Sprintf("it has %d states instead of %d", n, len(list))
	}
	return ""
}

// sameDescription compares the fields that can change while a state lives.
func sameDescription(a, b *replication.Description) bool {
	return a.Key == b.Key && bytes.Equal(a.Message, b.Message) && bytes.Equal(a.Farewell, b.Farewell) &&
		a.Access.Kind == b.Access.Kind && slices.Equal(a.Access.Writers, b.Access.Writers) &&
		a.Audience.Kind == b.Audience.Kind && slices.Equal(a.Audience.Groups, b.Audience.Groups) &&
		slices.Equal(a.Audience.Clients, b.Audience.Clients)
}

// sampled yields the indexes of the values to compare. Of a wide state these are the ends and
// the middle: nothing else of it changes, and comparing all would be most of the work.
func sampled(s *netstate.State) iter.Seq[int] {
	return func(yield func(int) bool) {
		n := s.Layout().Len()
		for i := 0; i < n; i++ {
			if n > 8 && i > 0 && i < n-1 && i != n/2 {
				continue
			}
			if !yield(i) {
				return
			}
		}
	}
}

// standstillWait is how long a relay that stood still waits at most for the store to say that its shards are its own.
const standstillWait = 1500 * time.Millisecond

// lag measures how long replicas take to the position that the holder has at a moment, while nothing stands between them.
func (a *audit) lag() {
	holder, store := a.g.authority()
	now := a.g.net.Now()
	stuck := slices.ContainsFunc(a.g.relays, func(r *simRelay) bool { return r.stuck }) // then relays do not hear each other
	for _, r := range a.g.relays {
		if r.paused {
			r.pausedAt = now
		}
		if stuck || r.dead || r.paused || !r.bus.Connected() || a.g.hub.Loss > usualLoss {
			r.times = 0
		}
	}
	for _, e := range a.g.edges {
		if !e.bus.Connected() {
			e.awayAt = now
		}
		r := e.replica(audited)
		switch {
		case r == nil || store == nil || e.paused || now.Sub(holder.pausedAt) < standstillWait || !holder.bus.Connected() || !e.bus.Connected() || a.g.isCut(holder, e) || a.g.hub.Loss > usualLoss:
			e.lagSince, e.excused = time.Time{}, true
		case at(r, store), !e.lagSince.IsZero() && e.lagTo.reached(r):
			if took := now.Sub(e.lagSince); !e.lagSince.IsZero() && (e.excused || took > 30*time.Millisecond) {
				a.heals = append(a.heals, took)
			}
			e.lagSince, e.excused = time.Time{}, false
		case e.lagSince.IsZero():
			e.lagSince, e.lagTo = now, positionOf(store)
		case now.Sub(e.lagSince) > a.healMost():
			a.problem("%s is not at the position of the holder %v ago, and nothing stands between them", e.node, now.Sub(e.lagSince))
			e.lagSince, e.lagTo = now, positionOf(store)
		}
	}
}

// healMost is healMax, and twice as long while the bus goes on damaging the repairs. An edge that lost a large
// answer may have to wait until the holder's window for it ends.
func (a *audit) healMost() time.Duration {
	switch {
	case a.damaged:
		return 2 * healMax
	case a.large:
		return healMax + repairWindow
	}
	return healMax
}

// repairWindow is the time in which a holder gives an edge keyframes once, if they are many.
const repairWindow = 3 * time.Second

// check reports the violations that were found.
func (a *audit) check() {
	a.g.Helper()
	a.step()
	for _, v := range slices.Concat(a.g.leases.Violations, a.problems) {
		a.g.Error(v)
	}
	for _, e := range a.g.edges {
		if e.look.backwards != "" {
			a.g.Errorf("%s: %s", e.node, e.look.backwards)
		}
		r := e.replica(audited)
		if r == nil || a.damaged {
			continue
		}
		if s := r.Stats(); s.Divergence+s.BadRecords+s.Malformed > 0 {
			a.g.Errorf("%s: %d checksums differed, %d records and %d messages were bad, although the bus damages nothing",
				e.node, s.Divergence, s.BadRecords, s.Malformed)
		}
	}
}

// spread formats the median, the 99th percentile and the maximum of durations.
func spread(all []time.Duration) string {
	if len(all) == 0 {
		return "none"
	}
	slices.Sort(all)
	return fmt.Sprintf("median %v, p99 %v, max %v of %d", all[len(all)/2], all[len(all)*99/100], all[len(all)-1], len(all))
}
