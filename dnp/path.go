package dnp

import (
	"net/netip"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// A path is the way to the peer: where datagrams go, what they may cost, and how many
// of them get lost.
type path struct {
	core   *core
	addr   netip.AddrPort
	budget budget
	loss   lossEstimate
	trip   roundTrip

	// disorder is how many repeats of overtaken commands still wait for those that may be late, because the path was
	// seen to change the order of datagrams.
	disorder uint8
	headers  uint8 // bytes of each datagram
	carried  bool  // something else than UDP brings the datagrams (Config.Proven)
}

// disorderMemory is how many repeats wait after the path changed the order of datagrams, as in RACK (RFC 8985).
const disorderMemory = 16

// emit sends a datagram to the peer and pays for it.
func (p *path) emit(b []byte, out Sender) {
	p.budget.crowd.sent = min(p.budget.crowd.sent+1, crowdedDatagrams)
	p.budget.crowd.used(len(b))
	p.budget.pay(&p.core.rate, p.size(len(b)), p.core.clock.now)
	p.core.send(p.addr, b, out)
}

// size returns the bytes that a datagram takes on the path, with its headers.
func (p *path) size(bytes int) int { return bytes + int(p.headers) }

// acknowledge tells the peer that its command n arrived.
func (p *path) acknowledge(n uint64, out Sender) {
	m := wire.ReliableAck{Seq: p.core.cfg.Profile.Seq(n), Code: wire.AckSuccess}
	p.emit(m.Append(out.Datagram(4)), out)
}

// pace returns how commands are repeated to a peer. One from which
// nothing comes may stand still, and libraries store each needless copy.
func (p *path) pace(l *liveness, now instant) pace {
	most := p.core.cfg.ReliableResend
	r := pace{trip: p.trip, first: p.trip.longest(most), copies: 1, disorder: p.disorder > 0}
	if l.patient > 0 && p.trip.mean == 0 {
		r.first = min(restoredResend, most)
	}
	if now.sub(l.heard) < most {
		r.copies = p.loss.copies()
	}
	return r
}

// A lossEstimate is the share of repeats among the latest sendings of reliable commands.
type lossEstimate struct {
	share  float32
	seen   float32 // the share of datagrams of both sides that were lost lately; 0 before the first
	weight uint8   // sendings that share was made from, the prior included
}

// A new path is taken to have lost one sending in four. Five sendings that arrive
// refute that. A peer with fewer gets its repeats twice, which costs little and is
// needed if the path turns out to be bad.
const (
	lossPrior       = 0.25
	lossPriorWeight = 4
	lossMemory      = 16 // sendings
)

func newLossEstimate() lossEstimate { return lossEstimate{share: lossPrior, weight: lossPriorWeight} }

// add counts a sending: a repeat, or a first one that was acknowledged before any repeat.
func (l *lossEstimate) add(again bool) {
	var sample float32
	if again {
		sample = 1
	}
	l.weight = min(l.weight+1, lossMemory)
	l.share += (sample - l.share) / float32(l.weight)
	l.observe(again)
}

// forgive takes a repeat back that add counted, because it turned out to be needless.
func (l *lossEstimate) forgive() {
	l.share = max(0, l.share-1/float32(l.weight))
	l.seen = max(0, l.seen-1.0/lossMemory)
}

// observe counts a datagram that was or was not lost. Unlike share, seen has no prior: without
// loss it is 0.
func (l *lossEstimate) observe(lost bool) {
	var sample float32
	if lost {
		sample = 1
	}
	l.seen += (sample - l.seen) / lossMemory
}

// silence returns how long a peer that is asked every half second must be silent before one
// can say that it is gone: until the loss of all answers is less likely than 1 in 10,000, but
// no less than closeDelay.
func (l *lossEstimate) silence(resend time.Duration) time.Duration {
	d, lost := time.Duration(0), float32(1)
	for ; lost > 1e-4 && d < silenceMax; d += resend {
		lost *= l.share
	}
	return max(d, closeDelay)
}

// copies returns how many copies of a repeat go to the peer. The share counts the loss
// of both directions: 0.1 is 5 % each way, 0.51 is 30 %. With 30 % each way, the ten
// copies of the first half second leave less than one link in 100,000 wrong; with two
// copies of each repeat it would be one in 5,000, which is too much for 99.9 % of 1,000
// links in every run.
func (l *lossEstimate) copies() int {
	switch {
	case l.share > 0.3:
		return 3
	case l.share > 0.1:
		return 2
	}
	return 1
}

// resendLeast is the shortest time after which a reliable command is sent again. It covers the
// frame of an application that reads its socket 60 times a second, and one that it drops.
const resendLeast = 60 * time.Millisecond

// framesMicros is the variation that a round trip has at least: two frames of an application, whose
// acknowledgements come in steps of a frame.
const framesMicros = 40_000

// A roundTrip estimates the time from the sending of a reliable command to its
// acknowledgement, as RFC 6298 does for TCP. Only commands that were sent once count: the
// acknowledgement of another one may belong to an earlier copy (Karn's algorithm).
type roundTrip struct {
	mean, deviation uint32 // microseconds; mean is 0 before the first sample
}

// A pace is what the times of repeats depend on.
type pace struct {
	trip     roundTrip
	first    time.Duration // until the first repeat
	copies   int           // of a repeat for which others wait
	disorder bool          // overtaken commands may be late
}

// restoredResend is how soon a command to the peer of a restored connection is repeated. What is known of its path
// was lost, but the peer waits already, and the first copy may have met its former edge.
const restoredResend = 200 * time.Millisecond

// sample counts a command that was acknowledged d after its only sending.
func (r *roundTrip) sample(d time.Duration) {
	now := micros(d)
	if r.mean == 0 {
		r.mean, r.deviation = now, now/2
		return
	}
	r.deviation = (3*r.deviation + max(now, r.mean) - min(now, r.mean)) / 4
	r.mean = max(1, uint32((7*uint64(r.mean)+uint64(now))/8))
}

// micros returns a time as 1 to 60 million microseconds.
func micros(d time.Duration) uint32 { return uint32(max(1, min(d, time.Minute).Microseconds())) }

// late reports whether an acknowledgement that comes d after the last of several copies takes longer than usual,
// whichever copy it is of.
func (r *roundTrip) late(d time.Duration) bool { return r.mean > 0 && micros(d) > r.mean }

// usual returns how long an acknowledgement takes that others overtook: the round trip and a quarter of
// it, as RACK has it for TCP (RFC 8985), or the deviation if that is more. most is the bound, which
// also stands for a path without samples.
func (r *roundTrip) usual(most time.Duration) time.Duration {
	return r.after(max(r.deviation, r.mean/4), most)
}

// longest returns after which time an acknowledgement is not to be expected any more, within the
// same bound.
func (r *roundTrip) longest(most time.Duration) time.Duration {
	return max(r.after(max(4*r.deviation, framesMicros), most), min(resendLeast, most))
}

func (r *roundTrip) after(more uint32, most time.Duration) time.Duration {
	if r.mean == 0 {
		return most
	}
	return min(time.Duration(r.mean+more)*time.Microsecond, most)
}
