package cluster

import "encoding/json"

// An Own is the record that says who holds a shard. The zero Own says that
// nobody ever did.
type Holder struct {
	// Seq is where the store keeps it, and the epoch of the holding that it
	// began. It is not part of the record.
	Seq uint64 `json:"-"`

	// Node and ID are the holder and its start.
	Node string `json:"node,omitempty"`
	ID   string `json:"id,omitempty"`

	// Released says that Node gave the shard up, and To to whom; to whoever wants
	// it, if To is empty.
	Released bool   `json:"released,omitempty"`
	To       string `json:"to,omitempty"`
}

// A Beat is the record with which a holder renews. Every durable write of a
// holder writes it too.
type Heartbeat struct {
	Seq uint64 `json:"-"` // where the store keeps it; 0 if there is none

	Epoch uint64 `json:"epoch"`
	Write uint64 `json:"write"` // how-manieth write of the epoch
}

// Append appends the record as it is stored.
func (o Holder) Append(b []byte) []byte { return appendJSON(b, o) }

// Append appends the record as it is stored.
func (b Heartbeat) Append(p []byte) []byte { return appendJSON(p, b) }

// ParseOwn takes a stored record apart. One that is no record is that of an
// unknown holder, so that it is left alone until it is silent.
func ParseHolder(seq uint64, p []byte) Holder {
	var o Holder
	if json.Unmarshal(p, &o) != nil {
		o = Holder{}
	}
	o.Seq = seq
	return o
}

// ParseBeat takes a stored record apart. One that is no record is still a sign
// of life.
func ParseHeartbeat(seq uint64, p []byte) Heartbeat {
	var b Heartbeat
	if json.Unmarshal(p, &b) != nil {
		b = Heartbeat{}
	}
	b.Seq = seq
	return b
}

func appendJSON(b []byte, v any) []byte {
	p, err := json.Marshal(v)
	if err != nil {
		panic("cluster: a record that is no JSON: " + err.Error())
	}
	return append(b, p...)
}
