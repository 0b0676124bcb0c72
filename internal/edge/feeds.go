package edge

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/internal/edge/fanout"
	"github.com/dnprelay/dnprelay/internal/telemetry"
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
func (f *feeds) follow(w *Worker, name string, shard int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	subjects := f.edge.cfg.Subjects
	fd, ok := f.spaces[name]
	if !ok {
		fd = &feed{}
		f.spaces[name] = fd
		f.subscribe(&fd.end, subjects.Live(name), func(m bus.Msg) { f.live(name, m) })
		f.subscribe(&fd.end, subjects.ToAll(name), func(m bus.Msg) { f.toAll(name, m) })
		f.subscribe(&fd.end, subjects.Who(name), func(m bus.Msg) { f.who(name, m) })
		f.followShard(name, shard)
	}
	fd.workers = append(fd.workers, w)
}

// followShard makes the heads of a space's shard known to it.
func (f *feeds) followShard(name string, shard int) {
	sh, ok := f.shards[shard]
	if !ok {
		sh = &shardFeed{}
		f.shards[shard] = sh
		f.subscribe(&sh.end, f.edge.cfg.Subjects.Head(shard), func(m bus.Msg) { f.head(shard, m) })
	}
	sh.names = append(sh.names, name)
}

// unfollow ends what follow began.
func (f *feeds) unfollow(w *Worker, name string, shard int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fd, sh := f.spaces[name], f.shards[shard]
	fd.workers = without(fd.workers, w)
	if len(fd.workers) > 0 {
		return
	}
	all(fd.end)
	delete(f.spaces, name)
	sh.names = without(sh.names, name)
	if len(sh.names) == 0 {
		all(sh.end)
		delete(f.shards, shard)
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
		w.post(len(m.Data), func(w *Worker, _ time.Time) { w.spaces.SendToAll(name, m) })
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
				if r := w.spaces.Replica(name); r != nil {
					r.ApplyHead(now, epoch, seqs[name])
				}
			})
		}
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
		if r := w.spaces.Replica(name); r != nil {
			r.ApplyReply(now, m.Data)
		}
	})
}

// A whoAnswer is one edge's answer.
type whoAnswer struct {
	Edge    string            `json:"edge"`
	Space   string            `json:"space"`
	Clients []fanout.Presence `json:"clients"`
}

// presencesMax is how many sessions one answer names. An edge with more sends
// several, because a message of NATS has at most 1 MiB.
const presencesMax = 4096

// who answers who is in a space. The question goes from worker to worker, and
// the last one answers for the edge.
func (f *feeds) who(name string, m bus.Msg) {
	if m.Reply == "" {
		return
	}
	f.ask(f.followers(name), m.Reply, whoAnswer{Edge: f.edge.cfg.Node, Space: name, Clients: []fanout.Presence{}})
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
		data, err := json.Marshal(a)
		if err != nil {
			panic("edge: an answer that JSON cannot express: " + err.Error())
		}
		_ = f.edge.cfg.Bus.Publish(bus.Msg{Subject: reply, Data: data}) // whoever asks hears from the others
		if len(all) == 0 {
			return
		}
	}
}

// A fanoutHost is a worker as its spaces see it.
type fanoutHost struct{ w *Worker }

// Publish implements fanout.Host.
func (h fanoutHost) Publish(m bus.Msg) error { return h.w.edge.cfg.Bus.Publish(m) }

// Request implements fanout.Host.
func (h fanoutHost) Request(m bus.Msg, wait time.Duration, done func(now time.Time, answer []byte, err error)) {
	h.w.edge.cfg.Bus.Request(m, wait, func(answer bus.Msg, err error) {
		h.w.post(len(answer.Data), func(_ *Worker, now time.Time) { done(now, answer.Data, err) })
	})
}

// Subscribe implements fanout.Host. "No responders" means that the client is not connected,
// because each session has a subscription of its own.
func (h fanoutHost) Subscribe(subject string, handle func(now time.Time, m bus.Msg)) (end func()) {
	end, err := h.w.edge.cfg.Bus.SubscribeShared(subject, func(m bus.Msg) {
		h.w.post(len(m.Data), func(_ *Worker, now time.Time) { handle(now, m) })
	})
	if err != nil {
		return func() {} // only a closed bus refuses, and then the edge is about to end
	}
	return end
}

// Follow implements fanout.Host.
func (h fanoutHost) Follow(space string, shard int) { h.w.edge.feeds.follow(h.w, space, shard) }

// Unfollow implements fanout.Host.
func (h fanoutHost) Unfollow(space string, shard int) {
	h.w.edge.feeds.unfollow(h.w, space, shard)
	telemetry.Sum(&h.w.past, h.w.spaces.Replica(space).Stats())
}
