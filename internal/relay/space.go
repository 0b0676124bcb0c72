package relay

import (
	"container/heap"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
	"github.com/dnprelay/dnprelay/subject"
)

// idleAfter is how long a space must have been empty and unused before another may
// take its place.
const idleAfter = 10 * time.Minute

// forgetAfter is how long after a restart the clients whose groups were restored
// have to show that they are still there.
const forgetAfter = 30 * time.Second

// A space is a store with what a lane keeps beside it.
type space struct {
	name  string
	h     *holding
	store *replication.Store

	due   time.Time // when the store wants to be advanced
	index int       // in the heap of the lane; -1 if nothing is due

	emitted  time.Time // when the last batch left
	used     time.Time // when a message was about it last
	forgetAt time.Time // when groups of absent clients are forgotten; zero if they were

	replies map[uint64]reply // who waits for an answer, by token
	forms   []payload.Form   // in which publishers want events beside JSON
	present presence
	pending pending // what telemetry waits for
}

// A reply is who waits for an answer, and in which form.
type reply struct {
	subject string
	form    payload.Form
}

// validSpace reports whether publishers and clients may have a space of this name.
func validSpace(name string) bool {
	return subject.ValidToken(name) && !strings.HasPrefix(name, "_")
}

// belongs reports whether a message about a space came to the right shard. A node
// with another number of shards would otherwise make a second authority.
func (l *Lane) belongs(space string, shard int) bool {
	return validSpace(space) && cluster.Shard(space, l.relay.cfg.Shards) == shard
}

// space returns the space with this name and makes it if there is room.
func (l *Lane) space(now time.Time, h *holding, name string) (*space, bool) {
	if sp, ok := l.spaces[name]; ok {
		sp.used = now
		return sp, sp.h == h
	}
	sp, ok := l.makeSpace(now, h, name)
	if ok {
		l.enter(now, sp)
	}
	return sp, ok
}

// makeSpace makes a space that says nothing yet.
func (l *Lane) makeSpace(now time.Time, h *holding, name string) (*space, bool) {
	if sp, ok := l.spaces[name]; ok {
		return sp, true
	}
	cfg := &l.relay.cfg
	if len(l.spaces) >= max(1, cfg.Spaces/len(l.relay.lanes)) && !l.makeRoom(now) {
		l.counts.SpacesRefused++
		return nil, false
	}
	sp := &space{name: name, h: h, index: -1, emitted: now, used: now, replies: make(map[uint64]reply)}
	sp.present.named = make(map[string]*named)
	sp.store = replication.NewStore(replication.StoreConfig{
		Space: name, Epoch: h.epoch, FirstNumber: firstNumber(h.epoch), Tick: cfg.Tick, Limits: cfg.Limits,
		Volatile: cfg.Leases == nil,
	})
	sp.store.SetDurable(h.durable)
	l.spaces[name] = sp
	h.spaces = append(h.spaces, sp)
	return sp, true
}

// enter makes a space take part: it asks who is there, and is advanced when due.
func (l *Lane) enter(now time.Time, sp *space) {
	sp.forgetAt = now.Add(forgetAfter)
	l.ask(now, sp)
	l.touch(sp)
}

// makeRoom forgets the spaces that are empty and have not been used for long: no
// state, no session, and so no edge that follows it. It looks at all, at most once
// a second.
func (l *Lane) makeRoom(now time.Time) bool {
	if now.Sub(l.fullAt) < time.Second {
		return false
	}
	l.fullAt = now
	before := len(l.spaces)
	for _, name := range sortedKeys(l.spaces) {
		sp := l.spaces[name]
		if now.Sub(sp.used) < idleAfter || sp.store.Stats().States > 0 || sp.store.Dirty()+sp.h.storing > 0 || len(sp.present.named) > 0 {
			continue
		}
		l.emit(now.Add(l.relay.cfg.Tick), sp)
		sp.h.spaces = slices.DeleteFunc(sp.h.spaces, func(x *space) bool { return x == sp })
		l.leave(sp)
	}
	if len(l.spaces) == before {
		return false
	}
	l.fullAt = time.Time{}
	return true
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// leave forgets a space whose holding ended.
func (l *Lane) leave(sp *space) {
	if sp.index >= 0 {
		heap.Remove(&l.due, sp.index)
	}
	delete(l.spaces, sp.name)
	telemetry.Sum(&l.past, sp.store.Stats())
	l.past.States, l.past.Views = 0, 0 // those are gone
	sp.pending.span.End()
}

// emit sends what the store has to say.
func (l *Lane) emit(now time.Time, sp *space) {
	subjects := l.relay.cfg.Subjects
	batches, bytes := 0, 0
	for _, out := range sp.store.Advance(now) {
		var m bus.Msg
		switch out.Kind {
		case replication.OutputBatch:
			sp.emitted = now
			l.counts.Batches++
			batches, bytes = batches+1, bytes+len(out.Data)
			m = bus.Msg{Subject: subjects.Live(sp.name), Data: out.Data}
		case replication.OutputAnswer:
			r := sp.reply(out.Answer.Token)
			m = bus.Msg{Subject: r.subject, Data: r.form.AppendAnswer(nil, &out.Answer)}
		case replication.OutputWrite:
			m = bus.Msg{Subject: sp.reply(out.Write.Token).subject, Data: replication.AppendWriteResult(nil, out.Write)}
		case replication.OutputEvent:
			for _, form := range sp.forms {
				l.send(bus.Msg{Subject: subjects.EventIn(sp.name, form.String()), Data: form.AppendEvent(nil, out.Event)})
			}
			m = l.relay.eventMsg(out.Event)
		case replication.OutputKick:
			m = bus.Msg{
				Subject: subjects.To(sp.name, out.Client),
				Header:  map[string]string{subject.HeaderControl: subject.ControlKick},
			}
		}
		l.send(m)
	}
	sp.left(&l.relay.signals, batches, bytes)
}

// send publishes a message and reports whether the bus took it. One without a
// subject is an answer for which nobody waits.
func (l *Lane) send(m bus.Msg) bool {
	if m.Subject != "" && l.relay.cfg.Bus.Publish(m) != nil {
		l.counts.Lost++
		return false
	}
	return true
}

// token remembers who waits for an answer. It is 0 for nobody. The store bounds how
// many wait.
func (l *Lane) token(sp *space, subject string, form payload.Form) uint64 {
	if subject == "" {
		return 0
	}
	l.lastToken++
	sp.replies[l.lastToken] = reply{subject, form}
	return l.lastToken
}

// reply returns who waits for the answer with this token.
func (sp *space) reply(token uint64) reply {
	r := sp.replies[token]
	delete(sp.replies, token)
	return r
}

// speak makes the events of the store come in the form of a publisher, too. There are
// as many forms as dialects at most.
func (sp *space) speak(form payload.Form) {
	if form != payload.JSON && !slices.Contains(sp.forms, form) {
		sp.forms = append(sp.forms, form)
	}
}
