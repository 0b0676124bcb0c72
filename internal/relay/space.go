package relay

import (
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

// forgetAfter is how long the clients whose groups were restored from the durable store
// have to show that they are still there.
const forgetAfter = 30 * time.Second

// A space is a store, and what a worker needs beside it.
type space struct {
	name  string
	owner *ownership
	store *replication.Store

	due   time.Time // when the store wants to be advanced
	place int       // in the heap of the worker

	emitted  time.Time // when the last batch left
	used     time.Time // when a message was about it last
	forgetAt time.Time // when the groups of absent clients are forgotten; zero once they were

	gathered time.Time // until when edges may be about to name clients
	deferred []bus.Msg // of publishers, that wait for that

	replies map[uint64]reply // to be answered, by token
	forms   []payload.Form   // in which publishers want events beside JSON
	repairs repairs
	present presence
	pending pending
	meter   meter
}

// A reply is where an answer goes, and in which form.
type reply struct {
	subject string
	form    payload.Form
}

// validSpace reports whether publishers and clients may have a space of this name.
func validSpace(name string) bool {
	return subject.ValidToken(name) && !strings.HasPrefix(name, "_")
}

// belongs reports whether a message about a space came to the right shard. Otherwise a node
// with another number of shards would make a second authority.
func (w *Worker) belongs(space string, shard int) bool {
	return validSpace(space) && cluster.Shard(space, w.relay.cfg.Shards) == shard
}

// space returns the space with this name, and makes it if there is none and there is room.
func (w *Worker) space(now time.Time, o *ownership, name string) (*space, bool) {
	if sp, ok := w.spaces[name]; ok {
		sp.used = now
		return sp, sp.owner == o
	}
	if len(w.spaces) >= max(1, w.relay.cfg.Spaces/len(w.relay.workers)) && !w.makeRoom(now) {
		w.counts.SpacesRefused++
		return nil, false
	}
	sp := w.makeSpace(now, o, name)
	w.enter(now, sp)
	return sp, true
}

// makeSpace returns the space with this name, and makes it if there is none. A space that it
// makes publishes nothing before enter. It makes as many as are stored: several relays may have
// left more than one may begin.
func (w *Worker) makeSpace(now time.Time, o *ownership, name string) *space {
	if sp, ok := w.spaces[name]; ok {
		return sp
	}
	cfg := &w.relay.cfg
	sp := &space{name: name, owner: o, emitted: now, used: now, replies: make(map[uint64]reply)}
	sp.present.named = make(map[string]*named)
	sp.store = replication.NewStore(replication.StoreConfig{
		Space: name, Epoch: o.epoch, FirstNumber: firstNumber(o.epoch), Tick: cfg.Tick, Limits: cfg.Limits, Eye: cfg.Eye,
		Volatile: cfg.Leases == nil,
	})
	sp.store.SetDurable(o.durable)
	w.spaces[name] = sp
	o.spaces = append(o.spaces, sp)
	return sp
}

// enter begins to serve a space: the relay asks which sessions are in it, and advances it
// when it is due.
func (w *Worker) enter(now time.Time, sp *space) {
	sp.forgetAt, sp.gathered = now.Add(forgetAfter), now.Add(gatherTime)
	w.ask(now, sp)
	w.plan(sp)
}

// makeRoom forgets the spaces that are empty and have not been used for long: they have no
// state and no session, so no edge follows them. It searches all spaces, at most once a
// second.
func (w *Worker) makeRoom(now time.Time) bool {
	if now.Sub(w.fullAt) < time.Second {
		return false
	}
	w.fullAt = now
	before := len(w.spaces)
	for _, name := range sortedKeys(w.spaces) {
		sp := w.spaces[name]
		if now.Sub(sp.used) < idleAfter || sp.store.Stats().States > 0 || sp.store.Dirty()+len(sp.owner.storing) > 0 || len(sp.present.named) > 0 {
			continue
		}
		w.emit(now.Add(w.relay.cfg.Tick), sp)
		sp.owner.spaces = slices.DeleteFunc(sp.owner.spaces, func(x *space) bool { return x == sp })
		w.removeSpace(sp)
	}
	if len(w.spaces) == before {
		return false
	}
	w.fullAt = time.Time{}
	return true
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// removeSpace forgets a space.
func (w *Worker) removeSpace(sp *space) {
	w.due.Remove(sp)
	delete(w.spaces, sp.name)
	telemetry.Sum(&w.past, sp.store.Stats())
	w.past.States, w.past.Views = 0, 0 // these two are levels, not counters
	sp.pending.span.End()
}

// emit publishes what the store has produced.
func (w *Worker) emit(now time.Time, sp *space) {
	subjects := w.relay.cfg.Subjects
	batches, bytes := 0, 0
	for _, out := range sp.store.Advance(now) {
		var m bus.Msg
		switch out.Kind {
		case replication.OutputBatch:
			sp.emitted = now
			batches, bytes = batches+1, bytes+len(out.Data)
			m = bus.Msg{Subject: subjects.Live(sp.name), Data: out.Data}
		case replication.OutputAnswer:
			r := sp.reply(out.Answer.Token)
			m = bus.Msg{Subject: r.subject, Header: r.form.Header(), Data: r.form.AppendAnswer(nil, &out.Answer)}
			w.answers.keep(m.Subject, m.Data)
		case replication.OutputWrite:
			m = bus.Msg{Subject: sp.reply(out.Write.Token).subject, Data: replication.AppendWriteResult(nil, out.Write)}
		case replication.OutputEvent:
			for _, form := range sp.forms {
				w.send(bus.Msg{Subject: subjects.EventIn(sp.name, form.String()), Header: form.Header(), Data: form.AppendEvent(nil, out.Event)})
			}
			w.publishEvent(out.Event)
			continue
		case replication.OutputKick:
			m = bus.Msg{
				Subject: subjects.To(sp.name, out.Client),
				Header:  map[string]string{subject.HeaderControl: subject.ControlKick},
				Data:    out.Data,
			}
			if out.Session != "" {
				m.Header[subject.HeaderSession] = out.Session
			}
		}
		w.send(m)
	}
	sp.pending.left(&w.relay.signals, sp.store, batches, bytes)
}

// send publishes a message and reports whether the bus accepted it. A message without a
// subject is an answer that no sender waits for; it is not published.
func (w *Worker) send(m bus.Msg) bool {
	if m.Subject != "" && w.relay.cfg.Bus.Publish(m) != nil {
		w.counts.Lost++
		return false
	}
	return true
}

// publishEvent publishes an event for game servers.
func (w *Worker) publishEvent(e *replication.Event) {
	w.send(bus.Msg{Subject: w.relay.cfg.Subjects.Event(e.Space), Data: payload.JSON.AppendEvent(nil, e)})
}

// token remembers where an answer goes. It is 0 if no answer is wanted. The store bounds
// the number of answers that are wanted.
func (w *Worker) token(sp *space, subject string, form payload.Form) uint64 {
	if subject == "" {
		return 0
	}
	w.lastToken++
	sp.replies[w.lastToken] = reply{subject, form}
	return w.lastToken
}

// reply returns where the answer with this token goes, and forgets it.
func (sp *space) reply(token uint64) reply {
	r := sp.replies[token]
	delete(sp.replies, token)
	return r
}

// addForm has the events of the store published in the form of a publisher, too. There are
// at most as many forms as dialects.
func (sp *space) addForm(form payload.Form) {
	if form != payload.JSON && !slices.Contains(sp.forms, form) {
		sp.forms = append(sp.forms, form)
	}
}
