package replication

import (
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// An EventType is the name of an event as game servers see it.
type EventType string

const (
	EventJoined    EventType = "joined"
	EventLeft      EventType = "left"
	EventLinked    EventType = "linked"
	EventRejected  EventType = "rejected"
	EventChanged   EventType = "changed" // written by a client
	EventRefused   EventType = "refused" // a client's write that was not applied
	EventReassert  EventType = "reassert"
	EventRecycle   EventType = "recycle"
	EventUncertain EventType = "uncertain"
)

// An Event is news for game servers. The Store makes changed and refused, the
// nodes make the others. Fields that do not belong to the type are zero.
type Event struct {
	Type       EventType
	Space      string
	Time       time.Time
	Epoch, Seq uint64

	Client  string
	Session string
	Edge    string
	Reason  string
	Key     string
	Link    uint16
	Values  []EventValue // of changed and refused
	Code    Code         // of refused; Reason is the bound: min, max, finite or rate
	Missed  uint64       // of refused: events of the client that were left out before this one

	Shard     int       // of reassert
	LostAfter time.Time // of reassert
	Numbers   []uint64  // of uncertain
}

// An EventValue is one value that a client wrote. The event owns its bytes.
type EventValue struct {
	Name  string // the index in digits if the value has no name
	Type  wire.ValueType
	Value []byte
}
