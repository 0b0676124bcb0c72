package edge

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/internal/edge/fanout"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/replication"
)

// Feeds bring bus messages to the workers that need them: an edge has one subscription per
// space, whatever the number of workers and clients. The workers share the bytes of a batch,
// which are never changed.
//
// The mutex guards which worker follows which space. Workers change that when a space gets
// its first client or loses its last one, and the goroutines of the bus read it for every
// message, so no worker can own it.
type feeds struct {
	node  *node
	inbox string // subject below which the edge receives answers

	mu     sync.RWMutex
	spaces map[string]*feed[*Worker]
	shards map[int]*feed[string] // to the spaces of the shard
	end    []func()              // unsubscribe what every edge needs

	badHeads atomic.Uint64 // head messages that were malformed
}

// A feed is one or more subscriptions, and what follows them in the order in which it began.
type feed[T comparable] struct {
	followers []T
	end       []func() // unsubscribe
}

// leave removes a follower. If none is left, it unsubscribes and reports true. The old list of
// followers does not change, because other goroutines may be reading it.
func (f *feed[T]) leave(x T) (over bool) {
	f.followers = slices.DeleteFunc(slices.Clone(f.followers), func(y T) bool { return y == x })
	if over = len(f.followers) == 0; over {
		all(f.end)
	}
	return over
}

func newFeeds(n *node, inbox string) *feeds {
	return &feeds{node: n, inbox: inbox, spaces: make(map[string]*feed[*Worker]), shards: make(map[int]*feed[string])}
}

// always subscribes to what the edge needs until stop.
func (f *feeds) always(subject string, handle func(bus.Msg)) error {
	end, err := f.node.cfg.Bus.Subscribe(subject, handle)
	if err == nil {
		f.end = append(f.end, end)
	}
	return err
}

func (f *feeds) stop() {
	f.mu.Lock()
	defer f.mu.Unlock()
	all(f.end)
	for _, fd := range f.spaces {
		all(fd.end)
	}
	for _, sh := range f.shards {
		all(sh.end)
	}
}

// follow brings all messages about a space, and the heads of its shard, to a worker.
func (f *feeds) follow(w *Worker, name string, shard int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	subjects := f.node.cfg.Subjects
	fd, ok := f.spaces[name]
	if !ok {
		fd = &feed[*Worker]{}
		f.spaces[name] = fd
		f.subscribe(&fd.end, subjects.Live(name), func(m bus.Msg) { f.live(name, m) })
		f.subscribe(&fd.end, subjects.ToAll(name), func(m bus.Msg) { f.toAll(name, m) })
		f.subscribe(&fd.end, subjects.Who(name), func(m bus.Msg) { f.who(name, m) })
		sh, ok := f.shards[shard]
		if !ok {
			sh = &feed[string]{}
			f.shards[shard] = sh
			f.subscribe(&sh.end, subjects.Head(shard), func(m bus.Msg) { f.head(shard, m) })
		}
		sh.followers = append(sh.followers, name)
	}
	fd.followers = append(fd.followers, w)
}

func (f *feeds) unfollow(w *Worker, name string, shard int) {
	f.node.repairs.leave(w, name)
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.spaces[name].leave(w) {
		return
	}
	delete(f.spaces, name)
	if f.shards[shard].leave(name) {
		delete(f.shards, shard)
	}
}

func all(list []func()) {
	for _, f := range list {
		f()
	}
}

// subscribe adds a subscription. Only a closed bus refuses it, and then the edge is about to
// end.
func (f *feeds) subscribe(ends *[]func(), subject string, handle func(bus.Msg)) {
	end, err := f.node.cfg.Bus.Subscribe(subject, handle)
	if err != nil {
		f.node.cfg.Log.Error("missing messages: the bus refuses a subscription", "subject", subject, "error", err)
		return
	}
	*ends = append(*ends, end)
}

func (f *feeds) followers(name string) []*Worker {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if fd, ok := f.spaces[name]; ok {
		return fd.followers
	}
	return nil
}

// count returns how many spaces the edge follows.
func (f *feeds) count() int {
	f.mu.RLock()
	defer f.mu.RUnlock()
	return len(f.spaces)
}

func (f *feeds) live(name string, m bus.Msg) {
	for _, w := range f.followers(name) {
		w.post(len(m.Data), func(w *Worker, now time.Time) { w.live(now, name, m.Data) })
	}
}

func (f *feeds) toAll(name string, m bus.Msg) {
	for _, w := range f.followers(name) {
		w.post(len(m.Data), func(w *Worker, _ time.Time) { w.spaces.SendToAll(name, m) })
	}
}

// head tells the workers how far the spaces of a shard are. A space that the head does not
// name still hears the epoch, because a new holder may not know the space.
func (f *feeds) head(shard int, m bus.Msg) {
	f.mu.RLock()
	var names []string
	if sh, ok := f.shards[shard]; ok {
		names = sh.followers
	}
	f.mu.RUnlock()
	epoch, seqs, err := replication.ParseHead(m.Data)
	if err != nil {
		f.badHeads.Add(1)
		return
	}
	for _, name := range names {
		for _, w := range f.followers(name) {
			w.post(0, func(w *Worker, now time.Time) {
				w.spaces.ApplyHead(now, name, epoch, seqs[name])
			})
		}
	}
}

// reply passes the answer to a repair request on to the workers that asked.
func (f *feeds) reply(m bus.Msg) {
	if m.NoResponders() {
		return
	}
	token, name, _ := strings.Cut(strings.TrimPrefix(m.Subject, f.inbox+"."), ".")
	if token == repairToken {
		f.node.repairs.reply(name, m.Data)
	}
}

// A whoAnswer is the answer of one edge to the question which clients are in a space.
type whoAnswer struct {
	Edge    string            `json:"edge"`
	Space   string            `json:"space"`
	Clients []fanout.Presence `json:"clients"`
}

// presencesMax is how many sessions one answer names. An edge with more sends several
// answers, because a message of NATS has at most 1 MiB.
const presencesMax = 4096

// who answers which clients are in a space. The question passes from worker to worker, and
// the last one answers for the edge.
func (f *feeds) who(name string, m bus.Msg) {
	if m.Reply == "" {
		return
	}
	f.ask(f.followers(name), m.Reply, whoAnswer{Edge: f.node.cfg.Node, Space: name, Clients: []fanout.Presence{}})
}

func (f *feeds) ask(workers []*Worker, reply string, a whoAnswer) {
	if len(workers) == 0 {
		f.answer(reply, a)
		return
	}
	workers[0].post(0, func(w *Worker, _ time.Time) {
		a.Clients = append(a.Clients, w.spaces.Presences(a.Space)...)
		f.ask(workers[1:], reply, a)
	})
}

func (f *feeds) answer(reply string, a whoAnswer) {
	all := a.Clients
	for {
		n := min(len(all), presencesMax)
		a.Clients, all = all[:n], all[n:]
		_ = f.node.cfg.Bus.Publish(bus.JSON(reply, a)) // the relay asks again
		if len(all) == 0 {
			return
		}
	}
}

// A requester sends requests of a worker. Its method is one of fanout.Host and login.Host.
type requester struct{ w *Worker }

func (r requester) Request(m bus.Msg, wait time.Duration, done func(now time.Time, answer bus.Msg, err error)) {
	r.w.node.cfg.Bus.Request(m, wait, func(answer bus.Msg, err error) {
		r.w.post(len(answer.Data), func(_ *Worker, now time.Time) { done(now, answer, err) })
	})
}

// A fanoutHost is a worker as its spaces see it. Its methods implement fanout.Host.
type fanoutHost struct {
	requester
	feeds *feeds
}

func (h fanoutHost) Publish(m bus.Msg) error { return h.w.node.cfg.Bus.Publish(m) }

// Subscribe makes a subscription. "No responders" means that the client is not connected,
// because each session has a subscription of its own.
func (h fanoutHost) Subscribe(subject string, handle func(now time.Time, m bus.Msg)) (end func()) {
	end, err := h.w.node.cfg.Bus.SubscribeShared(subject, func(m bus.Msg) {
		h.w.post(len(m.Data), func(_ *Worker, now time.Time) { handle(now, m) })
	})
	if err != nil {
		return func() {} // only a closed bus refuses, and then the edge is about to end
	}
	return end
}

func (h fanoutHost) Repair(now time.Time, space string, shard int, request []byte) (replication.Asked, error) {
	return h.w.node.repairs.ask(now, h.w, space, shard, request)
}

func (h fanoutHost) Follow(space string, shard int) { h.feeds.follow(h.w, space, shard) }

func (h fanoutHost) Unfollow(space string, shard int) {
	h.feeds.unfollow(h.w, space, shard)
	telemetry.Sum(&h.w.past, h.w.spaces.Replica(space).Stats())
}
