package carrier

import "time"

// Buffers on the way to a client (of the socket, of proxies, of the browser) take many seconds of what a slow path carries, and nothing
// in them can be replaced by newer values. TCP does not tell: a proxy acknowledges what it only keeps. So the client itself
// confirms marks, and a flow allows as many bytes on their way as the path carries in its shortest time and wayTarget more.
const (
	// wayTarget is how much longer than the shortest time what is sent may take.
	wayTarget = 100 * time.Millisecond

	// The window begins with windowFirst, because a client that connects gets everything, and has these bounds. One that
	// is used up, while nothing waits on the way, doubles.
	windowMin   = 2 << 10
	windowFirst = 16 << 10
	windowMax   = 256 << 10

	// marksPerWindow is how many marks the bytes of a window have: few, because the edge pays for each answer. Where a window takes
	// longer to fill, each markPause has a mark, once windowMin is on its way: a path that becomes slow has to show it before it has
	// a whole window to carry.
	marksPerWindow = 2
	markPause      = 200 * time.Millisecond

	// gentleGrowth is the part by which the window grows in the probePause after a queue, in place of doubling: the window is close to
	// what the path carries, and twice as much waits for as long as the path is.
	gentleGrowth = 4

	// probePause is how long the shortest time counts on a way where everything takes longer. Then the window is
	// as small as it can be for one mark, which shows how short the way is without a queue, as BBR does it.
	probePause = 10 * time.Second
)

// A flow finds out how many bytes may be on their way to a client. The zero flow allows any number.
type flow struct {
	window  int           // bytes that may be on their way; 0 is no bound
	way     int           // bytes on their way, as far as the client has not confirmed them
	mark    uint32        // the latest mark
	marked  int           // bytes on their way when the mark was set; 0 if it was confirmed
	at      time.Time     // when it was set
	least   time.Duration // the shortest time from a mark to its confirmation; 0 before the first
	leastAt time.Time     // when least was found
	calm    bool          // nothing waited before the mark that was confirmed last
	queued  time.Time     // when a confirmation told of a queue
	limited bool          // the window was used up since the last mark was confirmed
	probing bool          // the window is windowMin until the next mark tells the shortest time
}

// bound returns how many bytes may be on their way.
func (f *flow) bound() int {
	if f.probing {
		return min(windowMin, f.window)
	}
	return f.window
}

// sent notes bytes that are on their way from now on.
func (f *flow) sent(bytes int) { f.way += bytes }

// full reports whether no more may be on its way: the window is used up, or a confirmation is overdue, which tells of a queue
// earlier than its arrival does.
func (f *flow) full(now time.Time) bool {
	if f.window == 0 || f.way < f.bound() && !f.overdue(now) {
		return false
	}
	f.limited = true
	return true
}

func (f *flow) overdue(now time.Time) bool {
	return f.marked > 0 && f.least > 0 && f.way >= windowMin && now.Sub(f.at) > f.least+wayTarget
}

// room returns how many more bytes may be on their way; a negative number is no bound. Where nothing waits, there is none,
// because the window grows when it is used up.
func (f *flow) room() int {
	if f.window == 0 || f.window >= windowFirst && f.calm {
		return -1
	}
	return max(0, f.bound()-f.way)
}

// due reports whether it is time for a mark. The first one comes early, before there is a queue.
func (f *flow) due(now time.Time) bool {
	if f.window == 0 || f.marked > 0 || f.way == 0 {
		return false
	}
	return f.least == 0 || f.way >= f.bound()/marksPerWindow || f.way >= windowMin && now.Sub(f.at) >= markPause
}

// set returns a mark, behind everything that was sent.
func (f *flow) set(now time.Time) uint32 {
	f.mark++
	f.marked, f.at = f.way, now
	return f.mark
}

// confirmed notes that a mark came to the client, and everything before it. It reports whether it is the one that was set.
func (f *flow) confirmed(mark uint32, now time.Time) bool {
	if f.marked == 0 || mark != f.mark {
		return false
	}
	took, bytes := max(now.Sub(f.at), 1), f.marked
	f.way, f.marked = f.way-bytes, 0
	if f.least == 0 || took <= f.least || f.probing && bytes <= 2*windowMin {
		f.least, f.leastAt, f.probing = took, now, false
	}
	queue := took - f.least
	f.calm = queue < wayTarget/2
	switch {
	case queue > wayTarget:
		f.window = max(windowMin, min(f.window, int(float64(bytes)*float64(f.least+wayTarget)/float64(took))))
		f.probing = now.Sub(f.leastAt) >= probePause
		f.queued = now
	case f.calm && f.limited && now.Sub(f.queued) < probePause:
		f.window = min(f.window+f.window/gentleGrowth, windowMax)
	case f.calm && f.limited:
		f.window = min(2*f.window, windowMax)
	}
	f.limited = false
	return true
}

// stuck reports whether the client has confirmed nothing for so long.
func (f *flow) stuck(now time.Time, d time.Duration) bool { return f.marked > 0 && now.Sub(f.at) >= d }
