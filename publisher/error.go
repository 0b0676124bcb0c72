package publisher

import "fmt"

// An Error is a change that was refused, by this package or by the relay.
type Error struct {
	Op      string // what was asked for, as "set tower"
	Code    string // bad_request, type_mismatch, out_of_range, unknown_state, unknown_client, too_large or not_authorised
	Message string // names the value and says what was wanted
}

func (e *Error) Error() string { return fmt.Sprintf("%s: %s: %s", e.Op, e.Code, e.Message) }
