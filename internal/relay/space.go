package relay

import (
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
)

// A space is a store with what a lane keeps beside it.
type space struct {
	name  string
	shard int
	store *replication.Store

	due   time.Time // when the store wants to be advanced
	index int       // in the heap of the lane; -1 if nothing is due

	emitted time.Time // when the last batch left
}

// space returns the space with this name and makes it if there is room.
func (l *Lane) space(now time.Time, name string) (*space, bool) {
	if sp, ok := l.spaces[name]; ok {
		return sp, true
	}
	cfg := &l.relay.cfg
	if len(l.spaces) >= max(1, cfg.Spaces/len(l.relay.lanes)) {
		l.counts.SpacesRefused++
		return nil, false
	}
	sp := &space{name: name, shard: cluster.Shard(name, cfg.Shards), index: -1, emitted: now}
	sp.store = replication.NewStore(replication.StoreConfig{
		Space: name, Epoch: cfg.Epoch, Tick: cfg.Tick, Limits: cfg.Limits,
	})
	l.spaces[name] = sp
	l.heads.add(sp)
	l.ask(sp)
	return sp, true
}

// emit sends what the store has to say.
func (l *Lane) emit(now time.Time, sp *space) {
	bus, subjects := l.relay.cfg.Bus, l.relay.cfg.Subjects
	for _, out := range sp.store.Advance(now) {
		var m replication.Msg
		switch out.Kind {
		case replication.OutputBatch:
			sp.emitted = now
			l.counts.Batches++
			m = replication.Msg{Subject: subjects.Live(sp.name), Data: out.Data}
		case replication.OutputAnswer:
			m = replication.Msg{Subject: l.reply(out.Answer.Token), Data: payload.AppendAnswer(nil, &out.Answer)}
		case replication.OutputWrite:
			m = replication.Msg{Subject: l.reply(out.Write.Token), Data: replication.AppendWriteResult(nil, out.Write)}
		case replication.OutputEvent:
			m = replication.Msg{Subject: subjects.Event(sp.name), Data: payload.AppendEvent(nil, out.Event)}
		case replication.OutputKick:
			m = replication.Msg{
				Subject: subjects.To(sp.name, out.Client),
				Header:  map[string]string{replication.HeaderControl: replication.ControlKick},
			}
		}
		if m.Subject == "" {
			continue // nobody waits
		}
		if bus.Publish(m) != nil {
			l.counts.Lost++
		}
	}
}

// token remembers who waits for an answer. It is 0 for nobody. Stores bound how
// many wait.
func (l *Lane) token(reply string) uint64 {
	if reply == "" {
		return 0
	}
	l.lastToken++
	l.replies[l.lastToken] = reply
	return l.lastToken
}

// reply returns who waits for the answer with this token.
func (l *Lane) reply(token uint64) string {
	subject := l.replies[token]
	delete(l.replies, token)
	return subject
}
