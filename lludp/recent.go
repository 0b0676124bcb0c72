package lludp

import "github.com/dnprelay/dnprelay/lludp/wire"

// A recent remembers the last sequence numbers that came. They are of 32 bits, may
// wrap anywhere, and a forged one may lie anywhere, so it is a set of numbers and
// not a window of them.
type recent struct {
	seqs  []wire.Seq // a ring
	next  []uint16   // 1 + the place in the ring of the one before with the same head; 0 = none
	heads []uint16   // 1 + the place of the newest, by the low bits of the number
	at    int        // where the next one goes
	full  bool
}

// add notes s and reports whether it was not remembered. size, a power of 2, is
// how many are.
func (r *recent) add(s wire.Seq, size int) bool {
	if r.seqs == nil {
		r.seqs, r.next, r.heads = make([]wire.Seq, size), make([]uint16, size), make([]uint16, size)
	}
	head := &r.heads[int(s)&(size-1)]
	for i := *head; i != 0; i = r.next[i-1] {
		if r.seqs[i-1] == s {
			return false
		}
	}
	if r.full {
		r.forget()
	}
	r.seqs[r.at], r.next[r.at] = s, *head
	*head = uint16(r.at + 1)
	if r.at++; r.at == size {
		r.at, r.full = 0, true
	}
	return true
}

// forget removes the oldest, which is the last of its chain.
func (r *recent) forget() {
	oldest := uint16(r.at + 1)
	link := &r.heads[int(r.seqs[r.at])&(len(r.seqs)-1)]
	for *link != oldest {
		link = &r.next[*link-1]
	}
	*link = 0
}
