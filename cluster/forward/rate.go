package forward

import (
	"time"

	"github.com/dnprelay/dnprelay/dnp/admit"
	"github.com/dnprelay/dnprelay/dnp/wire"
)

// likelyRange is how many commands are in flight, the client's or the owner's.
const likelyRange = 24

// returned notes a datagram of the owner to the client.
func (e *fenceEntry) returned(p []byte) {
	switch cmd, seq, ok := wire.Numbered(p); {
	case !ok:
	case cmd == wire.CommandReliableAck:
		e.acknowledged = seq
	default:
		e.sent = seq
		e.allowance.ExpectAnswers()
	}
}

// allow reports whether to forward a datagram in the name of the client. The rate is that of an
// edge for the clients that it serves: what a stranger sends in the name of a client costs the
// owner no more because it comes to another edge.
func (e *fenceEntry) allow(rate admit.Rate, now time.Duration, p []byte) bool {
	return e.allowance.Take(rate, now, p) || e.likely(p) && e.allowance.TakeSpare(now, true)
}

// likely reports whether a datagram has a number near those that were returned to the client
// lately, which a stranger does not see.
func (e *fenceEntry) likely(p []byte) bool {
	cmd, seq, ok := wire.Numbered(p)
	near := e.acknowledged
	if cmd == wire.CommandReliableAck {
		near = e.sent
	}
	ahead := seq - near // modulo 65536; in a profile that counts modulo 65535, one off
	return ok && ahead+likelyRange <= 2*likelyRange
}
