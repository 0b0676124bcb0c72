// Package fanout serves the clients of one worker of an edge. It keeps a replica of
// every space that has clients, links each client to the states that the client may
// see, brings what clients write to the holder of the space until the holder
// acknowledges it, and carries messages between clients and game servers.
//
// To drive it: New; for each connection NewSession and Begin, or, for the session of
// another edge, Follow until the replica is complete, NewSession, Resolve for each link
// that is restored, and Resume (Discard if the connection could not be restored). Give the
// events of the connection to Session.Handle; apply batches, heads and answers to the
// Replica of their space; pass messages to all clients of a space to SendToAll; call
// Reconnected when the bus is back; and call Advance once per turn.
// Everything runs on the turns of the worker: the package starts no goroutine, reads no
// clock, and sends messages through its Host.
//
// It does not decide who a client is: claims come from outside. It does not store
// sessions either: of a durable session it knows only the epoch.
package fanout

import (
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/subject"
)

// A Host is what the package needs of the worker that drives it. Its methods do not
// block. It calls back only on a turn of the worker, and never from inside a method.
type Host interface {
	// Publish sends a message, which belongs to the host from then on. An error means
	// that the message is lost.
	Publish(m bus.Msg) error

	// Request sends a message and calls done with the answer, or with an error if none
	// comes within wait. done is not called if the answer or the error finds the worker's
	// inbox full.
	Request(m bus.Msg, wait time.Duration, done func(now time.Time, answer bus.Msg, err error))

	// Repair sends the repair request of a replica, or has the answer to the request of
	// another worker's replica serve for both: see Replica.Shared. The answer comes to
	// Replica.ApplyReply. An error means that the request is lost.
	Repair(now time.Time, space string, shard int, request []byte) (replication.Asked, error)

	// Subscribe calls handle for the messages on one subject until end is called.
	// Messages that do not fit into the worker's inbox are lost.
	Subscribe(subject string, handle func(now time.Time, m bus.Msg)) (end func())

	// Follow brings the batches, heads and messages of a space to Spaces. Unfollow ends
	// that; during Unfollow, Spaces.Replica still returns the replica of the space.
	Follow(space string, shard int)
	Unfollow(space string, shard int)
}

// ClientStates says what becomes of the states that clients offer.
type ClientStates uint8

const (
	// ClientStatesGame accepts them. No client is offered a link to them until a game
	// server sets their audience.
	ClientStatesGame ClientStates = iota
	// ClientStatesSpace accepts them and offers them to every client but their owner.
	ClientStatesSpace
	// ClientStatesOff refuses them with LinkDown.
	ClientStatesOff
)

// Config is what Spaces are made of. All fields but the last three must be set.
type Config struct {
	Host     Host
	Endpoint *dnp.Endpoint // of the worker
	Node     string        // name of the edge in events
	Subjects subject.Names
	Shards   int // of the deployment

	// Linger is how long a space is followed after its last client left.
	Linger time.Duration

	ClientStates ClientStates
	Recycle      Recycle

	// Describe makes the link message of each state whose publisher gave none describe it; see
	// package linkmsg. Without, it is the key.
	Describe bool
}

// Counts are the counters of the package: of messages, unless a comment says otherwise.
type Counts struct {
	Sessions        int64  // sessions at present
	Levels          int64  // levels of detail of states that some client has at present
	Seeing          int64  // sessions with eyes at present, in spaces with interests
	Looks           uint64 // looks at what a session sees
	BandMoves       uint64 // states that came into another band of a session
	Sightings       uint64 // states that game servers were told to be in sight of a client, or no longer
	SightingsWaits  uint64 // times that news of a client's sight waited for 250 ms, because there were too many
	Events          uint64 // events published for game servers
	EventsLost      uint64 // events that the bus refused
	MessagesIn      uint64 // from clients to game servers
	MessagesOut     uint64 // to clients
	MessagesLost    uint64 // refused by the bus
	MessagesRefused uint64 // to clients: empty, too large, or too many
	ClientsLimited  uint64 // sessions whose clients turned out not to take long messages
	Commands        uint64 // of clients, passed on to game servers
	CommandsRefused uint64 // commands of clients that the edge refused
	CommandsLate    uint64 // commands whose answer did not come in time
	CommandAnswers  uint64 // answers to commands, with those of the edge
	AnswersLost     uint64 // answers to senders that the bus refused, or beyond repliesMax
	RepairsLost     uint64 // repair requests that the bus refused
	WritesForbidden uint64 // updates by clients that may not write the state
	WritesRefused   uint64 // requests of which the holder refused some value
	WritesRepeated  uint64 // requests sent again: not answered in time, or answered "try again"
	WritesDropped   uint64 // values beyond the bounds of what a client may have unacknowledged
	LinksRefused    uint64 // links not offered because the client has as many as it may, or its LinkIds are used up
	LinkIDsFew      uint64 // sessions with nine tenths of their LinkIds used up
	LinkIDsUsedUp   uint64 // sessions without a LinkId left
	Laps            uint64 // sessions that came to the end of a lap
	OffersRefused   uint64 // states that clients offered
	DropsForgotten  uint64 // states that a client took back, of which the holder hears only when the client leaves
}

// A base is what all parts of the package share.
type base struct {
	Config
	counts Counts
	// writeNumber is that of the latest write request of any session that is not durable.
	// The numbers of one session only have to increase, so all sessions share a counter.
	writeNumber uint32
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
