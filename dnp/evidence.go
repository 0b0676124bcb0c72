package dnp

import "github.com/dnprelay/dnprelay/dnp/wire"

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
//     one that lives but cannot be reached;
//   - the answer to a question (question.go), which takes a random number: it decides the way of
//     datagrams, and whether the peer has the history that the log has;
//   - silence after questions, for as long as answers may get lost (lossEstimate.silence): it
//     ends a connection after a ConnectionClose, a second request or a contradiction of the log;
//   - the answer to a hello or a greeting (proof.go), before there is a connection.

// evidentBehind is how far behind the next number a command of the peer may be: it is a repeat
// whose acknowledgement was lost.
const evidentBehind = 16

// Evident reports whether a datagram that is not empty has a number that a stranger can hardly
// guess: of a command of ours in flight, or of the next or latest ones of the peer.
func (e *Endpoint) Evident(c *Conn, p []byte) bool {
	cmd, r := wire.Command(p[0]), wire.NewReader(p[1:])
	seq, profile := wire.Seq(r.Uint16()), e.cfg.Profile
	switch {
	case r.Err() != nil:
		return false
	case cmd == wire.CommandReliableAck:
		n, ok := profile.Unwrap(seq, c.send.next)
		o := c.send.find(n)
		return ok && o != nil && o.sends > 0
	case isReliable(cmd, profile):
		n, a := c.recv.judge(profile, seq)
		return a != arrivalOutside && n+evidentBehind >= c.recv.next
	}
	return false
}

// LoggedEvident returns what [Endpoint.Evident] would for the connection that a snapshot and the
// changes behind it describe. Its owner sends a command as soon as the log has it, so each counts
// as sent.
func LoggedEvident(snapshot []byte, changes []Changes, datagram []byte) bool {
	c := loggedConn(snapshot, changes)
	if c == nil {
		return false
	}
	for i := range c.send.flight {
		c.send.flight[i].sends = max(c.send.flight[i].sends, 1)
	}
	return c.e.Evident(c, datagram)
}
