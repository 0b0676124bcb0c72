package replication

import "github.com/dnprelay/dnprelay/replication/view"

// A refAllocator gives each view its RefId. It never gives one twice unless it
// was freed.
type refAllocator struct {
	live int // views of states that exist, introduced or not
	last view.RefID
	free []view.RefID
}

// take returns a RefId. The limit of views keeps it from running out.
func (a *refAllocator) take() view.RefID {
	if n := len(a.free); n > 0 {
		ref := a.free[n-1]
		a.free = a.free[:n-1]
		return ref
	}
	if a.last++; a.last == view.NoRef {
		panic("replication: more views than RefIds, although their number is limited")
	}
	return a.last
}

func (a *refAllocator) give(refs []view.RefID) { a.free = append(a.free, refs...) }
