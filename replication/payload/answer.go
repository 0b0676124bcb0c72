package payload

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/dnprelay/dnprelay/replication"
)

// An Answer is the JSON form of the answer of a relay to a publish or a get, or of an edge to
// a message.
type Answer struct {
	Epoch, Seq uint64
	Durable    *bool   // nil = yes
	Number     *uint64 // of the message
	Duplicate  bool    // the edge had the message already
	Error      *AnswerError
	Results    []struct{ Error *AnswerError } // one per op if the publish was not atomic
}

// An AnswerError is an error in an Answer.
type AnswerError struct {
	Code       replication.Code
	Message    string
	Op         *int  // index of the failing op
	RetryAfter int64 `json:"retry_after_ms"`
}

// HasCode reports whether an error is that of an answer with a code.
func HasCode(err error, code replication.Code) bool {
	refused, ok := errors.AsType[*AnswerError](err)
	return ok && refused.Code == code
}

func (e *AnswerError) Error() string {
	text := string(e.Code) + ": " + e.Message
	if e.Op != nil && *e.Op > 0 {
		text += fmt.Sprintf(" (op %d)", *e.Op)
	}
	if e.RetryAfter > 0 {
		text += fmt.Sprintf(" (try again in %d ms)", e.RetryAfter)
	}
	return text
}

// ParseAnswer parses an Answer. The error has all errors in it.
func ParseAnswer(data []byte) (a Answer, err error) {
	if err := json.Unmarshal(data, &a); err != nil {
		return a, fmt.Errorf("the answer cannot be read: %w: %.200q", err, data)
	}
	if a.Error != nil {
		return a, a.Error
	}
	var errs []error
	for i, r := range a.Results {
		if r.Error != nil {
			r.Error.Op = &i
			errs = append(errs, r.Error)
		}
	}
	return a, errors.Join(errs...)
}
