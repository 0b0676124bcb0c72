package dnp

import (
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// Anybody who knows the address and port of a peer can send datagrams in its name. So there is
// a rule:
//
// Nothing that a connection depends on (its owner, the way of its datagrams, its end, its
// checkpoint, its budget, the admission of others) changes because of a datagram that somebody
// could have written who does not see what we send. Such a datagram is at most a reason to ask
// the peer, by all ways that are known.
//
// Evidence of the peer is
//
//   - a number that a stranger can hardly guess (Endpoint.Evident): it keeps a connection alive, gets
//     through when there are too many datagrams, and lets an edge take a session from another
//     one that lives but cannot be reached. A command that came before is evidence for as long as
//     libraries repeat one: peers that say little have low numbers, and a stranger could repeat one for ever;
//   - the answer to a question (question.go), which takes a random number: it decides the way of
//     datagrams, and whether the peer has the history that the log has;
//   - silence after questions, for as long as answers may get lost (lossEstimate.silence): it
//     ends a connection after a ConnectionClose, a second request or a contradiction of the log;
//   - the answer to a hello or a greeting (proof.go), before there is a connection.

// An evidence says how likely a datagram is the peer's.
type evidence uint8

const (
	noEvidence evidence = iota
	// A repeat that comes later than those of libraries, or a request to repeat a command of
	// ours: a stranger who has guessed one number can send it again and again.
	doubtful
	repeat     // it repeats one of them: the acknowledgement may have been lost
	newCommand // it has one of the next numbers of the peer
	awaited    // it answers a command or a question of ours, which then awaits no other answer
)

// Repeats of the peer: how far behind the next number they may be, and for how long they come after the latest
// command. Libraries give up after three seconds.
const (
	repeatsBehind = 16
	repeatsFor    = 3500 * time.Millisecond
)

// Evident reports whether a datagram that is not empty answers a command or a question of ours, or has
// one of the next or latest numbers of the peer, which a stranger can hardly guess.
func (e *Endpoint) Evident(c *Conn, p []byte) bool { return e.evidence(c, p) >= repeat }

func (e *Endpoint) evidence(c *Conn, p []byte) evidence {
	cmd, r := wire.Command(p[0]), wire.NewReader(p[1:])
	seq, profile := wire.Seq(r.Uint16()), e.cfg.Profile
	switch {
	case r.Err() != nil:
	case cmd == wire.CommandLinkUp, cmd == wire.CommandLinkDown:
		if c.links.question.asks(wire.LinkID(seq)) {
			return awaited
		}
	case cmd == wire.CommandReliableAck:
		n, ok := profile.Unwrap(seq, c.send.next)
		switch o := c.send.find(n); {
		case !ok || o == nil || o.sends == 0:
		case len(p) > 3 && wire.AckCode(p[3]) != wire.AckSuccess:
			return doubtful
		default:
			return awaited
		}
	case isReliable(cmd, profile):
		switch n, a := c.recv.judge(profile, seq); {
		case a == arrivalRepeat && c.recv.repeats(n, e.clock.now):
			return repeat
		case a == arrivalRepeat && n+repeatsBehind >= c.recv.next:
			return doubtful
		case a == arrivalDue, a == arrivalEarly:
			if _, reason := checkReliable(cmd, p[1:]); reason == dropNothing {
				return newCommand
			}
		}
	}
	return noEvidence
}

// LoggedEvident returns what [Endpoint.Evident] would for the connection that a snapshot and the
// changes behind it describe. Its owner sends a command as soon as the log has it, so each counts
// as sent. The log does not say when a command of the peer came, so each of the latest may be repeated.
func LoggedEvident(snapshot []byte, changes []Changes, datagram []byte) bool {
	c := loggedConn(snapshot, changes, unresolved)
	if c == nil {
		return false
	}
	for i := range c.send.flight {
		c.send.flight[i].sends = max(c.send.flight[i].sends, 1)
	}
	return c.e.Evident(c, datagram)
}
