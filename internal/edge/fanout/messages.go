package fanout

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/subject"
)

// headerStream with a name that no stream has keeps a message out of every stream.
const headerStream = "Nats-Expected-Stream"

// repliesMax bounds the messages of a session whose sender waits for a number. The edge
// sends more of them all the same, but answers for none of those.
const repliesMax = 1024

// Messages are the messages between a client and the game servers.
type messages struct {
	*peer
	replies   map[uint64]string // reply subjects of messages that have no number yet, by token
	lastToken uint64
}

// receive passes a message of the client on to the game servers.
func (c *messages) receive(ev *dnp.Event) {
	m := bus.Msg{
		Subject: c.Subjects.From(c.name, c.client),
		Header:  map[string]string{subject.HeaderSession: c.id, subject.HeaderReliable: strconv.FormatBool(ev.Reliable)},
		Data:    bytes.Clone(ev.Data),
	}
	switch {
	case c.durable > 0:
		m.Header[headerStream] = "none" // streams hold only reliable messages
	case ev.Reliable:
		m.Header[subject.HeaderNumber] = strconv.FormatUint(ev.Number, 10)
	}
	if c.Host.Publish(m) != nil {
		c.counts.MessagesLost++
		return
	}
	c.counts.MessagesIn++
}

// send sends a message of a game server to the client.
func (c *messages) send(m bus.Msg) {
	var token uint64
	var err error
	unreliable := m.Header[subject.HeaderReliable] == "false"
	if unreliable {
		err = c.conn.SendUnreliable(m.Data)
	} else {
		var known bool
		before := c.lastToken
		if token, known = c.token(&m); known {
			return
		}
		if err = c.conn.Send(m.Data, token); err != nil {
			c.lastToken = before
		}
	}
	if err != nil {
		delete(c.replies, token)
		c.counts.MessagesRefused++
		c.answer(m.Reply, messageAnswer{Error: answerErrorOf(err)})
		return
	}
	c.counts.MessagesOut++
	if unreliable {
		c.answer(m.Reply, messageAnswer{}) // it has no number
	}
}

// A token of a message to the client has the game's token, if the message has one, above
// a count that makes it unique among the messages that wait for their number.
const (
	tokenShift = 20
	tokenMax   = 1<<(64-tokenShift) - 1 // of a game
)

// token names a message and remembers where its number is to be sent; 0 names a message
// whose number no sender wants. The message is known if its game's token is not above that
// of an earlier message: then it is a repetition, because the answer was lost with an edge.
// The edge answers it at once, or when the first copy has its number.
func (c *messages) token(m *bus.Msg) (token uint64, known bool) {
	game, err := strconv.ParseUint(m.Header[subject.HeaderToken], 10, 64)
	named := err == nil && game > 0 && game <= tokenMax
	switch {
	case named && game <= c.lastToken>>tokenShift:
		first := game<<tokenShift + 1
		if _, waits := c.replies[first]; waits {
			c.replies[first] = m.Reply
		} else {
			c.answer(m.Reply, messageAnswer{Duplicate: true})
		}
		return 0, true
	case named:
		c.lastToken = game << tokenShift
	case m.Reply == "":
		return 0, false
	}
	token = c.lastToken>>tokenShift<<tokenShift | (c.lastToken+1)&(1<<tokenShift-1)
	token = max(token, 1) // the count wraps
	if len(c.replies) < repliesMax || m.Reply == "" {
		c.lastToken = token
		c.replies[token] = m.Reply
		return token, false
	}
	c.counts.AnswersLost++
	if !named {
		return 0, false
	}
	c.lastToken = token
	return token, false
}

// expectQueued notes the messages that came with a restored connection and have no number
// yet, so that a repetition of one of them is neither sent twice nor promised already.
func (c *messages) expectQueued() {
	for token := range c.conn.QueuedTokens {
		if token > 0 {
			c.replies[token] = ""
			c.lastToken = max(c.lastToken, token)
		}
	}
}

// sent answers the sender of a message with the number that the message got.
func (c *messages) sent(ev *dnp.Event) {
	c.answer(c.replies[ev.Token], messageAnswer{Number: &ev.Number})
	delete(c.replies, ev.Token)
}

// clientLeft answers the senders that wait for numbers.
func (c *messages) clientLeft() {
	for _, token := range slices.Sorted(maps.Keys(c.replies)) {
		c.answer(c.replies[token], messageAnswer{Error: &answerError{replication.CodeUnknownClient, "the client left before the message was sent"}})
	}
	clear(c.replies)
}

// A messageAnswer is the answer to the sender of a message.
type messageAnswer struct {
	Number    *uint64      `json:"number,omitempty"`
	Duplicate bool         `json:"duplicate,omitempty"`
	Error     *answerError `json:"error,omitempty"`
}

type answerError struct {
	Code    replication.Code `json:"code"`
	Message string           `json:"message"`
}

func answerErrorOf(err error) *answerError {
	switch err {
	case dnp.ErrTooLarge:
		return &answerError{replication.CodeTooLarge, err.Error()}
	case dnp.ErrBacklog:
		return &answerError{replication.CodeBusy, err.Error()}
	}
	return &answerError{replication.CodeBadRequest, err.Error()}
}

func (c *messages) answer(reply string, a messageAnswer) {
	if reply == "" {
		return
	}
	data, err := json.Marshal(a)
	if err != nil {
		panic("fanout: an answer that JSON cannot express: " + err.Error())
	}
	if c.Host.Publish(bus.Msg{Subject: reply, Data: data}) != nil {
		c.counts.AnswersLost++
	}
}
