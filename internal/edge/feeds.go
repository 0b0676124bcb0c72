package edge

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/replication"
)

// feeds bring bus messages to the workers that need them: one subscription per
// space and edge, whatever the number of workers and clients. The bytes of a
// batch are shared by the workers and never changed.
//
// The mutex guards who follows what. Workers change it when a space gets its
// first client or loses its last, and the bus asks it for every message, from
// its own goroutines, so no worker can own it.
type feeds struct {
	edge *Edge

	mu     sync.RWMutex
	spaces map[string]*feed
	shards map[int]*shardFeed
	always []func() // unsubscribe what Run needs

	badHeads atomic.Uint64 // head messages that were malformed
}

// A feed is the workers that follow one space.
type feed struct {
	workers []*Worker
	end     []func() // unsubscribe
}

// A shardFeed is the spaces of one shard that are followed.
type shardFeed struct {
	names []string // in the order of their coming
	end   []func()
}

func newFeeds(e *Edge) *feeds {
	return &feeds{edge: e, spaces: make(map[string]*feed), shards: make(map[int]*shardFeed)}
}

// start subscribes to the answers to repair requests.
func (f *feeds) start() error {
	end, err := f.edge.cfg.Bus.Subscribe(f.edge.inbox+".*.*", f.reply)
	if err != nil {
		return fmt.Errorf("edge: subscribe to answers: %w", err)
	}
	f.always = append(f.always, end)
	if f.edge.cfg.Durable == nil {
		return nil
	}
	if end, err = f.edge.cfg.Bus.Subscribe(f.edge.cfg.Subjects.Edge(f.edge.cfg.Node), f.edge.asked); err != nil {
		return fmt.Errorf("edge: subscribe to other edges: %w", err)
	}
	f.always = append(f.always, end)
	return nil
}

// stop ends all subscriptions.
func (f *feeds) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, end := range f.always {
		end()
	}
	for _, fd := range f.spaces {
		all(fd.end)
	}
	for _, sh := range f.shards {
		all(sh.end)
	}
}

// follow makes a worker get all that concerns a space.
func (f *feeds) follow(s *space) {
	f.mu.Lock()
	defer f.mu.Unlock()
	subjects := f.edge.cfg.Subjects
	fd, ok := f.spaces[s.name]
	if !ok {
		fd = &feed{}
		f.spaces[s.name] = fd
		name := s.name
		f.subscribe(&fd.end, subjects.Live(name), func(m bus.Msg) { f.live(name, m) })
		f.subscribe(&fd.end, subjects.ToAll(name), func(m bus.Msg) { f.toAll(name, m) })
		f.subscribe(&fd.end, subjects.Who(name), func(m bus.Msg) { f.who(name, m) })
		f.followShard(s)
	}
	fd.workers = append(fd.workers, s.w)
}

// followShard makes the heads of a space's shard known to it.
func (f *feeds) followShard(s *space) {
	sh, ok := f.shards[s.shard]
	if !ok {
		sh = &shardFeed{}
		f.shards[s.shard] = sh
		shard := s.shard
		f.subscribe(&sh.end, f.edge.cfg.Subjects.Head(shard), func(m bus.Msg) { f.head(shard, m) })
	}
	sh.names = append(sh.names, s.name)
}

// unfollow ends what follow began.
func (f *feeds) unfollow(s *space) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fd, sh := f.spaces[s.name], f.shards[s.shard]
	fd.workers = without(fd.workers, s.w)
	if len(fd.workers) > 0 {
		return
	}
	all(fd.end)
	delete(f.spaces, s.name)
	sh.names = without(sh.names, s.name)
	if len(sh.names) == 0 {
		all(sh.end)
		delete(f.shards, s.shard)
	}
}

// without returns a list that lacks x. The old list stays as it is, because others
// may be reading it.
func without[T comparable](list []T, x T) []T {
	return slices.DeleteFunc(slices.Clone(list), func(y T) bool { return y == x })
}

func all(list []func()) {
	for _, f := range list {
		f()
	}
}

// subscribe adds a subscription. Only a closed bus refuses one, and then
// the edge is about to end.
func (f *feeds) subscribe(ends *[]func(), subject string, handle func(bus.Msg)) {
	end, err := f.edge.cfg.Bus.Subscribe(subject, handle)
	if err != nil {
		f.edge.cfg.Log.Error("subscribe", "subject", subject, "error", err)
		return
	}
	*ends = append(*ends, end)
}

// followers returns the workers that follow a space.
func (f *feeds) followers(name string) []*Worker {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if fd, ok := f.spaces[name]; ok {
		return fd.workers
	}
	return nil
}

// live passes a batch on to the workers that follow the space.
func (f *feeds) live(name string, m bus.Msg) {
	for _, w := range f.followers(name) {
		w.post(len(m.Data), func(w *Worker, now time.Time) { w.live(now, name, m.Data) })
	}
}

func (f *feeds) toAll(name string, m bus.Msg) {
	for _, w := range f.followers(name) {
		w.post(len(m.Data), func(w *Worker, _ time.Time) { w.deliverAll(name, m) })
	}
}

// head tells the workers how far the spaces of a shard are. One that the head does
// not name is told the epoch, because a new holder may not know the space.
func (f *feeds) head(shard int, m bus.Msg) {
	f.mu.RLock()
	var names []string
	if sh, ok := f.shards[shard]; ok {
		names = sh.names
	}
	f.mu.RUnlock()
	epoch, ok := replication.HeadEpoch(m.Data)
	seqs := make(map[string]uint64, len(names))
	err := replication.ParseHead(m.Data, func(_ uint64, space []byte, seq uint64) { seqs[string(space)] = seq })
	if !ok || err != nil {
		f.badHeads.Add(1)
		return
	}
	for _, name := range names {
		for _, w := range f.followers(name) {
			w.post(0, func(w *Worker, now time.Time) {
				if s, ok := w.spaces[name]; ok {
					s.replica.ApplyHead(now, epoch, seqs[name])
				}
			})
		}
	}
}

// repair sends a replica's request. Answers come to this worker and space.
func (f *feeds) repair(s *space, request []byte) {
	m := bus.Msg{
		Subject: f.edge.cfg.Subjects.Repair(s.shard),
		Reply:   fmt.Sprintf("%s.%d.%s", f.edge.inbox, s.w.index, s.name),
		Data:    request,
	}
	if f.edge.cfg.Bus.Publish(m) != nil {
		s.w.counts.RepairsLost++ // the replica asks again
	}
}

// reply takes an answer to a repair request.
func (f *feeds) reply(m bus.Msg) {
	if m.Header[bus.HeaderStatus] == bus.StatusNoResponders {
		return
	}
	rest := strings.TrimPrefix(m.Subject, f.edge.inbox+".")
	number, name, _ := strings.Cut(rest, ".")
	index, err := strconv.Atoi(number)
	if err != nil || index < 0 || index >= len(f.edge.workers) {
		return // not a subject that repair made
	}
	f.edge.workers[index].post(len(m.Data), func(w *Worker, now time.Time) {
		if s, ok := w.spaces[name]; ok {
			s.replica.ApplyReply(now, m.Data)
		}
	})
}

// client subscribes to the messages for one client. "No responders" therefore
// means that it is not connected.
func (f *feeds) client(s *session) (end func()) {
	w := s.space.w
	end, err := f.edge.cfg.Bus.SubscribeShared(f.edge.cfg.Subjects.To(s.space.name, s.client), func(m bus.Msg) {
		w.post(len(m.Data), func(_ *Worker, now time.Time) {
			if s.conn.Data() == s {
				s.told(now, m)
			}
		})
	})
	if err != nil {
		return func() {}
	}
	return end
}
