package fanout

import (
	"bytes"
	"errors"
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

// commandWait is how long the edge waits for the game server's answer to a command. slotWait is after
// what time a command of a durable session, which has no such limit, no longer counts among those
// without an answer.
const (
	commandWait = 5 * time.Second
	slotWait    = time.Minute
)

// commands are the commands of the client of a session and their answers.
//
// A session that ends with its edge asks game servers, and answers the client. The commands of a
// durable session go to the store of its messages, refused ones, too, because the numbers of messages
// must have no gap; their answers come as messages to the client. Whichever answer to a request comes
// first is sent, and no other: progress says which requests were answered, at former edges, too.
type commands struct {
	*peer
	messages  *messages
	ownStates *ownStates
	rights    *rights
	progress  command.Progress
	open      map[uint16]time.Time // requests without an answer; until when they count
	judged    map[uint64]verdict   // by number, of a durable session: messages that are not in its log yet
	replayed  uint64               // messages with lower numbers came to a former edge
	over      bool
}

// A verdict is what the edge decided about an envelope of the client.
type verdict struct {
	env  command.Envelope
	code command.Code
	key  string // of the state, if the code is OK
}

// receive takes a reliable message of the client. It passes it on, unless the session is durable.
func (c *commands) receive(now time.Time, ev *dnp.Event) {
	durable := c.SessionEpoch > 0
	switch {
	case c.progress.OptIn(ev.Number, ev.Data):
		c.optedIn()
		c.answerHello()
	case !c.progress.OptedIn(ev.Number) || !command.IsEnvelope(ev.Data):
		if !durable {
			c.messages.receive(now, ev)
		}
	case !durable:
		c.received(now, ev)
	case ev.Number >= c.replayed: // another edge may have passed on what came before, and said so to the client
		v := c.judge(ev.Data, true)
		v.env.Request.Body, v.env.Raw = nil, nil // they alias the datagram
		c.judged[ev.Number] = v
		c.refuse(&v)
		c.opened(&v, now.Add(slotWait))
	}
}

// optedIn begins what the client asked for with its hello.
func (c *commands) optedIn() {
	c.messages.enveloped = true
	if c.progress.Granted&command.Writes != 0 {
		c.conn.Writes().Order(c.SessionEpoch) // which each edge that takes the session over raises
	}
}

func (c *commands) answerHello() { c.send(command.HelloAnswer(c.progress.Granted), "") }

// received handles an envelope of a session that ends with its edge.
func (c *commands) received(now time.Time, ev *dnp.Event) {
	v := c.judge(ev.Data, true)
	if v.env.Kind == command.KindRaw && v.code == command.OK {
		ev.Data = v.env.Raw
		c.messages.receive(now, ev)
		return
	}
	c.refuse(&v)
	if v.env.Kind == command.KindRequest && v.code == command.OK {
		c.opened(&v, now.Add(commandWait))
		c.ask(now, &v)
	}
}

// judge parses an envelope, and decides whether its command may go to a game server. A command that
// comes to this edge first must not exceed the bounds of what has no answer.
func (c *commands) judge(message []byte, first bool) (v verdict) {
	var err error
	v.env, err = command.Parse(message)
	q := &v.env.Request
	switch {
	case errors.Is(err, command.ErrTooLarge):
		v.code = command.TooLarge
	case err != nil || v.env.Kind == command.KindAnswer || v.env.Kind == command.KindRequest && !subject.ValidToken(q.Name):
		v.code = command.BadRequest
	case v.env.Kind != command.KindRequest:
	case first && !c.fresh(q.ID):
		v.code, q.ID = command.BadRequest, command.HelloID // an answer could be taken for that to another request
	case first && len(c.open) >= command.OutstandingMax:
		v.code = command.Busy
	default:
		v.key, v.code = c.target(q)
	}
	return v
}

// fresh reports whether the client may use the id for a request: it did not use it before, and the answer
// does not make an id without an answer too old to be told from those with one.
func (c *commands) fresh(id uint16) bool {
	for open := range c.open {
		if ahead := int16(id - open); ahead == 0 || ahead >= command.Window {
			return false
		}
	}
	return !c.progress.Answered(id)
}

// target returns the key of the state that a request is about. The client needs a link to it through
// which it may write.
func (c *commands) target(q *command.Request) (key string, code command.Code) {
	if c.over {
		return "", command.UnknownState
	}
	if own := c.ownTarget(q); own != nil {
		return own.key, command.OK
	}
	var st *replication.State
	if q.ByLink {
		src, _ := c.conn.SourceOf(q.Link)
		st, _ = stateOf(src)
	} else if st = c.replica.ByKey(q.Key); st != nil {
		if _, src, _ := linkTo(c.conn, st); src == nil {
			st = nil
		}
	}
	switch {
	case st == nil:
		return "", command.UnknownState
	case !c.rights.mayWrite(st):
		return "", command.NotAuthorised
	}
	return st.Desc.Key, command.OK
}

// ownTarget returns the state of the client's own that a request is about, nil if it is about another.
func (c *commands) ownTarget(q *command.Request) *ownState {
	if q.ByLink {
		return c.ownStates.at(q.Link)
	}
	if i := slices.IndexFunc(c.ownStates.list, func(own *ownState) bool { return own.key == q.Key }); i >= 0 {
		return c.ownStates.list[i]
	}
	return nil
}

// opened counts a request among those without an answer.
func (c *commands) opened(v *verdict, until time.Time) {
	if v.env.Kind == command.KindRequest && v.code == command.OK && !c.progress.Answered(v.env.Request.ID) {
		c.open[v.env.Request.ID] = until
	}
}

// refuse answers a request that does not go to a game server.
func (c *commands) refuse(v *verdict) {
	if v.code == command.OK {
		return
	}
	c.counts.CommandsRefused++
	if id := v.env.Request.ID; id != command.HelloID {
		c.send(command.Answer{ID: id, Code: v.code, Body: []byte(v.code.String())}, "")
	}
}

// ask passes a command on to the game servers, and its answer to the client.
func (c *commands) ask(now time.Time, v *verdict) {
	q := &v.env.Request
	m := bus.Msg{Subject: c.Subjects.Command(c.spaceName, v.key), Header: c.header(v), Data: bytes.Clone(q.Body)}
	m.Header[subject.HeaderClient], m.Header[subject.HeaderSession] = c.Claims.Client, c.ID
	m.Header[subject.HeaderTimeout] = strconv.FormatInt(commandWait.Milliseconds(), 10)
	c.wait(now, len(m.Data), func() { c.askNow(m, q.ID) })
	c.passedOn(now, v)
}

func (c *commands) askNow(m bus.Msg, id uint16) {
	c.Host.Request(m, commandWait, func(_ time.Time, m bus.Msg, err error) {
		switch {
		case c.over:
		case err != nil:
			code := codeOf(err)
			c.send(command.Answer{ID: id, Code: code, Body: []byte(code.String())}, "")
		default:
			c.send(answerOf(id, &m), "")
		}
	})
}

// passedOn counts a command that goes to game servers, and tells of it.
func (c *commands) passedOn(now time.Time, v *verdict) {
	c.counts.Commands++
	c.emit(now, replication.Event{Type: replication.EventCommand, Key: v.key, Command: v.env.Request.Name})
}

// header returns the headers of a command.
func (c *commands) header(v *verdict) map[string]string {
	q := &v.env.Request
	return map[string]string{subject.HeaderCommand: q.Name, subject.HeaderKey: v.key, subject.HeaderRequest: strconv.Itoa(int(q.ID))}
}

// deliver returns what game servers get of a reliable message of a durable session, which is in its log.
// The header is nil for a message of the application.
func (c *commands) deliver(now time.Time, number uint64, data []byte) (body []byte, header map[string]string) {
	v, known := c.judged[number]
	delete(c.judged, number)
	switch {
	case c.progress.Hello == number+1:
		return nil, map[string]string{subject.HeaderRequest: strconv.Itoa(command.HelloID)}
	case !c.progress.OptedIn(number) || !command.IsEnvelope(data):
		return data, nil
	case !known:
		if v = c.judge(data, false); v.code == command.OK {
			c.opened(&v, now.Add(slotWait))
		}
	}
	env, _ := command.Parse(data) // v has the error
	if env.Kind == command.KindRaw {
		return env.Raw, nil
	}
	q := &v.env.Request
	switch {
	case env.Kind != command.KindRequest:
		return nil, map[string]string{subject.HeaderRequest: strconv.Itoa(command.HelloID)}
	case v.code != command.OK:
		return nil, map[string]string{subject.HeaderRequest: strconv.Itoa(int(q.ID)), subject.HeaderRefused: v.code.String()}
	case c.progress.Answered(q.ID): // by a former edge, which refused it; or the client used the id again
		return nil, map[string]string{subject.HeaderRequest: strconv.Itoa(command.HelloID)}
	}
	c.passedOn(now, &v)
	return env.Request.Body, c.header(&v)
}

// codeOf returns the code for a command that no game server answered.
func codeOf(err error) command.Code {
	switch {
	case errors.Is(err, bus.ErrNoResponders):
		return command.NoResponders
	case errors.Is(err, bus.ErrTimeout):
		return command.Timeout
	case errors.Is(err, bus.ErrMessageSize):
		return command.TooLarge
	case errors.Is(err, bus.ErrBusy):
		return command.Busy
	}
	return command.Unavailable
}

// answerOf returns the answer that a message of a game server has.
func answerOf(id uint16, m *bus.Msg) command.Answer {
	a := command.Answer{ID: id, Body: m.Data}
	if name := m.Header[subject.HeaderCode]; name != "" {
		a.Code = command.ParseCode(name)
	}
	if len(a.Body) > command.BodyMax {
		a.Code, a.Body = command.TooLarge, []byte("the answer of the game server is too large")
	}
	return a
}

// told handles the answer of a game server that comes as a message to the client.
func (c *commands) told(m bus.Msg) {
	id, err := strconv.ParseUint(m.Header[subject.HeaderAnswer], 10, 16)
	switch {
	case err != nil || id == command.HelloID || c.progress.Hello == 0:
		c.messages.answer(m.Reply, messageAnswer{Error: &answerError{replication.CodeBadRequest, "no such request"}})
		return
	case m.Header[subject.HeaderSession] != c.ID:
		c.messages.answer(m.Reply, messageAnswer{Error: &answerError{replication.CodeUnknownClient, "the session of the command is over"}})
		return
	}
	c.send(answerOf(uint16(id), &m), m.Reply)
}

// send sends an answer to the client, unless the request was answered. The sender hears at reply what
// came of it.
func (c *commands) send(a command.Answer, reply string) {
	token := command.Token(a.ID)
	if c.progress.Answered(a.ID) {
		if _, waits := c.messages.replies[token]; waits {
			if reply != "" {
				c.messages.replies[token] = reply
			}
			return
		}
		c.messages.answer(reply, messageAnswer{Duplicate: true})
		return
	}
	err := c.queue(a, token)
	if errors.Is(err, dnp.ErrTooLarge) {
		a.Code, a.Body = command.TooLarge, []byte("the client does not take an answer of this size")
		err = c.queue(a, token)
	}
	if err != nil { // the client takes no more messages; its connection ends
		c.messages.answer(reply, messageAnswer{Error: answerErrorOf(err)})
		return
	}
	delete(c.open, a.ID)
	c.progress.Note(a.ID)
	c.messages.replies[token] = reply
	c.counts.CommandAnswers++
}

func (c *commands) queue(a command.Answer, token uint64) error {
	data := a.Append(nil)
	if c.messages.limited && len(data) > dnp.WholeMax {
		return dnp.ErrTooLarge
	}
	return c.conn.Send(data, token)
}

// unsendable sends an error for an answer that waited and that the client turned out not to take.
func (c *commands) unsendable(token uint64) {
	if id, ok := command.TokenID(token); ok {
		c.progress.Forget(id)
		c.send(command.Answer{ID: id, Code: command.TooLarge, Body: []byte("the client does not take an answer of this size")}, "")
	}
}

// resume goes on with the commands of a session of another edge, as far as its log has them. Messages
// with numbers below received came to that edge.
func (c *commands) resume(progress command.Progress, received uint64) {
	c.progress, c.replayed = progress, received
	for token := range c.conn.QueuedTokens {
		if id, ok := command.TokenID(token); ok {
			c.progress.Note(id)
		}
	}
	if c.progress.Hello == 0 {
		return
	}
	c.optedIn()
	if !c.progress.Answered(command.HelloID) {
		c.answerHello()
	}
}

// advance ends the wait for answers that did not come, and returns when there is more to do. It is the
// edge's own timeout: an answer of the bus may find the inbox of the worker full.
func (c *commands) advance(now, next time.Time) time.Time {
	if len(c.open) == 0 {
		return next
	}
	for _, id := range slices.Sorted(maps.Keys(c.open)) {
		until := c.open[id]
		switch {
		case until.After(now):
			next = earlier(next, until)
			continue
		case c.SessionEpoch == 0:
			c.counts.CommandsLate++
			c.send(command.Answer{ID: id, Code: command.Timeout, Body: []byte(command.Timeout.String())}, "")
		}
		delete(c.open, id)
	}
	return next
}
