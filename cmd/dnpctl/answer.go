package main

import (
	"encoding/json"
	"errors"
	"fmt"
)

// An answer is what a relay says to a publish or a get.
type answer struct {
	Epoch   uint64       `json:"epoch"`
	Seq     uint64       `json:"seq"`
	Durable *bool        `json:"durable"`
	Error   *answerError `json:"error"`
	Results []struct {
		Error *answerError `json:"error"`
	} `json:"results"`
}

type answerError struct {
	Code       string `json:"code"`
	Message    string `json:"message"`
	Op         *int   `json:"op"`
	RetryAfter int    `json:"retry_after_ms"`
}

func (e *answerError) Error() string {
	text := e.Code + ": " + e.Message
	if e.Op != nil && *e.Op > 0 {
		text += fmt.Sprintf(" (op %d)", *e.Op)
	}
	if e.RetryAfter > 0 {
		text += fmt.Sprintf(" (try again in %d ms)", e.RetryAfter)
	}
	return text
}

// parseAnswer returns the answer, and as the error what it complains about.
func parseAnswer(data []byte) (a answer, err error) {
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
