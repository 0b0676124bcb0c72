package natslease

import (
	"time"

	"github.com/dnprelay/dnprelay/cluster"
)

// storeNext gives the lease the next part to store, if it has none, and refuses
// batches of holdings that ended. A release comes behind the last.
func (s *shard) storeNext(now time.Time) {
	epoch := s.lease.Epoch()
	for len(s.batches) > 0 && s.batches[0].epoch != epoch {
		s.chunk = nil
		s.finish(cluster.ErrNotHeld)
	}
	if len(s.batches) == 0 && s.leaving {
		s.lease.Release(s.to)
	}
	if len(s.batches) == 0 || s.chunk != nil {
		return
	}
	b := s.batches[0]
	if len(b.rest) == 0 {
		s.finish(nil)
		s.storeNext(now)
		return
	}
	if !s.lease.Store(now, s.token+1) {
		return
	}
	s.token++
	n := chunk(b.rest)
	s.chunk, b.rest = b.rest[:n:n], b.rest[n:]
}

// stored takes note that the first chunk is stored.
func (s *shard) stored() {
	s.l.counts.stored.Add(uint64(len(s.chunk)))
	s.chunk = nil
	if len(s.batches[0].rest) == 0 {
		s.finish(nil)
	}
}

func (s *shard) finish(err error) {
	b := s.batches[0]
	s.batches[0] = nil
	s.batches = s.batches[1:]
	s.queued.Add(-int64(b.size))
	b.done(err)
}

// chunk returns how many of the keyframes fit into one atomic batch; at least
// one does.
func chunk(all []cluster.Keyframe) int {
	size := 0
	for i, k := range all {
		size += len(k.Data) + keyframeOverhead
		if i == cluster.BatchKeyframesMax || i > 0 && size > chunkBytesMax {
			return i
		}
	}
	return len(all)
}
