package relay

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
)

// A relay serves what its loads brought and what it stored since, which is everything that is stored. A fault may make that less: a
// state cannot be read, or a record comes into the stream that no relay wrote. Everybody has to see that. So each worker asks the
// durable store which states of a shard it has, one shard after the other, and compares them with those that it serves and those that it
// removed. A state that is lacking in two lists in a row is not served.

// Times and bounds of comparisons. All are arbitrary. A worker waits between two of them, and the longer the more workers there are, so
// that the durable store does not notice.
const (
	compareFirst = 250 * time.Millisecond // while there are shards that were not compared since this relay holds them
	comparePause = 2 * time.Second        // otherwise
	compareAgain = 5 * time.Second        // before the second list of a shard that lacks states: the first may have been old
	compareStep  = 4096                   // states that are compared in one turn
	removedMax   = 1 << 18                // removed states of a shard that are remembered; a shard with more is not compared

	// compareShare is how many times as long as the store took for a list the next one waits, up to comparePauseMax.
	compareShare    = 50
	comparePauseMax = time.Minute
)

// comparisonPause returns how long a worker of so many with shards waits after a comparison for whose list the store took a time.
func comparisonPause(took time.Duration, workers int, first bool) time.Duration {
	pause := comparePause
	if first {
		pause = compareFirst
	}
	return max(time.Duration(workers)*pause, min(compareShare*took, comparePauseMax))
}

// A storedKey names a state as it is stored.
type storedKey struct {
	space  string
	number uint64
}

func (k storedKey) String() string { return fmt.Sprintf("%s/%d", k.space, k.number) }

// A tally is what one comparison found.
type tally struct {
	stored  int       // states that were not removed
	lacking int       // of those, that this relay does not have
	example storedKey // one of them
}

// A comparison is what an ownership knows of the durable store.
type comparison struct {
	tally              // of the last list
	unserved int       // states that were lacking in the last two lists
	asked    time.Time // when the last list was asked for; zero for never
	lists    uint32    // so far

	// removed are states whose end is stored, with the list that had them last. One that two lists do not have is forgotten: a list
	// in several parts may miss one.
	removed map[storedKey]uint32
	full    bool // there were more
}

// comparisons are the comparisons of a worker's shards, one at a time.
type comparisons struct {
	worker *Worker
	due    time.Time // when the next one begins

	// The one under way; of is nil if there is none.
	of    *ownership
	took  time.Duration // for the list
	found tally

	again *ownership // whose second list is next
}

// noteRemoved notes that the durable store has the end of a state.
func (c *comparisons) noteRemoved(o *ownership, space string, number uint64) {
	known := &o.comparison
	if c.worker.relay.cfg.Stored == nil {
		return
	}
	if known.removed == nil {
		known.removed = make(map[storedKey]uint32)
	}
	if len(known.removed) >= removedMax {
		known.full = true
		return
	}
	known.removed[storedKey{space, number}] = known.lists
}

// advance begins a comparison, if it is time. It returns when it must be called again.
func (c *comparisons) advance(now time.Time) time.Time {
	stored := c.worker.relay.cfg.Stored
	switch {
	case stored == nil || c.of != nil:
		return now.Add(time.Hour)
	case now.Before(c.due):
		return c.due
	}
	o := c.next()
	if o == nil {
		c.due = now.Add(comparePause)
		return c.due
	}
	c.of, c.found, o.comparison.asked = o, tally{}, now
	stored(o.shard, func(list []cluster.Keyframe, err error) {
		c.worker.commands.Put(func(now time.Time) {
			c.took = now.Sub(o.comparison.asked)
			c.compare(now, list, err)
		})
	})
	return now.Add(time.Hour)
}

// next returns the ownership that is to be compared again, or else the one whose comparison was the longest ago; nil if there is none.
func (c *comparisons) next() (o *ownership) {
	for _, x := range c.worker.owned {
		switch {
		case !x.serving || x.comparison.full:
		case x == c.again:
			return x
		case o == nil || x.comparison.asked.Before(o.comparison.asked):
			o = x
		}
	}
	return o
}

// compare compares a list of stored states with what is served, a part of it in each turn.
func (c *comparisons) compare(now time.Time, list []cluster.Keyframe, err error) {
	o := c.of
	held := err == nil && o.serving && c.worker.ownership(o.shard) == o
	if held {
		n := min(len(list), compareStep)
		if c.count(list[:n]); n < len(list) {
			c.worker.commands.Put(func(now time.Time) { c.compare(now, list[n:], nil) })
			return
		}
	}
	second := c.again == o
	c.of, c.again = nil, nil
	if held {
		o.comparison.update(c.found)
		c.worker.counts.Compared++
		c.worker.relay.shards.compare(now, o.shard, o.comparison.unserved, o.comparison.example)
		if o.comparison.lacking > o.comparison.unserved && !second {
			c.again = o
		}
	}
	next := c.next()
	pause := comparisonPause(c.took, min(len(c.worker.relay.workers), c.worker.relay.cfg.Shards), next != nil && next.comparison.asked.IsZero())
	if c.again != nil {
		pause = max(pause, compareAgain)
	}
	c.due = now.Add(pause)
}

// count counts stored states. One that was removed does not count before its end is stored.
func (c *comparisons) count(list []cluster.Keyframe) {
	o, found := c.of, &c.found
	removed := o.comparison.removed
	var ending map[storedKey]bool
	for _, k := range list {
		key, sp := storedKey{k.Space, k.Number}, c.worker.spaces[k.Space]
		if sp != nil && sp.owner == o && sp.store.Has(k.Number) {
			found.stored++
			continue
		}
		if _, ok := removed[key]; ok {
			removed[key] = o.comparison.lists
			continue
		}
		if ending == nil {
			ending = o.ending()
		}
		if !ending[key] {
			found.stored, found.lacking, found.example = found.stored+1, found.lacking+1, key
		}
	}
}

// ending returns the states that were removed, and whose end is not stored yet.
func (o *ownership) ending() map[storedKey]bool {
	all := make(map[storedKey]bool)
	for _, sp := range o.spaces {
		for number := range sp.store.Removed() {
			all[storedKey{sp.name, number}] = true
		}
	}
	for _, st := range o.storing {
		if st.ends {
			all[storedKey{st.space.name, st.number}] = true
		}
	}
	return all
}

// ends returns the numbers of the states that were removed, by space and ascending.
func (c *comparison) ends() map[string][]uint64 {
	all := make(map[string][]uint64)
	for k := range c.removed {
		all[k.space] = append(all[k.space], k.number)
	}
	for _, numbers := range all {
		slices.Sort(numbers)
	}
	return all
}

// update takes what a comparison found.
func (c *comparison) update(found tally) {
	c.unserved = min(c.lacking, found.lacking)
	c.tally = found
	maps.DeleteFunc(c.removed, func(_ storedKey, list uint32) bool { return list+1 < c.lists })
	c.lists++
}
