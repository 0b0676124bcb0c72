package redisaffinity

import (
	"slices"
	"sync"

	"github.com/dnprelay/dnprelay/cluster"
)

// A poll collects the answers of all servers to one question. It waits for each, because a server that
// was started again answers at once that it knows nothing. A server that is away answers at once, too.
type poll struct {
	answer func(cluster.Served, error)

	mu      sync.Mutex // servers answer on goroutines of their own
	waiting int
	replies []reply
}

// A reply is the answer of one server.
type reply struct {
	found cluster.Served
	err   error
}

func (a *Affinity) poll(answer func(cluster.Served, error)) *poll {
	return &poll{answer: answer, waiting: len(a.servers), replies: make([]reply, len(a.servers))}
}

// add adds the answer of a server.
func (p *poll) add(server int, found cluster.Served, err error) {
	p.mu.Lock()
	p.replies[server] = reply{found, err}
	p.waiting--
	last := p.waiting == 0
	p.mu.Unlock()
	if last {
		p.answer(newest(p.replies))
	}
}

// newest returns the newest claim of several answers; an error only if all are errors. The epoch says
// which claim is newer, and any claim is newer than none, because a server may be empty. The node is alive
// if its lease is in any server. Only those that have the newest claim say who tries to take the session over: the
// others permit it without knowing the claim. Where two nodes have the permission of one server each,
// both learn the same name here.
func newest(replies []reply) (best cluster.Served, err error) {
	err = cluster.ErrAffinityAway
	for _, r := range replies {
		switch {
		case r.err == nil && (err != nil || newer(r.found, best)):
			best, err = r.found, nil
		case r.err != nil && err == cluster.ErrAffinityAway:
			err = r.err
		}
	}
	for _, r := range replies {
		if r.err != nil || r.found.Node != best.Node {
			continue
		}
		best.Alive = best.Alive || r.found.Alive
		if t := r.found.Trying; r.found.Epoch == best.Epoch && t != "" && (best.Trying == "" || t < best.Trying) {
			best.Trying = t
		}
	}
	return best, err
}

func newer(s, than cluster.Served) bool {
	if s.Node == "" || than.Node == "" {
		return s.Node != ""
	}
	return s.Epoch > than.Epoch
}

// A listing passes on each name once, although two servers list it.
type listing struct {
	each func([]string)

	mu     sync.Mutex // servers list on goroutines of their own
	listed map[string]bool
}

func (l *listing) add(names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	names = slices.DeleteFunc(names, func(name string) bool { return l.listed[name] })
	for _, name := range names {
		l.listed[name] = true
	}
	if len(names) > 0 {
		l.each(names)
	}
}
