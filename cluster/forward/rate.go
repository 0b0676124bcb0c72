package forward

import (
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// A Rate is how much of each client is forwarded, with bursts of two seconds. What was sent to
// the client asks for answers, which do not count. 0 means no bound.
type Rate struct {
	Datagrams, Bytes int // per second
}

// These rules are those of an edge for the clients that it serves (dnp.Config.RateDatagrams):
// what anybody can send in the name of a client costs the owner no more because it comes to
// another edge. What is beyond the rate may be forged, so it leaves room for what likely is the
// client's own: a stranger does not see the numbers of what was returned to the client lately.
const (
	rateBurst = 2 * time.Second

	answersPerCommand = 2   // acknowledgement and LinkUp
	answersMax        = 512 // that are expected
	answerSize        = 8   // a generous bound

	spareRate   = 100 // likely datagrams beyond the rate, per second
	likelyRange = 24  // commands in flight, the client's or the owner's
)

// traffic is what a client may still send. Each bucket is stored as the time at which it will
// be full again.
type traffic struct {
	datagrams, bytes, spare time.Duration
	owed                    uint16   // answers that the owner asked for
	sent, acknowledged      wire.Seq // latest numbers that were returned to the client
}

// returned notes a datagram of the owner to the client.
func (t *traffic) returned(p []byte) {
	switch cmd, seq, ok := wire.Numbered(p); {
	case !ok:
	case cmd == wire.CommandReliableAck:
		t.acknowledged = seq
	default:
		t.sent = seq
		t.owed = min(t.owed+answersPerCommand, answersMax)
	}
}

// allow reports whether to forward a datagram in the name of the client.
func (t *traffic) allow(rate Rate, now time.Duration, p []byte) bool {
	if t.owed > 0 && len(p) <= answerSize && isAnswer(wire.Command(p[0])) {
		t.owed--
		return true
	}
	d, b := max(t.datagrams, now), max(t.bytes, now)
	if rate.Datagrams > 0 {
		d += time.Second / time.Duration(rate.Datagrams)
	}
	if rate.Bytes > 0 {
		b += time.Duration(len(p)) * time.Second / time.Duration(rate.Bytes)
	}
	if d-now <= rateBurst && b-now <= rateBurst {
		t.datagrams, t.bytes = d, b
		return true
	}
	if s := max(t.spare, now) + time.Second/spareRate; s-now <= rateBurst && t.likely(p) {
		t.spare = s
		return true
	}
	return false
}

// likely reports whether a datagram has a number near those that were returned to the client.
func (t *traffic) likely(p []byte) bool {
	cmd, seq, ok := wire.Numbered(p)
	near := t.acknowledged
	if cmd == wire.CommandReliableAck {
		near = t.sent
	}
	ahead := seq - near // modulo 65536; in a profile that counts modulo 65535, one off
	return ok && ahead+likelyRange <= 2*likelyRange
}

func isAnswer(cmd wire.Command) bool {
	return cmd == wire.CommandReliableAck || cmd == wire.CommandLinkUp || cmd == wire.CommandLinkDown
}
