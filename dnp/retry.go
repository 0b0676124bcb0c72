package dnp

import (
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// LinkUp and LinkDown are single datagrams without acknowledgement, so both are
// repeated: LinkUp until the peer's first LinkUpdate shows that it knows, at the
// times of dnp/PROTOCOL.md, Links; LinkDown, which nothing ever answers, blindly.
var (
	linkUpSteps   = []time.Duration{0, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second}
	linkDownSteps = []time.Duration{0, 60 * time.Millisecond, 180 * time.Millisecond, 500 * time.Millisecond, 1500 * time.Millisecond, 5 * time.Second}
)

// A ladder sends something about a link at fixed times after a start. All that
// waits for the same step waits equally long, so each step is a FIFO and nothing
// is ever sorted or searched.
type ladder struct {
	steps []time.Duration
	rungs [][]climber
	n     int
}

type climber struct {
	link    wire.LinkID
	version uint32 // of the link's Source at the start, if that matters
	start   instant
}

// start puts c at the foot of the ladder, if that has any steps.
func (l *ladder) start(c climber) {
	if len(l.steps) == 0 {
		return
	}
	if l.rungs == nil {
		l.rungs = make([][]climber, len(l.steps))
	}
	l.rungs[0] = append(l.rungs[0], c)
	l.n++
}

// again makes the last step of link due once more. A link that is still on its way up
// is left alone: it would lose the steps that are to come.
func (l *ladder) again(link wire.LinkID, now instant) {
	if l.climbing(link) {
		return
	}
	if l.rungs == nil {
		l.rungs = make([][]climber, len(l.steps))
	}
	last := len(l.steps) - 1
	l.rungs[last] = slices.Insert(l.rungs[last], 0, climber{link: link, start: now.add(-l.steps[last])}) // all others there are due later
	l.n++
}

func (l *ladder) climbing(link wire.LinkID) bool {
	return slices.ContainsFunc(l.rungs, func(rung []climber) bool {
		return slices.ContainsFunc(rung, func(c climber) bool { return c.link == link })
	})
}

// next returns one whose step is due, and moves it up.
func (l *ladder) next(now instant) (due climber, ok bool) {
	for step, rung := range l.rungs {
		if len(rung) == 0 || rung[0].start.add(l.steps[step]) > now {
			continue
		}
		first := rung[0]
		l.rungs[step] = append(rung[:0], rung[1:]...)
		if step+1 < len(l.steps) {
			l.rungs[step+1] = append(l.rungs[step+1], first)
		} else {
			l.n--
		}
		l.trim()
		return first, true
	}
	return climber{}, false
}

// trim gives the memory back when nothing is left.
func (l *ladder) trim() {
	if l.n == 0 {
		l.rungs = nil
	}
}

// dropOldest forgets what was sent most often.
func (l *ladder) dropOldest() {
	for step := len(l.rungs) - 1; step >= 0; step-- {
		if rung := l.rungs[step]; len(rung) > 0 {
			l.rungs[step] = append(rung[:0], rung[1:]...)
			l.n--
			return
		}
	}
}

// cancel forgets link.
func (l *ladder) cancel(link wire.LinkID) {
	for step, rung := range l.rungs {
		for i := 0; i < len(rung); {
			if rung[i].link != link {
				i++
				continue
			}
			rung = append(rung[:i], rung[i+1:]...)
			l.n--
		}
		l.rungs[step] = rung
	}
	l.trim()
}

func (l *ladder) nextTimeout() instant {
	at := never
	for step, rung := range l.rungs {
		if len(rung) > 0 {
			at = min(at, rung[0].start.add(l.steps[step]))
		}
	}
	return at
}

// each yields the links that wait for a step, once each.
func (l *ladder) each(yield func(wire.LinkID)) {
	for _, rung := range l.rungs {
		for _, c := range rung {
			yield(c.link)
		}
	}
}
