package natsask

import "encoding/json"

// Headers of JetStream that the client library has no names for. Atomic batches: NATS
// architecture decision 50.
const (
	HeaderExpect        = "Nats-Expected-Last-Subject-Sequence"
	HeaderExpectSubject = "Nats-Expected-Last-Subject-Sequence-Subject"
	HeaderExpectStream  = "Nats-Expected-Stream"
	HeaderRollup        = "Nats-Rollup"
	HeaderTTL           = "Nats-TTL"
)

// Error codes of JetStream; server/errors.json of nats-server has them all.
const (
	CodeNotFound = 10037 // no such message
	CodeStale    = 10071 // wrong last sequence: <it>
	CodeBusy     = 10164 // wrong last sequence, because such a write is under way
)

// An Ack is the answer of JetStream to a publish.
type Ack struct {
	Stream    string
	Seq       uint64
	Duplicate bool
	Code      int // of an error; 0 for none
	Text      string
}

// ParseAck parses an answer to a publish. It is not ok if it is none.
func ParseAck(data []byte) (a Ack, ok bool) {
	var ack struct {
		Stream    string `json:"stream"`
		Seq       uint64 `json:"seq"`
		Duplicate bool   `json:"duplicate"`
		Error     *struct {
			Code int    `json:"err_code"`
			Text string `json:"description"`
		} `json:"error"`
	}
	if json.Unmarshal(data, &ack) != nil {
		return Ack{}, false
	}
	if ack.Error != nil {
		return Ack{Code: ack.Error.Code, Text: ack.Error.Text}, ack.Error.Code != 0
	}
	return Ack{Stream: ack.Stream, Seq: ack.Seq, Duplicate: ack.Duplicate}, ack.Stream != ""
}
