package replication

import (
	"fmt"
	"time"
)

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
