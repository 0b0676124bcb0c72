package relay

import (
	"container/heap"
	"time"

	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
)

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
	forgetAt time.Time // when groups of absent clients are forgotten; zero if they were

	replies map[uint64]string // reply subjects of what has not been answered, by token
}

// space returns the space with this name and makes it if there is room.
func (l *Lane) space(now time.Time, h *holding, name string) (*space, bool) {
	if sp, ok := l.spaces[name]; ok {
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
	if len(l.spaces) >= max(1, cfg.Spaces/len(l.relay.lanes)) {
		l.counts.SpacesRefused++
		return nil, false
	}
	sp := &space{name: name, h: h, index: -1, emitted: now, replies: make(map[uint64]string)}
	sp.store = replication.NewStore(replication.StoreConfig{
		Space: name, Epoch: h.epoch, FirstNumber: firstNumber(h.epoch), Tick: cfg.Tick, Limits: cfg.Limits,
	})
	sp.store.SetDurable(h.durable)
	l.spaces[name] = sp
	h.spaces = append(h.spaces, sp)
	return sp, true
}

// enter makes a space take part: it asks who is there, and is advanced when due.
func (l *Lane) enter(now time.Time, sp *space) {
	sp.forgetAt = now.Add(forgetAfter)
	l.askWho(sp)
	l.touch(sp)
}

// leave forgets a space whose holding ended.
func (l *Lane) leave(sp *space) {
	if sp.index >= 0 {
		heap.Remove(&l.due, sp.index)
	}
	delete(l.spaces, sp.name)
}

// emit sends what the store has to say.
func (l *Lane) emit(now time.Time, sp *space) {
	subjects := l.relay.cfg.Subjects
	for _, out := range sp.store.Advance(now) {
		var m replication.Msg
		switch out.Kind {
		case replication.OutputBatch:
			sp.emitted = now
			l.counts.Batches++
			m = replication.Msg{Subject: subjects.Live(sp.name), Data: out.Data}
		case replication.OutputAnswer:
			m = replication.Msg{Subject: sp.reply(out.Answer.Token), Data: payload.AppendAnswer(nil, &out.Answer)}
		case replication.OutputWrite:
			m = replication.Msg{Subject: sp.reply(out.Write.Token), Data: replication.AppendWriteResult(nil, out.Write)}
		case replication.OutputEvent:
			m = l.relay.eventMsg(out.Event)
		case replication.OutputKick:
			m = replication.Msg{
				Subject: subjects.To(sp.name, out.Client),
				Header:  map[string]string{replication.HeaderControl: replication.ControlKick},
			}
		}
		l.send(m)
	}
}

// send publishes a message. One without a subject is an answer for which nobody
// waits.
func (l *Lane) send(m replication.Msg) {
	if m.Subject != "" && l.relay.cfg.Bus.Publish(m) != nil {
		l.counts.Lost++
	}
}

// token remembers who waits for an answer. It is 0 for nobody. The store bounds how
// many wait.
func (l *Lane) token(sp *space, reply string) uint64 {
	if reply == "" {
		return 0
	}
	l.lastToken++
	sp.replies[l.lastToken] = reply
	return l.lastToken
}

// reply returns who waits for the answer with this token.
func (sp *space) reply(token uint64) string {
	subject := sp.replies[token]
	delete(sp.replies, token)
	return subject
}
