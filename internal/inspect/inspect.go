// Package inspect has the contract of the requests by which people and tools look at a
// deployment: which spaces, nodes and clients there are, and why a client has what it has of
// a state.
//
//	q, err := inspect.ParseQuery(data)          // a node got a request
//	page := inspect.NewPage[inspect.Space](q)   // it answers with one page
//	page.Offer(name, space)
//	reasons := inspect.Reasons(&facts)          // or says why
//
// Nodes answer such requests ([Limiter] says how many), and each of them knows a part: a
// relay its spaces, an edge its clients. The answers of several nodes are put together with
// [MergePages] and [Merge].
//
// The package has no I/O and no clock. Subjects, rights and the meaning of each field for
// readers are in INTERFACES.md.
package inspect

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/subject"
)

// Version is what answers say in their field v.
const Version = 1

// Bounds of a request and of a page.
const (
	QueryBytesMax = 1024
	PageDefault   = 100
	PageMax       = 500
)

// Errors of a request. They are the codes of answers.
var (
	ErrBadRequest = errors.New("bad_request")
	ErrBusy       = errors.New("busy")
)

// A Query is the body of a request. All fields may be missing, but for why.
type Query struct {
	After  string `json:"after,omitempty"`  // the name behind which the page begins
	Max    int    `json:"max,omitempty"`    // entries of the page; 0 is PageDefault
	Client string `json:"client,omitempty"` // why: whose view
	Key    string `json:"key,omitempty"`    // why: of which state

	// clients: only those with an eye near a place, only those that see a state, or both.
	Near   *Place   `json:"near,omitempty"`
	Within *float64 `json:"within,omitempty"` // the largest distance; nil for any
	Axes   string   `json:"axes,omitempty"`   // between which distances are measured; empty for those of the place
	Sees   string   `json:"sees,omitempty"`   // the key of the state
}

// ParseQuery parses the body of a request, which may be empty. Max of the result is 1 to
// PageMax.
func ParseQuery(data []byte) (q Query, err error) {
	if len(data) > QueryBytesMax || len(data) > 0 && json.Unmarshal(data, &q) != nil || q.Max < 0 {
		return q, ErrBadRequest
	}
	q.Max = min(cmp.Or(q.Max, PageDefault), PageMax)
	return q, nil
}

// ParseWhy parses the body of a request for reasons.
func ParseWhy(data []byte) (q Query, err error) {
	if q, err = ParseQuery(data); err == nil && !(subject.ValidToken(q.Client) && subject.ValidKey(q.Key)) {
		err = ErrBadRequest
	}
	return q, err
}

// A Head begins every answer.
type Head struct {
	V    int    `json:"v"`
	Node string `json:"node"`
	Role string `json:"role"` // relay or edge

	Error *Problem `json:"error,omitempty"` // why there is nothing else
}

// A Problem says why a node does not answer a request.
type Problem struct {
	Code string `json:"code"` // bad_request, busy
}

// NewHead returns the head of an answer of a node; err may be nil.
func NewHead(node, role string, err error) Head {
	h := Head{V: Version, Node: node, Role: role}
	if err != nil {
		h.Error = &Problem{Code: err.Error()}
	}
	return h
}

// Millis is a time that JSON shows in milliseconds, with three decimals at most.
type Millis time.Duration

// MarshalJSON implements json.Marshaler.
func (m Millis) MarshalJSON() ([]byte, error) {
	micros := time.Duration(m).Microseconds()
	return strconv.AppendFloat(nil, float64(micros)/1000, 'f', -1, 64), nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (m *Millis) UnmarshalJSON(data []byte) error {
	ms, err := strconv.ParseFloat(string(data), 64)
	if err != nil {
		return err
	}
	*m = Millis(ms * float64(time.Millisecond))
	return nil
}

// Brief returns the time with one to three digits, for tables.
func (m Millis) Brief() string {
	switch d := time.Duration(m); {
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < 2*time.Minute:
		return fmt.Sprintf("%.0fs", d.Seconds())
	case d < 2*time.Hour:
		return fmt.Sprintf("%.0fm", d.Minutes())
	case d < 48*time.Hour:
		return fmt.Sprintf("%.0fh", d.Hours())
	default:
		return fmt.Sprintf("%.0fd", d.Hours()/24)
	}
}

// SpacesAnswer is the answer of a relay to spaces.
type SpacesAnswer struct {
	Head
	List[Space]
}

// A Space is what its holder says of it. Counters begin with the ownership, so two readings
// give rates.
type Space struct {
	Space      string `json:"space"`
	Holder     string `json:"holder"`
	Shard      int    `json:"shard"`
	Serving    bool   `json:"serving"` // else the holder still loads what was stored
	Epoch      uint64 `json:"epoch"`
	Seq        uint64 `json:"seq"`
	Since      Millis `json:"since_ms"` // how long ago this holder began to serve it
	Tick       Millis `json:"tick_ms"`
	Durable    bool   `json:"durable"` // the durable store answers
	States     uint64 `json:"states"`
	Views      uint64 `json:"views"`
	Clients    int    `json:"clients"`   // sessions that edges named
	Publishes  uint64 `json:"publishes"` // counters from here on
	Writes     uint64 `json:"writes"`
	Batches    uint64 `json:"batches"`
	BatchBytes uint64 `json:"batch_bytes"`
}

// NodesAnswer is the answer of a node to nodes.
type NodesAnswer struct {
	Head
	*NodeFacts
	List[Member] // what gossip knows; relays only
}

// NodeFacts are what a node says of itself.
type NodeFacts struct {
	Version  string   `json:"version"`
	Uptime   Millis   `json:"uptime_ms"`
	Ready    bool     `json:"ready"`
	Draining bool     `json:"draining"`
	Missing  []string `json:"missing,omitempty"` // what the node needs and does not have, as GET /readyz names it
	Workers  int      `json:"workers"`
	Waiting  int      `json:"waiting"` // messages and tasks that wait for workers
	Spaces   int      `json:"spaces"`  // held by a relay, followed by an edge
	Clients  int      `json:"clients"` // an edge's sessions; those that a relay's spaces have
	Shards   int      `json:"shards,omitempty"`
	Listen   []string `json:"listen,omitempty"`
}

// Condition says in a few words whether the node serves, and what it does not have. Whether f is nil does not matter.
func (f *NodeFacts) Condition() string {
	switch {
	case f == nil || !f.Ready && len(f.Missing) == 0 && !f.Draining:
		return "not ready"
	case f.Draining:
		return "draining"
	case len(f.Missing) == 0:
		return "ready"
	case f.Ready:
		return "ready, without " + strings.Join(f.Missing, ", ")
	}
	return "not ready: no " + strings.Join(f.Missing, ", ")
}

// A Member is a node as gossip knows it, alive or not yet known to be dead.
type Member struct {
	Node    string `json:"node"`
	Role    string `json:"role"`
	Phase   string `json:"phase"`
	Version string `json:"version,omitempty"`
}

// ClientsAnswer is the answer of an edge to clients.<space>.
type ClientsAnswer struct {
	Head
	Space   string `json:"space"`
	Nowhere string `json:"nowhere,omitempty"` // why no client is near, or sees the state: NoState, NoPlace
	List[Client]
}

// A Client is one session at the edge that serves it.
type Client struct {
	Client  string `json:"client"`
	Session string `json:"session"`
	Edge    string `json:"edge"`
	Address string `json:"address"` // as much of it as log lines show
	Carrier string `json:"carrier"`
	Age     Millis `json:"age_ms"`

	Links    Links     `json:"links"`
	Path     PathFacts `json:"path"`
	Declined int       `json:"declined"` // states that the client does not want
	Writes   int       `json:"writes"`   // states with values that the holder has not acknowledged

	Near *Nearness `json:"near,omitempty"` // if the request asks who is near, or who sees a state
}

// Links are the links of a client.
type Links struct {
	Up      int    `json:"up"`
	Offered int    `json:"offered"` // sent, without an answer
	Queued  int    `json:"queued"`  // not sent yet
	Own     int    `json:"own"`     // states that the client itself offered
	Max     int    `json:"max"`
	IDsLeft int    `json:"ids_left"`  // LinkIds that the session has left
	Waiting int    `json:"waiting"`   // links whose values wait for the budget
	Oldest  Millis `json:"oldest_ms"` // how long the first of those has waited
}

// WhyAnswer is the answer of an edge or a relay to why.<space>. A relay gives no reasons, because it does not know
// whether an edge serves the client.
type WhyAnswer struct {
	Head
	Space   string   `json:"space"`
	Client  string   `json:"client"`
	Key     string   `json:"key"`
	Facts   *Facts   `json:"facts,omitempty"`
	Reasons []Reason `json:"reasons,omitempty"` // what follows from the facts of this edge alone
}

// DrainAnswer is the answer of an edge to drain.<node>: what becomes of its sessions.
type DrainAnswer struct {
	Head
	Sessions string `json:"sessions"`         // handed_over or closed
	Reason   string `json:"reason,omitempty"` // why no other node can take some of them over, if that is known
}

// Code returns the code of the problem, or nothing.
func (h Head) Code() string {
	if h.Error == nil {
		return ""
	}
	return h.Error.Code
}
