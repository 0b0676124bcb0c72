package dnp

import (
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// LinkUp and LinkDown are single datagrams without acknowledgement, so both are
// repeated: LinkUp until the peer's first LinkUpdate shows that it knows, at the
// times of dnp/PROTOCOL.md, What we do about it; LinkDown, which the peer never
// answers, blindly.
var (
	linkUpSteps   = []time.Duration{0, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second}
	linkDownSteps = []time.Duration{0, 60 * time.Millisecond, 180 * time.Millisecond, 500 * time.Millisecond, 1500 * time.Millisecond, 5 * time.Second}
)

// A retrySchedule sends something about a link at fixed times after a start. All links
// that wait for the same step wait equally long, so each step is a FIFO and nothing is
// ever sorted. Behind the steps is a queue of links that rest until resume.
type retrySchedule struct {
	steps  *[]time.Duration // shared, to keep a Conn small
	queues [][]retry        // by step; nil while there is no link
	n      int
}

// A retry is a link in a schedule.
type retry struct {
	link    wire.LinkID
	rounds  uint8  // how often it was resumed
	version uint32 // of the link's Source at the start; catch-ups only
	start   instant
}

// start schedules r from the first step, if there is one.
func (l *retrySchedule) start(r retry) {
	if len(*l.steps) > 0 {
		l.push(0, r)
	}
}

func (l *retrySchedule) push(step int, r retry) {
	l.open()
	l.queues[step] = append(l.queues[step], r)
	l.n++
}

func (l *retrySchedule) open() {
	if l.queues == nil {
		l.queues = make([][]retry, len(*l.steps)+1)
	}
}

// stepQueues returns the queues of the steps.
func (l *retrySchedule) stepQueues() [][]retry {
	return l.queues[:min(len(l.queues), len(*l.steps))]
}

// rest puts a link aside whose last step is over.
func (l *retrySchedule) rest(r retry) { l.push(len(*l.steps), r) }

// resume makes a step of all links due that rest.
func (l *retrySchedule) resume(step int, now instant) {
	end := len(*l.steps)
	if l.n == 0 || len(l.queues[end]) == 0 {
		return
	}
	list := l.queues[end]
	for i := range list {
		list[i].rounds++
		list[i].start = now.add(-(*l.steps)[step])
	}
	l.queues[step] = slices.Insert(l.queues[step], 0, list...) // all others in this queue are due later
	l.queues[end] = nil
}

// again makes the last step of link due once more. It ignores a link that is scheduled
// already, which would lose its steps to come.
func (l *retrySchedule) again(link wire.LinkID, now instant) {
	if l.scheduled(link) {
		return
	}
	l.open()
	last := len(*l.steps) - 1
	l.queues[last] = slices.Insert(l.queues[last], 0, retry{link: link, start: now.add(-(*l.steps)[last])}) // all others in this queue are due later
	l.n++
}

// ended reports whether the step that next returned was the last.
func (l *retrySchedule) ended(r retry, now instant) bool {
	return r.start.add((*l.steps)[len(*l.steps)-1]) <= now
}

func (l *retrySchedule) scheduled(link wire.LinkID) bool {
	return slices.ContainsFunc(l.queues, func(queue []retry) bool {
		return slices.ContainsFunc(queue, func(r retry) bool { return r.link == link })
	})
}

// next returns a link whose step is due, and moves it to the next step. If the step is late, the next ones are, too.
func (l *retrySchedule) next(now instant) (due retry, ok bool) {
	for step, queue := range l.stepQueues() {
		if len(queue) == 0 || queue[0].start.add((*l.steps)[step]) > now {
			continue
		}
		due = l.popFirst(step)
		due.start = now.add(-(*l.steps)[step])
		if step+1 < len(*l.steps) {
			l.queues[step+1] = append(l.queues[step+1], due)
			l.n++
		}
		l.trim()
		return due, true
	}
	return retry{}, false
}

func (l *retrySchedule) popFirst(step int) retry {
	first := l.queues[step][0]
	l.queues[step] = l.queues[step][1:]
	l.n--
	return first
}

// trim frees the memory of an empty schedule.
func (l *retrySchedule) trim() {
	if l.n == 0 {
		l.queues = nil
	}
}

// dropOldest removes the link that has rested for longest, or that was sent most often.
func (l *retrySchedule) dropOldest() {
	for step := len(l.queues) - 1; step >= 0; step-- {
		if len(l.queues[step]) > 0 {
			l.popFirst(step)
			return
		}
	}
}

func (l *retrySchedule) cancel(link wire.LinkID) {
	for step, queue := range l.queues {
		rest := slices.DeleteFunc(queue, func(r retry) bool { return r.link == link })
		l.n -= len(queue) - len(rest)
		l.queues[step] = rest
	}
	l.trim()
}

// nextTimeout is short enough to be inlined: most schedules of a connection are empty.
func (l *retrySchedule) nextTimeout() instant {
	if l.n == 0 {
		return never
	}
	return l.earliest()
}

func (l *retrySchedule) earliest() instant {
	at := never
	for step, queue := range l.stepQueues() {
		if len(queue) > 0 {
			at = min(at, queue[0].start.add((*l.steps)[step]))
		}
	}
	return at
}

// each yields the link of every entry.
func (l *retrySchedule) each(yield func(wire.LinkID) bool) {
	for _, queue := range l.queues {
		for _, r := range queue {
			if !yield(r.link) {
				return
			}
		}
	}
}

// sendRepeats sends the LinkUps and LinkDowns that are due, and makes values due whose
// repeat is. The peer was heard last at the instant heard.
func (t *linkTable) sendRepeats(p *path, heard, now instant, out Sender) {
	for r, ok := t.ups.next(now); ok; r, ok = t.ups.next(now) {
		p.emit(wire.LinkUp{Link: r.link}.Append(out.Datagram(3)), out)
	}
	for p.budget.crowd.room != 0 { // a path that takes nothing would lose all copies, and the peer keep the link for ever
		r, ok := t.downs.next(now)
		if !ok {
			break
		}
		for range p.loss.copies() { // the peer never answers a LinkDown
			p.emit(wire.LinkDown{Link: r.link}.Append(out.Datagram(3)), out)
		}
		if p.carried && now.sub(heard) >= missedSilence && r.rounds < missedRounds && t.downs.ended(r, now) {
			t.downs.rest(r)
		}
	}
	for r, ok := t.catchUps.next(now); ok; r, ok = t.catchUps.next(now) {
		t.catchUp(r, now)
	}
}

// A peer whose datagrams do not come by UDP (Config.Proven) can be without a connection for longer than LinkDowns are
// repeated, and the owner may not know, if another node has the connection. So a LinkDown whose last copy
// was sent to a peer that had been silent for missedSilence is sent three times more when the peer is heard. One that
// was heard later had its connection when earlier copies were sent.
const (
	missedSilence = 4 * time.Second
	missedStep    = 3 // of linkDownSteps
	missedRounds  = 2 // what is heard may have waited for long, and the peer still be away
)

// catchUpsMax bounds the catch-ups of a connection. Beyond it a new one replaces the one
// that was repeated most often.
const catchUpsMax = 4096

// startCatchUp schedules the values of a link for repeats at the times of Config.Refresh,
// besides the values that it is sent at once. Those may be the only ones on this path: a
// link that came up behind its offer, or was bound to another Source, lacks changes whose
// own repeats are over, and without this one lost datagram would leave them to the scrub.
func (t *linkTable) startCatchUp(slot int) {
	if t.catchUps.n >= catchUpsMax {
		t.core.drop(DropCatchUpsFull)
		t.catchUps.dropOldest()
	}
	l := &t.slots[slot]
	t.catchUps.start(retry{link: l.id, version: t.core.sources[l.source].version, start: t.core.clock.now})
}

// catchUp repeats the values of a link once, unless all have changed since: the Source
// repeats its changes itself.
func (t *linkTable) catchUp(r retry, now instant) {
	slot, ok := t.slotOf(r.link)
	if !ok || t.slots[slot].source == noSource {
		return
	}
	if slices.Min(t.core.sources[t.slots[slot].source].changed) <= r.version {
		t.scrubLink(slot, now)
	}
}

// A scrubber is a connection's place in its scrub. Refresh repairs the rare loss; the
// scrub repairs the rest: it visits the links of a connection in turn, for ever, and
// makes all their values due again, about a datagram's worth at a time.
type scrubber struct {
	at   instant // the next step
	slot int
}

// scrubGrid is the grid of scrub steps. With it 20 wake-ups a second serve all
// connections of an idle Endpoint; without it each step would be a wake-up of its own.
const scrubGrid = 50 * time.Millisecond

// startScrub begins at a connection's own point of the interval, so that connections
// made together are not scrubbed together.
func (t *linkTable) startScrub(now instant) {
	t.scrub.at = never
	if interval := t.core.cfg.ScrubInterval; interval > 0 {
		const golden = 0.6180339887
		turn := float64(t.conn) * golden
		t.scrub.at = now.add(interval/2 + time.Duration(float64(interval)*(turn-float64(int(turn))))).upTo(scrubGrid)
	}
}

// scrubPart is the part of the budget that the scrub may take: 2 %.
const scrubPart = 50

// scrubSome does one step of the round, if it is due. Then it waits for the step's share of the round, or for the time that its
// bytes take at the permitted rate.
func (t *linkTable) scrubSome(now instant) {
	r, cfg := &t.scrub, &t.core.cfg
	if now < r.at {
		return
	}
	sent, from := 0, r.slot
	for r.slot < len(t.slots) && sent < cfg.DatagramMax {
		sent += t.scrubLink(r.slot, now)
		r.slot++
	}
	share := float64(1)
	if n := len(t.slots); n > 0 {
		share = float64(r.slot-from) / float64(n)
	}
	if r.slot >= len(t.slots) {
		r.slot = 0
	}
	perSecond := cfg.BytesPerSecond
	if perSecond < 0 {
		perSecond = defaultBytesPerSecond
	}
	byShare := time.Duration(float64(cfg.ScrubInterval) * share)
	byRate := time.Duration(sent) * time.Second / time.Duration(max(1, perSecond/scrubPart))
	r.at = now.add(max(byShare, byRate, time.Millisecond)).upTo(scrubGrid)
}

// scrubLink makes all values of a link due, and LinkUp if the peer may lack that. It
// returns about how many bytes of values that will send.
func (t *linkTable) scrubLink(slot int, now instant) int {
	l := &t.slots[slot]
	if l.has(linkUnconfirmed) && l.phase == LinkUp { // all LinkUps may have been lost
		t.ups.again(l.id, now)
	}
	if !t.core.sends(l) || l.has(linkWaiting) { // a link that waits is sent anyway; the next round is soon enough
		return 0
	}
	l.sent = 0
	s := t.core.sources[l.source]
	if l.has(linkByPeer) {
		if l.sent = t.peer[l.id].base; l.sent >= s.settled() {
			return 0
		}
	}
	t.core.stats.Scrubs++
	t.markRepeat(slot)
	return s.updateSize()
}

// scrubIn returns in about what time the round comes to a link, or less than 0 if it never does.
func (t *linkTable) scrubIn(slot int, now instant) time.Duration {
	if t.scrub.at == never || len(t.slots) == 0 {
		return -1
	}
	n := len(t.slots)
	between := (slot - t.scrub.slot + n) % n
	return max(0, t.scrub.at.sub(now)) + t.core.cfg.ScrubInterval*time.Duration(between)/time.Duration(n)
}
