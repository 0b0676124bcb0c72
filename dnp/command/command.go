// Package command is the codec of commands: a client asks the game server to do something with a
// state, and gets one answer. DNP has no such thing, so commands and answers travel in reliable
// messages, as envelopes that begin with the byte 0xC5.
//
//	m := command.AppendHello(nil, command.Commands)               // the client opts in
//	m, err := command.Request{ID: 1, Key: "door", Name: "open"}.Append(nil)
//	env, err := command.Parse(m)                                  // the edge, and the client
//	m = command.Answer{ID: 1, Body: []byte("opened")}.Append(nil)
//
// A client that never says hello has no envelopes: all its messages, and all messages to it, are the
// application's bytes, whatever they begin with. The hello is one reliable message: [Hello], which no
// application sends by accident, and the [Capabilities] that the client has. Its answer tells which of them
// the edge has, too. From the next reliable message of the client on, a
// message that begins with 0xC5 is an envelope. From the answer to the hello on, so is one to the
// client. An application's message that begins with 0xC5 then travels as [Raw]. Unreliable messages
// are never envelopes.
//
// The package has no state but [Progress], by which an edge remembers what it answered. It sends
// nothing and knows no connection.
package command

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/dnprelay/dnprelay/dnp/wire"
)

// Mark is the first byte of every envelope.
const Mark = 0xC5

// Hello begins the message by which a client opts in:
//
//	mark         uint8 = 0xC5
//	kind         uint8 = 0
//	name         "dnp.command.v1"
//	capabilities uint32; a hello without them has Commands
//
// Its answer is an Answer with HelloID, whose body has the capabilities that were granted, or nothing for Commands alone.
const Hello = "\xC5\x00dnp.command.v1"

// Capabilities are what a client and an edge can beyond DNP. A bit that the edge does not know is not granted.
type Capabilities uint32

// The capabilities. The values are on the wire.
const (
	Commands Capabilities = 1 << 0 // envelopes in reliable messages
	Writes   Capabilities = 1 << 1 // writes with numbers, and LinkUpdates with an order (wire.Trailer)

	known = Commands | Writes
)

// HelloID is the id of the hello. Requests have the ids from 1 on.
const HelloID = 0

// Bounds of a Request and an Answer.
const (
	KeyMax  = 8*65 - 1 // bytes of a key
	NameMax = 64       // bytes of the name of a command
	BodyMax = 60_000   // bytes of a body
)

// A Kind says what an envelope is.
type Kind uint8

// The kinds. The values are on the wire.
const (
	KindHello   Kind = 0
	KindRequest Kind = 1
	KindRaw     Kind = 2
	KindAnswer  Kind = 0x81
)

// A Code says how a command ended.
type Code uint8

// The codes. The values are on the wire; a code that a reader does not know is a failure.
const (
	OK            Code = 0
	BadRequest    Code = 1  // the envelope, the name or the key is malformed
	UnknownState  Code = 2  // the client has no link to such a state
	NotAuthorised Code = 3  // the client may not write the state
	Busy          Code = 4  // too many commands of the client have no answer
	NoResponders  Code = 5  // no game server takes commands about this state
	Timeout       Code = 6  // no answer in time; the command may have been executed
	TooLarge      Code = 7  // the command or its answer exceeds a bound
	Unavailable   Code = 8  // the edge cannot reach game servers
	Unknown       Code = 9  // the game server does not know the command
	Failed        Code = 10 // the game server says why in the body
)

var codeNames = [...]string{
	OK: "ok", BadRequest: "bad_request", UnknownState: "unknown_state", NotAuthorised: "not_authorised", Busy: "busy", NoResponders: "no_responders",
	Timeout: "timeout", TooLarge: "too_large", Unavailable: "unavailable", Unknown: "unknown_command", Failed: "failed",
}

// String returns the name of a code, as headers of messages have it; "failed" for one without a name.
func (c Code) String() string {
	if int(c) < len(codeNames) {
		return codeNames[c]
	}
	return codeNames[Failed]
}

// ParseCode returns the code with a name; Failed for a name that is not known.
func ParseCode(name string) Code {
	if c := slices.Index(codeNames[:], name); c >= 0 {
		return Code(c)
	}
	return Failed
}

// Errors of this package. They are static, because hostile input must not cause an allocation.
var (
	ErrMalformed = errors.New("dnp/command: malformed envelope")
	ErrTooLarge  = errors.New("dnp/command: a key, name or body is too large")
)

// A Request asks for a command about one state:
//
//	mark   uint8 = 0xC5
//	kind   uint8 = 1
//	id     uint16
//	target uint8: 0 for a key, 1 for a link
//	key    uint16 length and bytes, or link uint16
//	name   uint8 length and bytes
//	body   the rest
//
// The id counts the requests of a session from 1 on, and 1 follows 65,535. It may be at most
// [Window]-1 above the lowest id that has no answer.
type Request struct {
	ID     uint16
	ByLink bool
	Link   wire.LinkID // if ByLink
	Key    string      // otherwise
	Name   string
	Body   []byte
}

// Append appends the envelope of a request.
func (q Request) Append(b []byte) ([]byte, error) {
	if len(q.Key) > KeyMax || len(q.Name) > NameMax || len(q.Body) > BodyMax {
		return b, ErrTooLarge
	}
	b = append(b, Mark, byte(KindRequest))
	b = binary.LittleEndian.AppendUint16(b, q.ID)
	if q.ByLink {
		b = binary.LittleEndian.AppendUint16(append(b, 1), uint16(q.Link))
	} else {
		b = binary.LittleEndian.AppendUint16(append(b, 0), uint16(len(q.Key)))
		b = append(b, q.Key...)
	}
	b = append(append(b, byte(len(q.Name))), q.Name...)
	return append(b, q.Body...), nil
}

// An Answer is the end of a command:
//
//	mark uint8 = 0xC5
//	kind uint8 = 0x81
//	id   uint16
//	code uint8
//	body the rest: of the game if the code is 0, otherwise text for people
type Answer struct {
	ID   uint16
	Code Code
	Body []byte
}

// Append appends the envelope of an answer.
func (a Answer) Append(b []byte) []byte {
	b = binary.LittleEndian.AppendUint16(append(b, Mark, byte(KindAnswer)), a.ID)
	return append(append(b, byte(a.Code)), a.Body...)
}

// AppendHello appends the hello of a client.
func AppendHello(b []byte, has Capabilities) []byte {
	return binary.LittleEndian.AppendUint32(append(b, Hello...), uint32(has|Commands))
}

// parseHello returns the capabilities that an edge grants the client with this hello.
func parseHello(message []byte) Capabilities {
	if len(message) == len(Hello) {
		return Commands
	}
	return Capabilities(binary.LittleEndian.Uint32(message[len(Hello):]))&known | Commands
}

// HelloAnswer returns the answer to a hello.
func HelloAnswer(granted Capabilities) Answer {
	a := Answer{ID: HelloID}
	if granted&^Commands != 0 {
		a.Body = binary.LittleEndian.AppendUint32(nil, uint32(granted))
	}
	return a
}

// Granted returns the capabilities in the answer to a hello.
func (a Answer) Granted() Capabilities {
	if len(a.Body) < 4 {
		return Commands
	}
	return Capabilities(binary.LittleEndian.Uint32(a.Body))
}

// AppendRaw appends a message of an application, in an envelope (0xC5, 2) if it begins like one.
func AppendRaw(b, message []byte) []byte {
	if IsEnvelope(message) {
		b = append(b, Mark, byte(KindRaw))
	}
	return append(b, message...)
}

// IsEnvelope reports whether a reliable message of a client that opted in is an envelope.
func IsEnvelope(message []byte) bool { return len(message) > 0 && message[0] == Mark }

// IsHello reports whether a reliable message is the hello.
func IsHello(message []byte) bool {
	return (len(message) == len(Hello) || len(message) == len(Hello)+4) && string(message[:len(Hello)]) == Hello
}

// An Envelope is a message that was parsed. Its slices alias the message.
type Envelope struct {
	Kind    Kind
	Request Request // of KindRequest
	Answer  Answer  // of KindAnswer
	Raw     []byte  // of KindRaw: the application's message
}

// Parse parses an envelope. After an error the id of a request is that of the message if it has one:
// Request.ID is 0 otherwise.
func Parse(message []byte) (env Envelope, err error) {
	r := wire.NewReader(message)
	if r.Uint8() != Mark {
		return Envelope{}, ErrMalformed
	}
	switch env.Kind = Kind(r.Uint8()); env.Kind {
	case KindHello:
		if !IsHello(message) {
			err = ErrMalformed
		}
	case KindRequest:
		env.Request, err = parseRequest(&r)
	case KindRaw:
		env.Raw = r.Rest()
	case KindAnswer:
		env.Answer = Answer{ID: r.Uint16(), Code: Code(r.Uint8())}
		env.Answer.Body = r.Rest()
	default:
		err = ErrMalformed
	}
	if err == nil && r.Err() != nil {
		err = ErrMalformed
	}
	return env, err
}

func parseRequest(r *wire.Reader) (q Request, err error) {
	q.ID = r.Uint16()
	if r.Err() != nil {
		return Request{}, ErrMalformed
	}
	var key []byte
	switch r.Uint8() {
	case 0:
		key = r.Bytes(int(r.Uint16()))
	case 1:
		q.ByLink, q.Link = true, wire.LinkID(r.Uint16())
	default:
		return q, ErrMalformed
	}
	name := r.Bytes(int(r.Uint8()))
	q.Body = r.Rest()
	switch {
	case r.Err() != nil, q.ID == HelloID, len(name) == 0, !q.ByLink && len(key) == 0:
		return Request{ID: q.ID}, ErrMalformed
	case len(key) > KeyMax, len(name) > NameMax, len(q.Body) > BodyMax:
		return Request{ID: q.ID}, ErrTooLarge
	}
	q.Key, q.Name = string(key), string(name)
	return q, nil
}
