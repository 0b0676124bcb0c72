package edge

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/subject"
)

// A session is handed over only to an edge that has the states of its space: until such an
// edge has them it claims nothing, and the session has no owner meanwhile. So an edge that
// drains asks the others to prepare, and those that say that they did are its heirs.

// Times of an edge that drains.
const (
	prepareTime  = 100 * time.Millisecond // for the others to answer before the first session goes, so that all get their part
	preparedTime = 10 * time.Second       // for which an answer holds; spaces without sessions are followed for longer
	heirPause    = time.Second            // before an edge that refused is asked again, or given anything
)

// An heir is an edge to which sessions may be handed over, if it is prepared.
type heir struct {
	asking bool
	until  time.Time // for how long it is prepared
	again  time.Time // when it may be asked again
}

// prepareHeirs asks the edges that work to follow the spaces of this worker, unless they
// said lately that they do.
func (k *keeper) prepareHeirs(now time.Time) {
	d := &k.drain
	spaces := k.w.spaces.Names()
	if slices.ContainsFunc(spaces, func(name string) bool { return !slices.Contains(d.spaces, name) }) {
		d.heirs = make(map[string]*heir) // what they said was about others
	}
	d.spaces = spaces
	nodes := k.w.edge.roster.heirs()
	maps.DeleteFunc(d.heirs, func(node string, _ *heir) bool { return !slices.Contains(nodes, node) })
	for _, node := range nodes {
		h := d.heirs[node]
		if h == nil {
			h = &heir{}
			d.heirs[node] = h
		}
		if !h.asking && !h.again.After(now) {
			h.asking = true
			k.ask(node, edgeRequest{Prepare: spaces}, func(now time.Time, err error) { k.prepared(now, h, err) })
		}
	}
}

// prepared takes the answer of an edge.
func (k *keeper) prepared(now time.Time, h *heir, err error) {
	h.asking = false
	if err != nil {
		h.fail(now)
		return
	}
	h.until, h.again = now.Add(preparedTime), now.Add(preparedTime/2)
	if d := &k.drain; len(d.queue) == 0 && now.After(d.begin) {
		d.look = now
	}
}

// fail says that an edge does not take what it is given.
func (h *heir) fail(now time.Time) { h.until, h.again = time.Time{}, now.Add(heirPause) }

// heir returns which of the edges that are prepared should have a session; empty for none.
func (k *keeper) heir(now time.Time, name string) string {
	nodes := slices.DeleteFunc(k.w.edge.roster.heirs(), func(node string) bool {
		h := k.drain.heirs[node]
		return h == nil || !h.until.After(now)
	})
	return cluster.Choose(name, nodes)
}

// Bounds of an edge that is asked to prepare. It refuses before the other stops to wait.
const (
	prepareMost    = adoptAnswer * 3 / 4
	preparationMax = 256 // requests that wait, per worker
)

// A preparation is spaces whose states a worker is asked to have.
type preparation struct {
	spaces []string
	until  time.Time
	asker  *asker
}

// An asker waits for all workers.
type asker struct {
	left    atomic.Int32
	refused atomic.Bool
	edge    *Edge
	reply   string
}

// hear takes the word of a worker.
func (a *asker) hear(ok bool) {
	if !ok {
		a.refused.Store(true)
	}
	switch {
	case a.left.Add(-1) > 0:
	case a.refused.Load():
		a.edge.reply(a.reply, answerRefused)
	default:
		a.edge.reply(a.reply, answerDone)
	}
}

// prepare has every worker follow spaces, and answers when all have their states.
func (e *Edge) prepare(names []string, reply string) {
	names = slices.DeleteFunc(names, func(name string) bool { return !subject.ValidToken(name) })
	a := &asker{edge: e, reply: reply}
	a.left.Store(int32(len(e.workers)))
	for _, w := range e.workers {
		if !w.post(0, func(w *Worker, now time.Time) { w.prepare(now, names, a) }) {
			a.hear(false)
		}
	}
}

func (w *Worker) prepare(now time.Time, names []string, a *asker) {
	k := w.keeper
	if k == nil || len(k.preparing) >= preparationMax {
		a.hear(false)
		return
	}
	for _, name := range names {
		w.spaces.Follow(now, name)
	}
	k.preparing = append(k.preparing, preparation{names, now.Add(prepareMost), a})
}

// advancePreparing answers those whose spaces are there, or took too long, and returns
// when there is more to do.
func (k *keeper) advancePreparing(now, next time.Time) time.Time {
	k.preparing = slices.DeleteFunc(k.preparing, func(p preparation) bool {
		missing := slices.ContainsFunc(p.spaces, func(name string) bool { return !k.w.spaces.Follow(now, name).Complete() })
		if missing && now.Before(p.until) {
			next = earlier(next, p.until)
			return false
		}
		p.asker.hear(!missing)
		return true
	})
	return next
}
