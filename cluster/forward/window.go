package forward

// windowSize is how far a datagram may be behind the newest of its sender, in
// datagrams of that sender for this receiver. It is a power of two.
const windowSize = 1024

// A window remembers which counters of a sender were accepted, as RFC 6479 does:
// counters far behind the highest are refused, whether they came or not. The zero
// window has seen nothing; counters begin with 1.
type window struct {
	highest uint64
	seen    [windowSize / 64]uint64 // counter mod windowSize
}

// fresh reports whether a counter can be accepted.
func (w *window) fresh(counter uint64) bool {
	if counter > w.highest {
		return true
	}
	if counter == 0 || w.highest-counter >= windowSize {
		return false
	}
	word, bit := place(counter)
	return w.seen[word]&bit == 0
}

// accept notes a counter that is fresh. It is called for what was opened only: else
// anybody could push the window ahead.
func (w *window) accept(counter uint64) {
	if counter > w.highest {
		w.slide(counter)
	}
	word, bit := place(counter)
	w.seen[word] |= bit
}

// slide makes counter the highest and forgets what falls out.
func (w *window) slide(counter uint64) {
	if counter-w.highest >= windowSize {
		clear(w.seen[:])
	} else {
		for c := w.highest + 1; c != counter+1; c++ {
			word, bit := place(c)
			w.seen[word] &^= bit
		}
	}
	w.highest = counter
}

func place(counter uint64) (word int, bit uint64) {
	i := counter % windowSize
	return int(i / 64), 1 << (i % 64)
}
