// Package jetstream is what the adapters of leases and of session logs share of NATS
// JetStream beyond the client library: fenced publishes, the verdicts on their answers,
// streams that belong to one deployment, and a [Requester], which has thousands of requests
// under way without a goroutine or a timer for each:
//
//	r := jetstream.NewRequester(jetstream.RequesterConfig{Conn: nc})
//	go r.Run(ctx)
//	r.Send(jetstream.Request{Msg: m, Done: func(reply *nats.Msg, err error) { ... }})
//
// A fenced publish is a message on which [Expect] was called. [Judge] judges the answer.
package jetstream

import (
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"sync/atomic"

	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Headers of JetStream that the client library has no names for. Atomic batches: NATS
// architecture decision 50.
const (
	HeaderBatchID     = "Nats-Batch-Id"
	HeaderBatchSeq    = "Nats-Batch-Sequence"
	HeaderBatchCommit = "Nats-Batch-Commit"
)

// Error codes of JetStream that the client library has no names for; server/errors.json of nats-server has them all.
const (
	codeNoServer        = 10005 // no server can take the stream
	codeAlone           = 10074 // a server that has no cluster makes no replicas
	codeBatchIncomplete = 10176 // parts of the batch did not arrive
	codeBatches         = 10210 // too many batches are under way
	codeBatchesOld      = 10211
)

// Errors of a request.
var (
	// ErrNotSent says that the request was not and will not be received: there is no
	// connection or no responder, the message is too large, or a queue is full.
	ErrNotSent = errors.New("the request was not sent")

	// ErrNoAnswer says that no answer came. The request may have been carried out, or be
	// carried out later.
	ErrNoAnswer = errors.New("the request was not answered")
)

// Expect makes the store refuse m unless the last message of subject, or of m's own subject
// if that is empty, has the sequence seq; 0 stands for a subject without messages. It returns m.
func Expect(m *nats.Msg, subject string, seq uint64) *nats.Msg {
	m.Header.Set(natsjs.ExpectedLastSubjSeqHeader, strconv.FormatUint(seq, 10))
	if subject != "" {
		m.Header.Set(natsjs.ExpectedLastSubjSeqSubjHeader, subject)
	}
	return m
}

// Batch makes messages of one stream one batch: the store takes all of them or none, and answers the last one. id names the
// batch; it must be unique among the batches of the stream. A single message is no batch and needs none.
func Batch(id string, messages ...*nats.Msg) {
	if len(messages) < 2 {
		return
	}
	for i, m := range messages {
		m.Header.Set(HeaderBatchID, id)
		m.Header.Set(HeaderBatchSeq, strconv.Itoa(i+1))
	}
	messages[len(messages)-1].Header.Set(HeaderBatchCommit, "1")
}

// LastMessage parses the answer to a request for the last message of a subject, or judges the error if there is none. seq is 0 if the
// subject has no message.
func LastMessage(m *nats.Msg, err error) (v fence.Verdict, seq uint64, data []byte) {
	if err != nil {
		return Failed(err), 0, nil
	}
	v, seq, _, data = StoredMessage(m)
	return v, seq, data
}

// StoredMessage parses the answer to a request for one message of a stream, with its encoded headers. seq is 0 if the stream has no
// such message.
func StoredMessage(m *nats.Msg) (v fence.Verdict, seq uint64, header, data []byte) {
	var a struct {
		Message *struct {
			Seq    uint64 `json:"seq"`
			Header []byte `json:"hdrs"`
			Data   []byte `json:"data"`
		} `json:"message"`
		Error *natsjs.APIError `json:"error"`
	}
	switch {
	case json.Unmarshal(m.Data, &a) != nil:
		return fence.Unknown, 0, nil, nil
	case a.Message != nil:
		return fence.OK, a.Message.Seq, a.Message.Header, a.Message.Data
	case a.Error != nil && a.Error.ErrorCode == natsjs.JSErrCodeMessageNotFound:
		return fence.OK, 0, nil, nil
	}
	return fence.Unreachable, 0, nil, nil
}

// DeleteConsumer deletes a consumer, and waits for no answer.
func DeleteConsumer(nc *nats.Conn, stream, name string) error {
	return nc.Publish("$JS.API.CONSUMER.DELETE."+stream+"."+name, nil)
}

// An Ack is the answer of JetStream to a publish.
type Ack struct {
	Stream    string
	Seq       uint64
	Duplicate bool
	Code      natsjs.ErrorCode // 0 for no error
	Text      string
}

// ParseAck parses an answer to a publish. ok is false if data is no such answer.
func ParseAck(data []byte) (a Ack, ok bool) {
	var ack struct {
		Stream    string           `json:"stream"`
		Seq       uint64           `json:"seq"`
		Duplicate bool             `json:"duplicate"`
		Error     *natsjs.APIError `json:"error"`
	}
	if json.Unmarshal(data, &ack) != nil {
		return Ack{}, false
	}
	if e := ack.Error; e != nil {
		return Ack{Code: e.ErrorCode, Text: e.Description}, e.ErrorCode != 0
	}
	return Ack{Stream: ack.Stream, Seq: ack.Seq, Duplicate: ack.Duplicate}, ack.Stream != ""
}

// Judge judges the answer to a publish, or the error if there is none. other is the verdict on
// an error code of which this package knows nothing.
func Judge(m *nats.Msg, err error, other fence.Verdict) (fence.Verdict, Ack) {
	if err != nil {
		return Failed(err), Ack{}
	}
	a, ok := ParseAck(m.Data)
	if !ok {
		return fence.Unknown, Ack{}
	}
	switch a.Code {
	case 0:
		return fence.OK, a
	case natsjs.JSErrCodeStreamWrongLastSequence:
		return fence.Stale, a
	case natsjs.JSErrCodeStreamWrongLastSequenceConstant: // another such write is under way
		return fence.Busy, a
	case codeBatchIncomplete, codeBatches, codeBatchesOld:
		return fence.Unreachable, a
	}
	return other, a
}

// Verdicts counts answers. Any goroutine may add one.
type Verdicts [fence.TooLarge + 1]atomic.Uint64

// Counts returns the numbers.
func (v *Verdicts) Counts() (c fence.Counts) {
	for i := range v {
		c[i] = v[i].Load()
	}
	return c
}

// unsent are the errors after which a message was certainly not sent.
var unsent = [...]error{
	ErrNotSent, nats.ErrNoResponders, nats.ErrConnectionClosed, nats.ErrConnectionDraining, nats.ErrReconnectBufExceeded,
	nats.ErrBadSubject,
}

// Failed judges a request that has no answer: TooLarge or Unreachable if it certainly was not
// sent, otherwise Unknown.
func Failed(err error) fence.Verdict {
	if errors.Is(err, nats.ErrMaxPayload) {
		return fence.TooLarge
	}
	if slices.ContainsFunc(unsent[:], func(e error) bool { return errors.Is(err, e) }) {
		return fence.Unreachable
	}
	return fence.Unknown
}
