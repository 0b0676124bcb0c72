package replication

import (
	"fmt"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// An OutputKind says which field of an Output is set.
type OutputKind uint8

const (
	OutputBatch  OutputKind = iota + 1 // Data: to everybody who follows the space
	OutputAnswer                       // Answer: to a publisher
	OutputWrite                        // Write: to the edge that asked
	OutputEvent                        // Event: to game servers
	OutputKick                         // Client: to the edges
)

// An Output is one thing that a Store wants sent.
type Output struct {
	Kind   OutputKind
	Data   []byte // immutable for ever, may be shared
	Answer Answer
	Write  WriteResult
	Event  *Event
	Client string
}

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

// A Code tells a publisher's program what was wrong.
type Code string

const (
	CodeBadRequest    Code = "bad_request"    // a bad name, key, index or structure
	CodeTypeMismatch  Code = "type_mismatch"  // the value does not have the value's type
	CodeOutOfRange    Code = "out_of_range"   // the number does not fit the type
	CodeUnknownState  Code = "unknown_state"  // no state has this key
	CodeUnknownClient Code = "unknown_client" // no such client is in the space
	CodeTooLarge      Code = "too_large"      // beyond a limit
	CodeBusy          Code = "busy"           // try again after RetryAfter
	CodeNotAuthorised Code = "not_authorised" // the publisher may not do this
	CodeTooOften      Code = "too_often"      // a client wrote a value more often than its rate; only in events
)

// An Error is the answer to a publish that was not applied.
type Error struct {
	Code       Code
	Message    string        // for people: names what was wrong and what was wanted
	Op         int           // index of the failing op
	RetryAfter time.Duration // of CodeBusy
}

func (e *Error) Error() string { return fmt.Sprintf("op %d: %s: %s", e.Op, e.Code, e.Message) }

// Errorf returns an Error with a formatted message.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}
