package viewer

import "time"

// Rates in bytes per second. The numbers are arbitrary, except that viewers let their user choose up to rateMax.
const (
	rateMax   = 1_250_000 // 10 Mbit/s
	rateFirst = 64 << 10
	rateLeast = 32 << 10
	rateStep  = 8 << 10 // by which the rate grows in a second after the slow start, or an eighth of it if that is more
)

// Times of a pace.
const (
	doublePause = 200 * time.Millisecond // between two changes of the rate in the slow start
	judgePause  = time.Second            // and later: the circuit knows a loss after a second
	burst       = 50 * time.Millisecond  // at the rate, that may be sent at once
	probePause  = 250 * time.Millisecond // between packets that ask for an acknowledgement, while objects move
	repeatLeast = 150 * time.Millisecond // before a value that is not confirmed is sent again
	repeatMost  = time.Second
	repeatFirst = 500 * time.Millisecond // before an acknowledgement was timed
)

// probeEvery is how many packets of moves there are for one that asks for an acknowledgement. Objects move in bursts, the end of which gets
// lost; the number has no common factor with usual ones, so that each place in a burst has its turn.
const probeEvery = 7

// A pace says how much may be sent. A viewer that is a bit slow loses what comes in bursts, and the network between loses what is
// too much for it. So the rate begins low and doubles until the first acknowledgement is late (slow start). Then it grows in steps, and
// shrinks when more than a tenth of the packets that ask for an acknowledgement get none. It stays within what the viewer asks for
// (AgentThrottle).
type pace struct {
	limit float64 // bytes per second
	rate  float64
	room  float64 // bytes that may be sent; negative after a packet that was larger
	at    time.Time
	begun bool // the slow start is over
	used  bool // since the last change of the rate there was too little room

	changed                  time.Time // the rate, or it was judged
	delivered, lost          int       // since then
	row                      int       // that were not confirmed, one after the other
	average, deviation, wait time.Duration
}

func newPace(now time.Time) pace {
	return pace{limit: rateMax, rate: rateFirst, room: rateFirst * burst.Seconds(), at: now, changed: now}
}

// throttle sets what the viewer asks for, in bits per second. A viewer may not ask for less than rateLeast, with which its circuit
// would not live.
func (p *pace) throttle(bits float64) {
	p.limit = rateLeast
	if bits/8 > rateLeast { // not a number is not
		p.limit = min(bits/8, rateMax)
	}
	p.rate = min(p.rate, p.limit)
}

// advance lets room grow.
func (p *pace) advance(now time.Time) {
	if d := now.Sub(p.at); d > 0 {
		p.room = min(p.room+p.rate*d.Seconds(), p.rate*burst.Seconds()+wirePacket)
		p.at = now
	}
	switch since := now.Sub(p.changed); {
	case !p.begun && since >= doublePause:
		if p.delivered > 0 && p.used {
			p.rate = min(2*p.rate, p.limit)
		}
	case since >= judgePause:
		p.rate = judge(p.rate, p.limit, p.delivered, p.lost, p.used)
	default:
		return
	}
	p.changed, p.delivered, p.lost, p.used = now, 0, 0, false
}

// judge returns the next rate after the slow start. Between a fiftieth and a tenth of losses it stays.
func judge(rate, limit float64, delivered, lost int, used bool) float64 {
	all := float64(delivered + lost)
	switch share := float64(lost) / max(all, 1); {
	case share > .1:
		return max(rate*max(.9*(1-share), .5), min(rateLeast, limit))
	case share <= .02 && delivered > 0 && used:
		return min(rate+max(rateStep, rate/8), limit)
	}
	return rate
}

// late notes that a packet was not confirmed in time, which need not be a loss.
func (p *pace) late() {
	if !p.begun {
		p.begun = true
		p.rate = max(p.rate/2, min(rateLeast, p.limit))
	}
}

const wirePacket = 1200

// ready reports whether a packet may be sent.
func (p *pace) ready() bool {
	if p.room <= 0 {
		p.used = true
		return false
	}
	return true
}

// sent takes the room of a packet.
func (p *pace) sent(bytes int) { p.room -= float64(bytes) }

// next returns when there is room.
func (p *pace) next() time.Time {
	if p.room > 0 {
		return p.at
	}
	return p.at.Add(time.Duration((1-p.room)/p.rate*float64(time.Second)) + time.Microsecond)
}

// confirmed notes an acknowledgement that came after a time (RFC 6298).
func (p *pace) confirmed(after time.Duration) {
	p.delivered++
	p.row = 0
	if p.average == 0 {
		p.average, p.deviation = after, after/2
	} else {
		p.deviation = (3*p.deviation + max(p.average-after, after-p.average)) / 4
		p.average = (7*p.average + after) / 8
	}
	p.wait = min(max(p.average+4*p.deviation, repeatLeast), repeatMost)
}

// missed notes that no acknowledgement came.
func (p *pace) missed() {
	p.lost++
	p.row++
}

// rowLong is after how many losses in a row, which mean that the viewer is not there, the pause between repeats doubles.
const rowLong = 64

// repeat returns after which time a packet counts as lost.
func (p *pace) repeat() time.Duration {
	wait := p.wait
	if wait == 0 {
		wait = repeatFirst
	}
	return wait << min(p.row/rowLong, 3)
}
