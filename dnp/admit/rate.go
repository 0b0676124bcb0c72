package admit

import (
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// A Rate is how much is taken per second in the name of a peer. 0 is no limit.
type Rate struct {
	Datagrams, Bytes int
}

const (
	rateBurst = 2 * time.Second // what a peer's buckets hold

	// What is sent to a peer asks for answers, two per reliable command (acknowledgement,
	// LinkUp). They do not count, so that a peer is not punished for being offered many links.
	answersPerCommand = 2
	answersMax        = 512 // expected answers that are remembered
	answerSize        = 8   // a generous bound of their bytes: the longest has 4

	// What comes beyond the rate may be forged, so it leaves room for datagrams that are likely
	// the peer's: so many per second. Those that a stranger can forge more easily leave half of what
	// the bucket holds to the others.
	spareRate = 100
)

// An Allowance is what may still be taken in the name of a peer. Each bucket is stored as the
// time at which it will be full again. Times count from any moment. The zero value is full.
type Allowance struct {
	datagrams, bytes, spare time.Duration
	owed                    uint16 // answers that the peer was asked for
}

// ExpectAnswers notes that a reliable command is sent to the peer.
func (a *Allowance) ExpectAnswers() { a.owed = min(a.owed+answersPerCommand, answersMax) }

// Take reports whether to take a datagram that is not empty. It costs no more than being
// counted.
func (a *Allowance) Take(rate Rate, now time.Duration, p []byte) bool {
	if a.owed > 0 && len(p) <= answerSize && isAnswer(wire.Command(p[0])) {
		a.owed--
		return true
	}
	d, b := max(a.datagrams, now), max(a.bytes, now)
	if rate.Datagrams > 0 {
		d += time.Second / time.Duration(rate.Datagrams)
	}
	if rate.Bytes > 0 {
		b += time.Duration(len(p)) * time.Second / time.Duration(rate.Bytes)
	}
	if max(d, b)-now > rateBurst {
		return false
	}
	a.datagrams, a.bytes = d, b
	return true
}

// TakeSpare reports whether to take a datagram beyond the rate that is likely the peer's, or very likely.
func (a *Allowance) TakeSpare(now time.Duration, very bool) bool {
	s, most := max(a.spare, now)+time.Second/spareRate, rateBurst
	if !very {
		most /= 2
	}
	if s-now > most {
		return false
	}
	a.spare = s
	return true
}

func isAnswer(cmd wire.Command) bool {
	return cmd == wire.CommandReliableAck || cmd == wire.CommandLinkUp || cmd == wire.CommandLinkDown
}
