package edge

import (
	"hash/fnv"
	"net/netip"
	"sync"
)

// A directory says which worker has the session of a client, for datagrams that come to
// another one. Only they ask, so what most datagrams meet has no lock.
//
// The mutex is there because workers write and all of them, and other edges, read.
type directory struct {
	mu      sync.RWMutex
	workers map[place]located // as many as there are sessions
}

// A located is the worker that has a session, or is about to take it over: then the epoch
// is 0.
type located struct {
	worker *Worker
	epoch  uint64
}

// A place is a client and the port that it talks to: what names a session.
type place struct {
	client   netip.AddrPort
	listener uint16
}

func (d *directory) enter(p place, w *Worker) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.workers == nil {
		d.workers = make(map[place]located)
	}
	if d.workers[p].epoch == 0 { // another worker may have what this one only wants
		d.workers[p] = located{worker: w}
	}
}

// own notes in which epoch w has the session, unless another worker has it in a later one.
func (d *directory) own(p place, w *Worker, epoch uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if l := d.workers[p]; l.worker == w || epoch > l.epoch {
		d.workers[p] = located{w, epoch}
	}
}

// leave forgets that w has the session, unless another worker took it since.
func (d *directory) leave(p place, w *Worker) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.workers[p].worker == w {
		delete(d.workers, p)
	}
}

func (d *directory) worker(p place) *Worker { return d.locate(p).worker }

func (d *directory) locate(p place) located {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.workers[p]
}

// workerFor returns the worker that has the session of a client, or else one that may
// take it; nil if there is no such listener.
func (e *Edge) workerFor(listener uint16, client netip.AddrPort) *Worker {
	if w := e.directory.worker(place{client, listener}); w != nil {
		return w
	}
	h := fnv.New32a()
	b, _ := client.MarshalBinary() // it has no error
	h.Write(b)
	return e.workerOf(listener, h.Sum32())
}

// workerOf returns one of the workers of a listener, the same for the same number.
func (e *Edge) workerOf(listener uint16, number uint32) *Worker {
	var all []*Worker
	for _, w := range e.workers {
		if w.listener == listener {
			all = append(all, w)
		}
	}
	if len(all) == 0 {
		return nil
	}
	return all[number%uint32(len(all))]
}
