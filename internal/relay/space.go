package relay

import (
	"container/heap"
	"maps"
	"slices"
	"strings"
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
	used    time.Time // when a message was about it last
	present presence
}

// idleAfter is how long a space must have been empty and unused before another may
// take its place.
const idleAfter = 10 * time.Minute

// validSpace reports whether publishers and clients may have a space of this name.
func validSpace(name string) bool {
	return replication.ValidToken(name) && !strings.HasPrefix(name, "_")
}

// belongs reports whether a message about a space came to the right shard. A node
// with another number of shards would otherwise make a second authority.
func (l *Lane) belongs(space string, shard int) bool {
	return validSpace(space) && cluster.Shard(space, l.relay.cfg.Shards) == shard
}

// space returns the space with this name and makes it if there is room.
func (l *Lane) space(now time.Time, name string) (*space, bool) {
	if sp, ok := l.spaces[name]; ok {
		sp.used = now
		return sp, true
	}
	cfg := &l.relay.cfg
	if len(l.spaces) >= max(1, cfg.Spaces/len(l.relay.lanes)) && !l.makeRoom(now) {
		l.counts.SpacesRefused++
		return nil, false
	}
	sp := &space{name: name, shard: cluster.Shard(name, cfg.Shards), index: -1, emitted: now, used: now}
	sp.present.named = make(map[string]*named)
	sp.store = replication.NewStore(replication.StoreConfig{
		Space: name, Epoch: cfg.Epoch, Tick: cfg.Tick, Limits: cfg.Limits,
	})
	l.spaces[name] = sp
	l.heads.add(sp)
	l.ask(now, sp)
	return sp, true
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
		if now.Sub(sp.used) < idleAfter || sp.store.Stats().States > 0 || len(sp.present.named) > 0 {
			continue
		}
		l.emit(now.Add(l.relay.cfg.Tick), sp)
		if sp.index >= 0 {
			heap.Remove(&l.due, sp.index)
		}
		l.heads.remove(sp)
		delete(l.spaces, name)
	}
	if len(l.spaces) == before {
		return false
	}
	l.fullAt = time.Time{}
	return true
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

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
