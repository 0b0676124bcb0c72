package takeover

import (
	"net/netip"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/forward"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// A Host carries out what a [Takeover] wants. Its methods do not block and do not call
// back.
type Host interface {
	// Must has something done on a later turn of the worker. It must not get lost. Any
	// goroutine may call it.
	Must(do func(now time.Time))

	// View returns what this edge knows of the other edges. Any goroutine may call it.
	View() *View

	// The other workers of the edge.

	// Workers returns the number of workers of the edge.
	Workers() int

	// Pass gives a copy of a datagram to another worker, which calls Intercept and then
	// Misplaced. It may be lost.
	Pass(worker int, client netip.AddrPort, p []byte, edge string, hops uint8)

	// Move has another worker take over a session, with Give. It must not get lost.
	Move(worker int, name string)

	// AdoptAt has some worker of a listener take over a session, with Give. It may be lost.
	AdoptAt(listener uint16, name string)

	// Moved has every worker of this listener, this one too, call ForwardTo. It may be
	// lost.
	Moved(client netip.AddrPort, node string)

	// Clients and other edges.

	// Receive gives a datagram to the endpoint of the worker.
	Receive(now time.Time, client netip.AddrPort, p []byte)

	// Direct sends a copy of a datagram to a client directly, whatever its return path is.
	Direct(client netip.AddrPort, p []byte)

	// Refuse sends a ConnectionClose to a client that has no connection.
	Refuse(client netip.AddrPort)

	// Ask sends a request to another edge. On a later turn of the worker it calls done, whose
	// err is nil if that edge carried out the request.
	Ask(node string, r Request, done func(now time.Time, err error))

	// Reply consents to the request of another edge, if to is not empty. It may be lost.
	Reply(to string)

	// The spaces of the worker and the sessions in them.

	// Follow follows a space, for a while if it has no session. It reports whether the
	// replica is complete.
	Follow(now time.Time, space string) (complete bool)

	// Knows reports whether the replica of the session's space, which is followed, holds everything that
	// links with these Refs are bound to, though perhaps not as it is now.
	Knows(s *Session, refs []uint64) bool

	// Spaces returns the names of the spaces that the worker follows, in order.
	Spaces() []string

	// Serve serves the client of a session that the log has stored, and returns the feed of
	// its messages. If the session has no connection, it was taken over: Serve restores the
	// connection with Session.Log, and returns nil if the log does not tell enough.
	Serve(now time.Time, s *Session) Feed

	// Events and logs.

	// Emit publishes an event for game servers.
	Emit(ev replication.Event)

	// LogAnswers notes, often, whether the log answers, and logs when that changes for the edge.
	LogAnswers(now time.Time, answers bool)

	// Warn logs a problem.
	Warn(text string, args ...any)
}

// Ports are what durable sessions need of a deployment.
type Ports struct {
	// Log stores the logs of all sessions. Secret makes the names of the logs. All edges of
	// a deployment must have the same.
	Log    sessionlog.Log
	Secret []byte

	// OnForgot, if set, sets the function that is told when a server lost a part of Log. lost reports whether a
	// log may lack something. The edge calls OnForgot once, before anything else.
	OnForgot func(handle func(lost func(log string) bool))

	// Affinity says which edge serves which session. nil means that only the log says so.
	Affinity cluster.Affinity

	// Forward carries datagrams to the edges that serve their clients. nil means that an
	// edge takes over each session whose datagrams come to it.
	Forward Forwarder

	// AnswerOnly says that a balancer tracks connections: an edge that takes a session over
	// must not send to the client before a datagram of the client comes. It needs a
	// Forwarder.
	AnswerOnly bool
}

// A Forwarder carries datagrams between edges. All workers call its methods, which must not
// block. Datagrams belong to the caller again when a call returns, and may be lost.
type Forwarder interface {
	// Forward sends a datagram of a client to the edge that serves the client. hops is how
	// often it was forwarded before. It reports false for a node that is not known, or that
	// counts as dead because it was silent for too long: then the caller takes the session
	// over.
	Forward(node string, c forward.Client, hops uint8, datagram []byte) bool

	// Return sends a datagram to a client through the edge to which the client's datagrams
	// come, so that it leaves by the address that the client knows. epoch is that of the
	// session, 0 for none: the other edge sends nothing for an owner that was replaced, and
	// reports the later epoch. Return reports false if the other edge cannot be reached; the
	// caller then sends the datagram itself.
	Return(node string, c forward.Client, epoch uint64, datagram []byte) bool
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
}

// Path returns the return path to the client of a session that was handed over.
func (r *Request) Path() Path { return Path{r.Via, r.Unheard} }
