package publisher

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/dnprelay/dnprelay/replication"
	"github.com/nats-io/nats.go"
)

// Bounds of a publish: the relay takes 10,000 ops, and NATS 1 MiB by default. One op may
// go beyond the bytes.
const (
	opsMax   = 500
	bytesMax = 256 << 10
)

// A message is a publish that waits for its answer. Its ops are applied each for
// itself, so that a bad one does not hold up the others.
type message struct {
	words    []*word // of each op
	deadline time.Time
	asks     bool // how far the relay is; no words
}

// flush sends what may be sent.
func (s *Space) flush(now time.Time) {
	for !s.out.empty() && len(s.sent) < s.p.cfg.Window && !now.Before(s.quiet) {
		m := &message{deadline: now.Add(s.p.cfg.Timeout)}
		if body := s.compose(m); body != nil {
			s.send(now, m, s.p.subjects.Publish(s.name, ""), body)
		}
	}
}

// compose takes words out of the outbox and writes them; nil if they had nothing left
// to say.
func (s *Space) compose(m *message) []byte {
	const head = `{"atomic":false,"ops":[`
	b := []byte(head)
	for !s.out.empty() && len(m.words) < opsMax && len(b) < bytesMax {
		w := s.out.pop()
		form := s.encodeWord(w)
		if form == nil {
			w.settle(Position{}, nil)
			continue
		}
		text, err := json.Marshal(form)
		if err != nil {
			panic("publisher: an op that was checked cannot be written: " + err.Error())
		}
		if len(m.words) > 0 {
			b = append(b, ',')
		}
		b = append(b, text...)
		m.words = append(m.words, w)
	}
	if len(m.words) == 0 {
		return nil
	}
	return append(b, `]}`...)
}

func (s *Space) send(now time.Time, m *message, subject string, body []byte) {
	s.last++
	err := s.p.nc.PublishRequest(subject, s.inbox+"."+strconv.FormatUint(s.last, 10), body)
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		s.refuseAll(m, &Error{Code: string(replication.CodeTooLarge), Message: fmt.Sprintf("%d bytes are more than NATS takes at once (max_payload)", len(body))})
	case err != nil:
		s.fail(now, m)
	default:
		s.sent[s.last] = m
	}
}

// probe asks how far the relay is, if it was not heard for long.
func (s *Space) probe(now time.Time) {
	if len(s.states) == 0 || now.Sub(s.heard) < s.p.cfg.Probe || len(s.sent) > 0 {
		return
	}
	s.heard = now
	s.forgetRemoved(now)
	s.send(now, &message{deadline: now.Add(s.p.cfg.Timeout), asks: true}, s.p.subjects.Get(s.name, ""), []byte(`{"max":1}`))
}

// overdue gives up on answers.
func (s *Space) overdue(now time.Time) {
	for id, m := range s.sent {
		if !now.Before(m.deadline) {
			delete(s.sent, id)
			s.fail(now, m)
		}
	}
}

// fail puts what a message said back: nobody knows whether it was applied, and to say
// how things are again is right in both cases.
func (s *Space) fail(now time.Time, m *message) {
	s.out.unshift(m.words)
	if !now.Before(s.quiet) {
		s.quiet = now.Add(s.pause)
		s.pause = min(2*s.pause, retryMost)
	}
}

func (s *Space) refuseAll(m *message, err *Error) {
	for _, w := range m.words {
		s.refuse(w, err.Code, err.Message)
	}
}

// refuse ends a word that the relay does not take.
func (s *Space) refuse(w *word, code, text string) {
	err := &Error{Op: w.op, Code: code, Message: text}
	if len(w.waiters) == 0 {
		s.p.cfg.Refused(s.name, err)
	}
	w.settle(Position{}, err)
	st := s.states[w.topic.name]
	switch {
	case w.topic.kind == topicGroups:
		if code == string(replication.CodeUnknownClient) {
			delete(s.groups, w.topic.name)
		}
	case st != nil && st.put != nil && w.put && !st.accepted: // the state never was
		delete(s.states, w.topic.name)
	default:
		s.forget(w.topic.name)
	}
}
