package replication

import "time"

// How much of the past a holder keeps for replicas that missed some of it.
const (
	ringAge   = 4 * time.Second
	ringBytes = 4 << 20
)

// A ring holds the newest batches, one behind the other.
type ring struct {
	batches []kept
	first   int // index of the oldest in batches
	bytes   int
}

type kept struct {
	at   time.Time
	seq  uint64
	data []byte
}

// add keeps a batch and drops those that are too old or too much. The newest
// always stays.
func (r *ring) add(now time.Time, seq uint64, data []byte) {
	r.batches = append(r.batches, kept{now, seq, data})
	r.bytes += len(data)
	last := len(r.batches) - 1
	for r.first < last && (r.bytes > ringBytes || now.Sub(r.batches[r.first].at) > ringAge) {
		r.bytes -= len(r.batches[r.first].data)
		r.batches[r.first] = kept{}
		r.first++
	}
	if r.first > 64 && r.first > len(r.batches)/2 {
		n := copy(r.batches, r.batches[r.first:])
		clear(r.batches[n:])
		r.batches, r.first = r.batches[:n], 0
	}
}

// from returns the batches from seq on, if the ring goes back so far.
func (r *ring) from(seq uint64) ([]kept, bool) {
	all := r.batches[r.first:]
	if len(all) == 0 || seq < all[0].seq {
		return nil, false
	}
	skip := seq - all[0].seq
	if skip > uint64(len(all)) {
		skip = uint64(len(all))
	}
	return all[skip:], true
}
