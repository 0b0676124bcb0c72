package takeover

import (
	"net/netip"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// A Host carries out what a [Takeover] wants. Its methods do not block and do not call
// back. Answers come as calls of the methods that the comments name, on later turns of the
// worker; unless a comment says otherwise, they must not get lost.
type Host interface {
	// The other workers of the edge, and what all workers share.

	// BorrowLocations returns the location table of the edge for exclusive use until
	// ReturnLocations. Only datagrams of clients that the worker does not serve, and
	// sessions that begin or end, need it.
	BorrowLocations() *Locations
	ReturnLocations()

	// View returns what this edge knows of the other edges.
	View() *View

	// Workers returns the number of workers of the edge.
	Workers() int

	// Pass gives a copy of a datagram to another worker, which calls Intercept and then
	// Misplaced. It may be lost.
	Pass(worker int, client netip.AddrPort, p []byte, edge string, hops uint8)

	// Move has another worker take over a session, with Give.
	Move(worker int, name string)

	// AdoptAt has some worker of a listener take over a session, with Give. It may be lost.
	AdoptAt(listener uint16, name string)

	// Moved has every worker of this listener, this one too, call ForwardTo. It may be
	// lost.
	Moved(client netip.AddrPort, node string)

	// Clients and other edges.

	// Receive gives a datagram to the endpoint of the worker.
	Receive(now time.Time, client netip.AddrPort, p []byte)

	// Refuse sends a ConnectionClose to a client that has no connection.
	Refuse(client netip.AddrPort)

	// Forward sends a datagram of a client to the edge that serves it. hops is how often it
	// was forwarded before. It reports false if that edge is not known or counts as dead.
	// The datagram may be lost.
	Forward(node string, client netip.AddrPort, hops uint8, p []byte) bool

	// Return sends a datagram to a client by the edge over which its datagrams come. It
	// reports false if that edge cannot be reached. epoch is that of the session; 0 for none.
	// The other edge reports a later one to Overtaken.
	Return(node string, client netip.AddrPort, epoch uint64, p []byte) bool

	// Ask sends a request to another edge. The answer comes to Consented.
	Ask(node string, r Request)

	// Reply consents to the request of another edge, if to is not empty. It may be lost.
	Reply(to string)

	// The log and the affinity.

	// Append requests a write for each owner, and Read the log of one. The answers come to
	// Answer.
	Append(writes []sessionlog.Write, owners []*Session)
	Read(name string, owner *Session)

	// Find and Try ask the affinity, see cluster.Affinity. The answers come to Located and
	// to Tried.
	Find(q Question)
	Try(q Question)

	// Claim and Release change the claim of this edge on a session.
	Claim(name string, epoch uint64)
	Release(name string, epoch uint64)

	// List lists the claims of a dead edge. Those of View.Inherited come to Inherit in parts,
	// which may be lost. The end comes to Listed, together with rounds.
	List(node string, rounds int)

	// The spaces of the worker and the sessions in them.

	// Follow follows a space, for a while if it has no session. It reports whether the
	// replica is complete.
	Follow(now time.Time, space string) (complete bool)

	// Spaces returns the names of the spaces that the worker follows, in order.
	Spaces() []string

	// Begin serves the client of a session that the log has stored, and returns the feed of
	// its messages.
	Begin(now time.Time, s *Session) Feed

	// Resume restores the connection of a session that was taken over, with
	// Takeover.Restore, and serves its client. It returns nil if the log does not tell
	// enough.
	Resume(now time.Time, s *Session) Feed

	// Events and logs.

	// Emit publishes an event for game servers.
	Emit(ev replication.Event)

	// Warn logs a problem.
	Warn(text string, args ...any)
}

// A Feed carries the reliable messages of one session to game servers. Its methods do not
// block. What is delivered comes to Takeover.Delivered.
type Feed interface {
	// Deliver takes the next message, whose data it may keep.
	Deliver(m sessionlog.Message)

	// End forgets what is not delivered: the next owner of the session delivers it.
	End()
}

// A Request is what one edge asks another, on the subject of that other edge.
type Request struct {
	// Prepare are spaces that the other edge has to follow before sessions come. It answers
	// when it has their states.
	Prepare []string `json:"prepare,omitempty"`

	// Adopt is a session that was handed over, by the name of its log. ClientAddr is the address
	// of its client, a hint, and Listener the port that the client talks to. Via is the edge to
	// which the client's datagrams come; it is empty if that is the edge that is asked, or if Unheard says that
	// the edge is not known.
	Adopt      string `json:"adopt,omitempty"`
	Listener   uint16 `json:"listener,omitempty"`
	ClientAddr string `json:"client,omitempty"`
	Via        string `json:"via,omitempty"`
	Unheard    bool   `json:"unheard,omitempty"`

	session *Session // of Adopt, at the edge that asks
}

// Path returns the return path to the client of a session that was handed over.
func (r *Request) Path() Path { return Path{r.Via, r.Unheard} }

// A Question is one to the affinity, about a session. It comes back with the answer.
type Question struct {
	Name string         // of the log
	Seen cluster.Served // Try: what Find answered

	why     reason
	client  netip.AddrPort   // heldDatagrams: whose datagrams wait
	request bool             // heldDatagrams: the first of them is a ConnectionRequest
	node    string           // inheritedClaim: the dead edge that had the session
	claim   *supersededClaim // staleClaim
	mayTake bool             // staleClaim: the session may be taken back
}

// A reason says why the edge asks the affinity.
type reason uint8

const (
	forHeldDatagrams reason = iota
	forInheritedClaim
	forSupersededClaim
)
