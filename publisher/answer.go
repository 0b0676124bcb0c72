package publisher

import (
	"encoding/json"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/replication"
	"github.com/nats-io/nats.go"
)

// An answer is what a relay says to a publish or get, or an edge to a message.
type answer struct {
	Epoch, Seq uint64
	Number     *uint64
	Duplicate  bool
	Error      *answerError
	Results    []struct{ Error *answerError }
}

type answerError struct {
	Code, Message string
	RetryAfter    int64 `json:"retry_after_ms"`
}

// noResponders reports NATS' own word that nobody listens.
func noResponders(m *nats.Msg) bool { return len(m.Data) == 0 && m.Header.Get("Status") == "503" }

// answered takes an answer. One that comes late is about words that were put back, and
// says nothing that is needed.
func (s *Space) answered(now time.Time, reply *nats.Msg) {
	id, ok := s.id(reply.Subject)
	m := s.sent[id]
	if !ok || m == nil {
		return
	}
	delete(s.sent, id)
	var a answer
	if noResponders(reply) || json.Unmarshal(reply.Data, &a) != nil || a.Epoch < s.epoch {
		s.fail(now, m) // also: a relay that does not know that it was replaced
		return
	}
	s.heard = now
	s.follow(a.Epoch)
	switch {
	case a.Error != nil && a.Error.Code == string(replication.CodeBusy):
		s.fail(now, m)
		s.quiet = now.Add(max(s.p.cfg.Retry, time.Duration(a.Error.RetryAfter)*time.Millisecond))
	case a.Error != nil:
		s.refuseAll(m, &Error{Code: a.Error.Code, Message: a.Error.Message})
	case !m.asks && len(a.Results) != len(m.words):
		s.fail(now, m)
	default:
		s.pause, s.quiet = s.p.cfg.Retry, time.Time{}
		s.results(now, m, a)
	}
}

func (s *Space) results(now time.Time, m *message, a answer) {
	var again []*word
	for i, w := range m.words {
		err := a.Results[i].Error
		if err == nil {
			w.settle(Position{a.Epoch, a.Seq}, nil)
			s.settled(w)
			continue
		}
		w.tries++
		switch s.cure(w, replication.Code(err.Code)) {
		case cureNone:
			s.refuse(w, err.Code, err.Message)
		case cureDone:
			w.settle(Position{a.Epoch, a.Seq}, nil)
			s.settled(w)
		case cureAgain:
			again = append(again, w)
		case curePause:
			again = append(again, w)
			s.quiet = now.Add(max(s.p.cfg.Retry, time.Duration(err.RetryAfter)*time.Millisecond))
		case cureLater:
			s.late = append(s.late, lateWord{now.Add(s.p.cfg.Retry), w})
		}
	}
	s.out.unshift(again)
}

// A cure is what helps against a refusal.
type cure uint8

const (
	cureNone  cure = iota
	cureDone       // it is as it should be
	cureAgain      // at once, in other words
	curePause      // all words, after a pause
	cureLater      // this word, after a pause
)

// cure finds one, and says the word otherwise if that is it.
func (s *Space) cure(w *word, code replication.Code) cure {
	st := s.states[w.topic.name]
	ours := w.topic.kind != topicGroups && st != nil && st.put != nil
	switch {
	case code == replication.CodeBusy:
		return curePause
	case code == replication.CodeUnknownState && ours && !st.removedAt.IsZero():
		return cureDone
	case w.tries > triesMax:
		return cureNone
	case ours && !w.put && mismatch(code): // the relay lost it, or has not heard of its new form
		w.topic.kind, w.put, w.fresh = topicState, true, true
		return cureAgain
	case code == replication.CodeUnknownClient && w.topic.kind == topicGroups: // the relay has not heard of the client yet
		return cureLater
	}
	return cureNone
}

// mismatch reports whether a refusal of values that were checked says that the relay has
// another state than the copy, or none.
func mismatch(code replication.Code) bool {
	switch code {
	case replication.CodeUnknownState, replication.CodeBadRequest, replication.CodeTypeMismatch, replication.CodeOutOfRange:
		return true
	}
	return false
}

// A lateWord is said again at a time.
type lateWord struct {
	at   time.Time
	word *word
}

// due says what was put off.
func (s *Space) due(now time.Time) {
	for len(s.late) > 0 && !s.late[0].at.After(now) {
		s.out.push(s.late[0].word)
		s.late = slices.Delete(s.late, 0, 1)
	}
}

// settled forgets what need not be remembered once it is accepted or refused.
func (s *Space) settled(w *word) {
	name := w.topic.name
	if w.topic.kind == topicGroups {
		s.leftGroups(name)
		return
	}
	st := s.states[name]
	if st == nil {
		return
	}
	if w.put {
		st.accepted = true
	}
	s.forget(name)
}

// forget forgets somebody else's state about which everything is accepted.
func (s *Space) forget(name string) {
	st := s.states[name]
	if st != nil && st.put == nil && !s.pending(topic{topicState, name}) && !s.pending(topic{topicAudience, name}) {
		delete(s.states, name)
	}
}

// leftGroups forgets the groups that a client left.
func (s *Space) leftGroups(client string) {
	if s.pending(topic{topicGroups, client}) {
		return
	}
	groups := s.groups[client]
	for g, in := range groups {
		if !in {
			delete(groups, g)
		}
	}
	if len(groups) == 0 {
		delete(s.groups, client)
	}
}

// pending reports whether something about a topic is not accepted yet.
func (s *Space) pending(t topic) bool {
	if s.out.words[t] != nil {
		return true
	}
	for _, m := range s.sent {
		for _, w := range m.words {
			if w.topic == t {
				return true
			}
		}
	}
	return false
}

// follow takes the epoch that an answer or event names. A new one is another relay,
// which may lack what the last one had not stored.
func (s *Space) follow(epoch uint64) {
	if epoch <= s.epoch {
		return
	}
	if s.epoch != 0 {
		s.assert()
	}
	s.epoch = epoch
}
