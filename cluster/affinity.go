package cluster

import "errors"

// Errors of an Affinity.
var (
	// ErrAffinityAway says that the store of claims does not answer, or not in time.
	ErrAffinityAway = errors.New("the affinity store does not answer")

	// ErrAffinityBusy says that more questions wait than is allowed.
	ErrAffinityBusy = errors.New("too much waits for the affinity store")

	// ErrAffinityAnswer says that the store has a value that no node of this deployment writes.
	ErrAffinityAnswer = errors.New("the affinity store has something else")
)

// Served says which node serves a session.
type Served struct {
	Node  string // empty if the session is not claimed
	Epoch uint64 // of the session, as its log counts
	Alive bool   // Node has said recently that it is alive

	// Trying is the node that is about to take the session over; empty for none.
	Trying string
}

// Affinity is an edge's port to the claims: which edge serves which session. A session is named
// by its log.
//
// All claims are hints, which decide which edge tries to take a session over and where a datagram
// is sent first. The log of a session alone decides who serves it, so a store that is empty, late
// or wrong costs a detour. Methods may be called from any goroutine and never block. Each question
// is answered once and in bounded time, also if there is no store: within about half a second.
// Answers and callbacks come from goroutines of the adapter, possibly before the method returns,
// and must not block. Packages redisaffinity and memaffinity implement it; both pass the
// conformance suite in the tests of redisaffinity.
type Affinity interface {
	// Claim says that this node serves the session, from now until Release. The adapter writes
	// the claim again and again, so that a store that forgot everything has it soon. A later
	// epoch replaces the claim.
	Claim(name string, epoch uint64)

	// Release says that this node stopped serving the session. A claim in a later epoch, or of
	// another node, is left alone.
	Release(name string, epoch uint64)

	// OnReplaced sets the function that is told when the store has a later claim of another
	// node for a session that this node claims. The claim is not renewed there then. A store of
	// two servers may tell the same twice. OnReplaced is called once, before anything else.
	OnReplaced(handle func(name string, by Served))

	// Find asks which node serves a session.
	Find(name string, answer func(Served, error))

	// Try asks for permission to take over a session that seen served. If the answer has this
	// node in Trying, the permission is exclusive for the next second. If the session was
	// claimed since, the answer has that claim.
	Try(name string, seen Served, answer func(Served, error))

	// Claimed lists the sessions that node claimed within about the last two minutes, in parts
	// and in no order; other nodes may have taken them over since. One goroutine at a time
	// calls each.
	Claimed(node string, each func(names []string), done func(error))
}
