package dnp

import (
	"math"
	"net/netip"
	"time"
)

// A connection has an income of bytes per second. Everything that the peer is sent
// is paid from it, but only values, offers of links and unreliable messages wait or
// go without: acknowledgements and reliable commands are sent in any case.

const (
	headersIPv4 = 28 // bytes of IP and UDP headers, paid for each datagram
	headersIPv6 = 48

	// budgetBurst is how long an unused income is saved, and the most that is owed:
	// what cannot wait is not to be paid for by seconds of old values.
	budgetBurst = 250 * time.Millisecond

	// budgetPace is the income that has to be there before a connection that is
	// short sends values, at least a datagram, so that datagrams are full. Choosing
	// the most urgent is a look at all that wait, which has to be worth waitingStep
	// bytes for each, if as much can be saved twice.
	budgetPace  = 10 * time.Millisecond
	waitingStep = 8

	// updateShare is the part of the income that values get even if what cannot
	// wait takes all of it: an eighth.
	updateShare = 8

	// offerShare is the part of the income that offers get while values wait: a
	// quarter, so that a peer that is always short gets its links all the same.
	offerShare = 4
)

// A tariff turns bytes into the time in which they are earned.
type tariff struct {
	perByte float64       // nanoseconds; 0 if there is no limit
	burst   time.Duration // the most that is saved or owed
	step    int           // least bytes that a connection that is short sends together
	stepMax int
}

func newTariff(bytesPerSecond, datagramMax int) tariff {
	if bytesPerSecond < 0 {
		return tariff{}
	}
	t := tariff{perByte: float64(time.Second) / float64(bytesPerSecond)}
	t.step = max(datagramMax, int(float64(budgetPace)/t.perByte))
	t.burst = max(budgetBurst, t.cost(4*(datagramMax+headersIPv6)))
	t.stepMax = int(float64(t.burst)/t.perByte) / 2
	return t
}

func (t *tariff) cost(bytes int) time.Duration { return time.Duration(float64(bytes) * t.perByte) }

// A budget is what a connection has saved or owes. It is kept as a time: that up to
// which the income is spent.
type budget struct {
	spent   instant // before now if something is saved, after now if something is owed
	updated instant // when values were sent last
	offerAt instant // when an offer may be sent although values wait
	headers int     // bytes of each datagram
}

func newBudget(t *tariff, peer netip.AddrPort, now instant) budget {
	b := budget{spent: now.add(-t.burst), updated: now, headers: headersIPv6}
	if a := peer.Addr(); a.Is4() || a.Is4In6() {
		b.headers = headersIPv4
	}
	return b
}

// pay takes the price of a datagram of size bytes.
func (b *budget) pay(t *tariff, size int, now instant) {
	b.spent = min(max(b.spent, now.add(-t.burst)).add(t.cost(size+b.headers)), now.add(t.burst))
}

// affords reports whether so many bytes are saved.
func (b *budget) affords(t *tariff, bytes int, now instant) bool {
	return max(b.spent, now.add(-t.burst)).add(t.cost(bytes)) <= now
}

// allowance returns how many bytes of values may be sent now by a connection that is
// short: what is saved if that is worth a sending, or else a datagram if none went
// for long.
func (b *budget) allowance(t *tariff, step, datagramMax int, now instant) int {
	switch {
	case t.perByte == 0:
		return math.MaxInt
	case b.affords(t, step, now):
		return int(float64(now.sub(max(b.spent, now.add(-t.burst)))) / t.perByte)
	case now >= b.updated.add(updateShare*t.cost(datagramMax)):
		return datagramMax
	}
	return 0
}

// allowedAt returns when allowance will be more than nothing.
func (b *budget) allowedAt(t *tariff, step, datagramMax int) instant {
	return min(b.spent.add(t.cost(step)), b.updated.add(updateShare*t.cost(datagramMax)))
}

// step returns how many bytes have to be saved before links that wait are sent.
func (c *Conn) step() int {
	t := &c.e.tariff
	return max(t.step, min(waitingStep*len(c.waiting), t.stepMax))
}

// emit sends a datagram to the peer and pays for it.
func (c *Conn) emit(b []byte, out Sender) {
	c.budget.pay(&c.e.tariff, len(b), c.e.clock.now)
	c.e.send(c.addr, b, out)
}

// strained reports whether values wait for the budget, or it is overdrawn.
func (c *Conn) strained(now instant) bool { return len(c.waiting) > 0 || c.budget.spent > now }
