package edge

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/subject"
)

// Headers of messages from and to clients.
const (
	headerSession  = "Dnp-Session"
	headerNumber   = "Dnp-Number"
	headerReliable = "Dnp-Reliable"
	headerToken    = "Dnp-Token"

	// headerStream with a name that no stream has keeps a message out of every stream.
	headerStream = "Nats-Expected-Stream"
)

// repliesMax bounds the messages of a session whose sender waits for a number.
// More of them are sent all the same, but not answered.
const repliesMax = 1024

// message passes a message of the client on to the game servers.
func (s *session) message(ev *dnp.Event) {
	m := bus.Msg{
		Subject: s.edge().cfg.Subjects.From(s.space.name, s.client),
		Header:  map[string]string{headerSession: s.id, headerReliable: strconv.FormatBool(ev.Reliable)},
		Data:    bytes.Clone(ev.Data),
	}
	switch {
	case s.durable != nil:
		m.Header[headerStream] = "none" // streams hold only reliable messages
	case ev.Reliable:
		m.Header[headerNumber] = strconv.FormatUint(ev.Number, 10)
	}
	if err := s.edge().cfg.Bus.Publish(m); err != nil {
		s.space.w.counts.MessagesLost++
		return
	}
	s.space.w.counts.MessagesIn++
}

// told takes a message of a game server to this client, or the holder's word to
// end the session.
func (s *session) told(now time.Time, m bus.Msg) {
	switch m.Header[subject.HeaderControl] {
	case subject.ControlKick:
		s.conn.Close(dnp.CloseKicked)
		s.answer(m.Reply, messageAnswer{})
	case controlReplaced:
		s.giveWay(now, m)
	default:
		s.deliver(m)
	}
}

// deliver sends a message of a game server to the client.
func (s *session) deliver(m bus.Msg) {
	var token uint64
	var err error
	unreliable := m.Header[headerReliable] == "false"
	if unreliable {
		err = s.conn.SendUnreliable(m.Data)
	} else {
		var known bool
		before := s.lastToken
		if token, known = s.token(&m); known {
			return
		}
		if err = s.conn.Send(m.Data, token); err != nil {
			s.lastToken = before
		}
	}
	if err != nil {
		delete(s.replies, token)
		s.space.w.counts.MessagesRefused++
		s.answer(m.Reply, messageAnswer{Error: errorText(err)})
		return
	}
	s.space.w.counts.MessagesOut++
	if unreliable {
		s.answer(m.Reply, messageAnswer{}) // it has no number
	}
}

// A token of a message to the client has the game's token, if the message has one, above
// a count that makes it unique among those that wait for their number.
const (
	tokenShift = 20
	tokenMax   = 1<<(64-tokenShift) - 1 // of a game
)

// token names a message and remembers who waits for its number; 0 is a message that
// nobody wants to know about. The message is known if its game's token is not above that
// of a message before: then it is a repetition, whose answer was lost with an edge. It is
// answered, or will be when the first has its number.
func (s *session) token(m *bus.Msg) (token uint64, known bool) {
	game, err := strconv.ParseUint(m.Header[headerToken], 10, 64)
	named := err == nil && game > 0 && game <= tokenMax
	switch {
	case named && game <= s.lastToken>>tokenShift:
		first := game<<tokenShift + 1
		if _, waits := s.replies[first]; waits {
			s.replies[first] = m.Reply
		} else {
			s.answer(m.Reply, messageAnswer{Duplicate: true})
		}
		return 0, true
	case named:
		s.lastToken = game << tokenShift
	case m.Reply == "":
		return 0, false
	}
	token = s.lastToken>>tokenShift<<tokenShift | (s.lastToken+1)&(1<<tokenShift-1)
	if len(s.replies) < repliesMax || m.Reply == "" {
		s.lastToken = token
		s.replies[token] = m.Reply
		return token, false
	}
	s.space.w.counts.AnswersLost++
	if !named {
		return 0, false
	}
	s.lastToken = token
	return token, false
}

// expectQueued notes the messages that came with a session and have no number yet, so
// that one of them that is said again is neither sent twice nor promised already.
func (s *session) expectQueued() {
	for token := range s.conn.QueuedTokens {
		if token > 0 {
			s.replies[token] = ""
			s.lastToken = max(s.lastToken, token)
		}
	}
}

// sent answers the sender of a message with the number that it got.
func (s *session) sent(ev *dnp.Event) {
	s.answer(s.replies[ev.Token], messageAnswer{Number: &ev.Number})
	delete(s.replies, ev.Token)
}

// answerWaiting tells those who wait for numbers that the client is gone.
func (s *session) answerWaiting() {
	for _, token := range slices.Sorted(maps.Keys(s.replies)) {
		s.answer(s.replies[token], messageAnswer{Error: &answerError{replication.CodeUnknownClient, "the client left before the message was sent"}})
	}
	clear(s.replies)
}

// A messageAnswer is what the sender of a message is told.
type messageAnswer struct {
	Number    *uint64      `json:"number,omitempty"`
	Duplicate bool         `json:"duplicate,omitempty"`
	Error     *answerError `json:"error,omitempty"`
}

type answerError struct {
	Code    replication.Code `json:"code"`
	Message string           `json:"message"`
}

func errorText(err error) *answerError {
	switch err {
	case nil:
		return nil
	case dnp.ErrTooLarge:
		return &answerError{replication.CodeTooLarge, err.Error()}
	case dnp.ErrBacklog:
		return &answerError{replication.CodeBusy, err.Error()}
	}
	return &answerError{replication.CodeBadRequest, err.Error()}
}

func (s *session) answer(reply string, a messageAnswer) {
	if reply == "" {
		return
	}
	data, err := json.Marshal(a)
	if err != nil {
		panic("edge: an answer that JSON cannot express: " + err.Error())
	}
	if s.edge().cfg.Bus.Publish(bus.Msg{Subject: reply, Data: data}) != nil {
		s.space.w.counts.AnswersLost++
	}
}

// deliverAll sends a message to every client of a space.
func (w *Worker) deliverAll(name string, m bus.Msg) {
	s, ok := w.spaces[name]
	if !ok {
		return
	}
	m.Reply = "" // a message to everybody has no number
	for _, session := range s.sessions {
		session.deliver(m)
	}
}

// live applies a batch of the holder.
func (w *Worker) live(now time.Time, name string, batch []byte) {
	s, ok := w.spaces[name]
	if !ok {
		return
	}
	span := w.edge.signals.replicate(name, batch)
	s.replica.Apply(now, batch)
	span.End()
	w.pending.applied(now, span)
}
