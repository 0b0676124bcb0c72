package edge

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

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
	shards map[int]*feed
	always []func() // unsubscribe what Run needs

	badHeads atomic.Uint64 // head messages that were malformed
}

// A feed is the workers that follow one space, or spaces of one shard.
type feed struct {
	workers []*Worker // one entry per space followed
	end     []func()  // unsubscribe
}

func newFeeds(e *Edge) *feeds {
	return &feeds{edge: e, spaces: make(map[string]*feed), shards: make(map[int]*feed)}
}

// start subscribes to the answers to repair requests.
func (f *feeds) start() error {
	end, err := f.edge.cfg.Bus.Subscribe(f.edge.inbox+".*.*", f.reply)
	if err != nil {
		return fmt.Errorf("edge: subscribe to answers: %w", err)
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
		fd.close()
	}
	for _, fd := range f.shards {
		fd.close()
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
		f.subscribe(fd, subjects.Live(name), func(m replication.Msg) { f.live(name, m) })
		f.subscribe(fd, subjects.ToAll(name), func(m replication.Msg) { f.toAll(name, m) })
		f.subscribe(fd, subjects.Who(name), func(m replication.Msg) { f.who(name, m) })
	}
	fd.workers = append(fd.workers, s.w)
	sh, ok := f.shards[s.shard]
	if !ok {
		sh = &feed{}
		f.shards[s.shard] = sh
		f.subscribe(sh, subjects.Head(s.shard), f.head)
	}
	sh.workers = append(sh.workers, s.w)
}

// unfollow ends what follow began.
func (f *feeds) unfollow(s *space) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.spaces[s.name].remove(s.w) {
		delete(f.spaces, s.name)
	}
	if f.shards[s.shard].remove(s.w) {
		delete(f.shards, s.shard)
	}
}

// subscribe adds a subscription to fd. Only a closed bus refuses one, and then
// the edge is about to end.
func (f *feeds) subscribe(fd *feed, subject string, handle func(replication.Msg)) {
	end, err := f.edge.cfg.Bus.Subscribe(subject, handle)
	if err != nil {
		f.edge.cfg.Log.Error("subscribe", "subject", subject, "error", err)
		return
	}
	fd.end = append(fd.end, end)
}

// remove takes one entry of w out and reports whether nobody is left; then the
// subscriptions have ended.
func (fd *feed) remove(w *Worker) bool {
	if i := slices.Index(fd.workers, w); i >= 0 {
		fd.workers = slices.Delete(slices.Clone(fd.workers), i, i+1) // others may be reading the old list
	}
	if len(fd.workers) > 0 {
		return false
	}
	fd.close()
	return true
}

func (fd *feed) close() {
	for _, end := range fd.end {
		end()
	}
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

func (f *feeds) live(name string, m replication.Msg) {
	for _, w := range f.followers(name) {
		w.post(len(m.Data), func(w *Worker, now time.Time) { w.live(now, name, m.Data) })
	}
}

func (f *feeds) toAll(name string, m replication.Msg) {
	for _, w := range f.followers(name) {
		w.post(len(m.Data), func(w *Worker, _ time.Time) { w.deliverAll(name, m) })
	}
}

// head tells the workers how far the spaces of a shard are.
func (f *feeds) head(m replication.Msg) {
	err := replication.ParseHead(m.Data, func(epoch uint64, space []byte, seq uint64) {
		name := string(space)
		for _, w := range f.followers(name) {
			w.post(0, func(w *Worker, now time.Time) {
				if s, ok := w.spaces[name]; ok {
					s.replica.ApplyHead(now, epoch, seq)
				}
			})
		}
	})
	if err != nil {
		f.badHeads.Add(1)
	}
}

// repair sends a replica's request. Answers come to this worker and space.
func (f *feeds) repair(s *space, request []byte) {
	m := replication.Msg{
		Subject: f.edge.cfg.Subjects.Repair(s.shard),
		Reply:   fmt.Sprintf("%s.%d.%s", f.edge.inbox, s.w.index, s.name),
		Data:    request,
	}
	if f.edge.cfg.Bus.Publish(m) != nil {
		s.w.counts.RepairsLost++ // the replica asks again
	}
}

// reply takes an answer to a repair request.
func (f *feeds) reply(m replication.Msg) {
	if m.Header[replication.HeaderStatus] == replication.StatusNoResponders {
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
	end, err := f.edge.cfg.Bus.Subscribe(f.edge.cfg.Subjects.To(s.space.name, s.client), func(m replication.Msg) {
		w.post(len(m.Data), func(*Worker, time.Time) {
			if s.conn.Data() == s {
				s.told(m)
			}
		})
	})
	if err != nil {
		return func() {}
	}
	return end
}
