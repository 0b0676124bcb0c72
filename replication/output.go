package replication

import (
	"fmt"
	"time"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// An OutputKind says which field of an Output is set.
type OutputKind uint8

const (
	OutputBatch  OutputKind = iota + 1 // Data: for all replicas of the space
	OutputAnswer                       // Answer: for a publisher
	OutputWrite                        // Write: for the edge that sent the Write
	OutputEvent                        // Event: for game servers
	OutputKick                         // Client, Data, Session: for all edges
)

// An Output is one message that a Store sends.
type Output struct {
	Kind   OutputKind
	Data   []byte // never changed, may be shared
	Answer Answer
	Write  WriteResult
	Event  *Event

	Client  string
	Session string // the only one that a kick ends; empty for all of the client
}

// An EventType is the name of an event on the wire.
type EventType string

const (
	EventJoined    EventType = "joined"
	EventLeft      EventType = "left"
	EventLinked    EventType = "linked"
	EventPresumed  EventType = "presumed" // the client acknowledged the offer and said nothing
	EventRejected  EventType = "rejected"
	EventChanged   EventType = "changed" // written by a client
	EventRefused   EventType = "refused" // a write of a client that was not applied
	EventReassert  EventType = "reassert"
	EventRecycle   EventType = "recycle"
	EventUncertain EventType = "uncertain"
	EventLimited   EventType = "limited" // the client takes no long messages
	EventCommand   EventType = "command" // a client's command went to game servers
	EventExpired   EventType = "expired" // the time to live of a state was over
	EventSees      EventType = "sees"    // states came into sight of a client
	EventUnsees    EventType = "unsees"  // states went out of its sight
)

// An Event informs game servers. The Store makes changed, refused and expired events, the nodes
// make the others. Fields that do not belong to the type are zero.
type Event struct {
	Type       EventType
	Space      string
	Time       time.Time
	Epoch, Seq uint64

	Client  string
	Session string
	Edge    string
	Reason  string
	Detail  string // of left with the reason kicked: why, in the words of who kicked
	Key     string
	Link    uint16
	Values  []EventValue // of changed and refused
	Code    Code         // of refused; Reason is the bound: min, max, finite or rate
	Missed  uint64       // of refused: earlier events of the client that were left out

	Shard     int       // of reassert
	LostAfter time.Time // of reassert; zero if the node does not know it
	Numbers   []uint64  // of uncertain
	Command   string    // of command: its name
	Keys      []string  // of sees and unsees
	Anew      bool      // of sees: what was told of the client before no longer counts
}

// An EventValue is one value that a client wrote. The event owns its bytes.
type EventValue struct {
	Name  string // the index in digits for a value without a name
	Type  wire.ValueType
	Value []byte

	Struct []StructField // the components, if it has some
}

// A Code tells the program of a publisher what was wrong.
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
	CodeTooOften      Code = "too_often"      // the client exceeds the rate of a value; only in events
)

// An Error is the answer to a publish that was not applied.
type Error struct {
	Code       Code
	Message    string        // for people: the fault and what was expected
	Op         int           // index of the failing op
	RetryAfter time.Duration // of CodeBusy
}

func (e *Error) Error() string { return fmt.Sprintf("op %d: %s: %s", e.Op, e.Code, e.Message) }

// In puts what, which contains the fault, in front of the message, and returns e.
func (e *Error) In(what string) *Error {
	e.Message = what + ": " + e.Message
	return e
}

// Errorf returns an Error with a formatted message.
func Errorf(code Code, format string, args ...any) *Error {
	return &Error{Code: code, Message: fmt.Sprintf(format, args...)}
}
