package inspect

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/dnprelay/dnprelay/interest"
	"github.com/dnprelay/dnprelay/subject"
)

// A Place is where people look for clients: where a state is, or a point. In JSON it is what the op eye calls a point
// of view: "player.alice", "tower#top" or [10,0,3].
type Place struct {
	Key   string
	Value string    // of the state, by name or index; empty for the place of its interest
	At    []float64 // 2 or 3 numbers, for a point
}

// errPlace says what a place is.
var errPlace = errors.New("want the key of a state, KEY#VALUE, or a point of 2 or 3 numbers")

// ParsePlace parses KEY, KEY#VALUE, X,Y or X,Y,Z.
func ParsePlace(text string) (p Place, err error) {
	if !strings.Contains(text, ",") {
		return parseKey(text)
	}
	for number := range strings.SplitSeq(text, ",") {
		x, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
		if err != nil {
			return Place{}, fmt.Errorf("%q is not a number: %w", number, errPlace)
		}
		p.At = append(p.At, x)
	}
	return p, p.check()
}

func parseKey(text string) (p Place, err error) {
	var named bool
	if p.Key, p.Value, named = strings.Cut(text, "#"); named && p.Value == "" {
		return p, errPlace
	}
	return p, p.check()
}

func (p *Place) check() error {
	switch {
	case p.At == nil && (!subject.ValidKey(p.Key) || p.Value != "" && !subject.ValidToken(p.Value)):
		return errPlace
	case p.At != nil && (len(p.At) < 2 || len(p.At) > 3):
		return errPlace
	}
	for _, x := range p.At {
		if math.IsNaN(x) || math.IsInf(x, 0) {
			return errPlace
		}
	}
	return nil
}

// MarshalJSON implements json.Marshaler.
func (p Place) MarshalJSON() ([]byte, error) {
	if p.At != nil {
		return json.Marshal(p.At)
	}
	text := p.Key
	if p.Value != "" {
		text += "#" + p.Value
	}
	return json.Marshal(text)
}

// UnmarshalJSON implements json.Unmarshaler.
func (p *Place) UnmarshalJSON(data []byte) (err error) {
	*p = Place{}
	var text string
	if json.Unmarshal(data, &text) == nil {
		*p, err = parseKey(text)
		return err
	}
	if err := json.Unmarshal(data, &p.At); err != nil {
		return errPlace
	}
	return p.check()
}

// ParseClients parses the body of a request for clients.
func ParseClients(data []byte) (q Query, err error) {
	if q, err = ParseQuery(data); err != nil {
		return q, err
	}
	_, axes := interest.ParseAxes(q.Axes)
	if q.Sees != "" && !subject.ValidKey(q.Sees) || q.Axes != "" && !axes || q.Within != nil && !(*q.Within >= 0) || q.Near == nil && (q.Within != nil || q.Axes != "") {
		return q, ErrBadRequest
	}
	return q, nil
}

// Selects reports whether q asks for some clients only, by what they see.
func (q *Query) Selects() bool { return q.Near != nil || q.Sees != "" }

// A Nearness is how near a place is to the eyes of a client, and whether the client sees the state there.
type Nearness struct {
	Eyes     int      `json:"eyes"`               // of the client
	Distance *float64 `json:"distance,omitempty"` // from the nearest eye; nil without a place
	Band     int      `json:"band"`               // in which the client has the state, 1 for the nearest; 0: beyond all, or a state without bands
	Bands    int      `json:"bands"`              // of the state; 0: it has no interest, or there is no state
	Sees     bool     `json:"sees"`               // the client belongs to the audience of the state, which is in a band or has no interest
}

// Far returns the distance; infinite without one.
func (n *Nearness) Far() float64 {
	if n.Distance == nil {
		return math.Inf(1)
	}
	return *n.Distance
}

// Selected returns the page of an answer to a query that selects clients, without those for which it has no [Client.Near].
func (a ClientsAnswer) Selected() List[Client] {
	a.Entries = slices.DeleteFunc(a.Entries, func(c Client) bool { return c.Near == nil })
	return a.List
}

// What ClientsAnswer says about a place that is none.
const (
	NoState = "no_state" // the edge has no state with the key
	NoPlace = "no_place" // the state has no interest, or no such value, or is nowhere
)
