package fanout

import (
	"bytes"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/command"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/subject"
)

// NATS stores a message only in the stream that headerStream names, so the name of no
// stream keeps it out of all.
const headerStream = "Nats-Expected-Stream"

// repliesMax bounds the messages of a session whose sender waits for a number. The edge
// sends more of them all the same, but answers for none of those. A connection queues
// fewer messages (256), and those in its queue are the ones that have no number.
const repliesMax = 1024

// messages are the messages between a client and the game servers.
type messages struct {
	*peer
	replies   map[uint64]string // reply subjects of messages that have no number yet, by token
	lastToken uint64
	limited   bool // the client takes no message above dnp.WholeMax
	enveloped bool // messages of game servers that begin like envelopes are put into one
}

// receive passes a message of the client on to the game servers.
func (c *messages) receive(now time.Time, ev *dnp.Event) {
	m := bus.Msg{
		Subject: c.Subjects.From(c.spaceName, c.Claims.Client),
		Header:  map[string]string{subject.HeaderSession: c.ID, subject.HeaderReliable: strconv.FormatBool(ev.Reliable)},
		Data:    bytes.Clone(ev.Data),
	}
	switch {
	case c.SessionEpoch > 0:
		m.Header[headerStream] = "none" // streams hold only reliable messages
	case ev.Reliable:
		m.Header[subject.HeaderNumber] = strconv.FormatUint(ev.Number, 10)
	}
	c.wait(now, len(m.Data), func() { c.publish(m) })
}

func (c *messages) publish(m bus.Msg) {
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
	if c.enveloped && !unreliable && command.IsEnvelope(m.Data) {
		m.Data = command.AppendRaw(nil, m.Data)
	}
	switch {
	case unreliable:
		err = c.conn.SendUnreliable(m.Data)
	case c.limited && len(m.Data) > dnp.WholeMax: // nor was a repetition sent
		err = dnp.ErrTooLarge
	default:
		game, before := gameToken(&m), c.lastToken
		if c.repeated(game, m.Reply) {
			return
		}
		token = c.newToken(game, m.Reply)
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
// a count that makes it unique among the messages that wait for their number. Tokens whose count has the
// highest bit are those of answers to commands; see [command.Token].
const (
	tokenShift = 20
	countMax   = 1<<(tokenShift-1) - 1
	tokenMax   = 1<<(64-tokenShift) - 1 // of a game
)

// gameToken returns the game's token of a message, 0 if it has none.
func gameToken(m *bus.Msg) uint64 {
	game, err := strconv.ParseUint(m.Header[subject.HeaderToken], 10, 64)
	if err != nil || game > tokenMax {
		return 0
	}
	return game
}

// repeated reports whether the game's token is not above that of an earlier message. Then
// the message is a repetition, because the answer was lost with an edge, and the edge
// answers it at once, or when the first copy has its number.
func (c *messages) repeated(game uint64, reply string) bool {
	if game == 0 || game > c.lastToken>>tokenShift {
		return false
	}
	first := game<<tokenShift + 1
	if _, waits := c.replies[first]; waits {
		c.replies[first] = reply
	} else {
		c.answer(reply, messageAnswer{Duplicate: true})
	}
	return true
}

// newToken names a message and remembers where its number is to be sent; 0 names a message
// without a token of the game whose number no sender gets. The answer to a message beyond
// repliesMax is lost, and a repetition of it is answered as a duplicate before it has a
// number.
func (c *messages) newToken(game uint64, reply string) uint64 {
	if game == 0 && reply == "" {
		return 0
	}
	waits := len(c.replies) < repliesMax || reply == ""
	if !waits {
		c.counts.AnswersLost++
		if game == 0 {
			return 0
		}
	}
	if game > 0 {
		c.lastToken = game << tokenShift
	}
	c.lastToken = max(1, c.lastToken>>tokenShift<<tokenShift|(c.lastToken+1)&countMax) // the count wraps
	if waits {
		c.replies[c.lastToken] = reply
	}
	return c.lastToken
}

// expectQueued notes the messages that came with a restored connection and have no number
// yet, so that a repetition of one of them is neither sent twice nor answered as a duplicate
// before it has a number.
func (c *messages) expectQueued() {
	for token := range c.conn.QueuedTokens {
		if token > 0 {
			c.replies[token] = ""
			if _, answer := command.TokenID(token); !answer {
				c.lastToken = max(c.lastToken, token)
			}
		}
	}
}

// sent answers the sender of a message with the number that the message got.
func (c *messages) sent(ev *dnp.Event) {
	c.answer(c.replies[ev.Token], messageAnswer{Number: &ev.Number})
	delete(c.replies, ev.Token)
}

// unsendable answers the sender of a message that waited and will not be sent, and reports whether it is the
// first. Others may have been accepted behind it, so the tokens go on from there.
func (c *messages) unsendable(ev *dnp.Event) (first bool) {
	c.counts.MessagesRefused++
	c.answer(c.replies[ev.Token], messageAnswer{Error: answerErrorOf(dnp.ErrTooLarge)})
	delete(c.replies, ev.Token)
	if first = !c.limited; first {
		c.limited = true
		c.counts.ClientsLimited++
	}
	return first
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
	if c.Host.Publish(bus.JSON(reply, a)) != nil {
		c.counts.AnswersLost++
	}
}
