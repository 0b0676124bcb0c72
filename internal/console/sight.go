package console

import (
	"slices"
	"strings"

	"github.com/dnprelay/dnprelay/replication"
)

// An interest is what a page is told of one.
type interest struct {
	At    string `json:"at"`             // the value with the place: its name or index
	Axes  string `json:"axes,omitempty"` // "" for all that the value has
	Bands []band `json:"bands"`          // from near to far
}

type band struct {
	Within    float64 `json:"within"`
	Rate      float64 `json:"rate,omitempty"`      // 0 for no limit
	Precision float64 `json:"precision,omitempty"` // 0 for that of the values
}

// describeInterest returns what a page is told of an interest; nil for one that is gone.
func describeInterest(x *replication.Interest) *interest {
	if x == nil {
		return nil
	}
	d := &interest{At: x.At, Axes: x.Axes.String()}
	for _, b := range x.Bands {
		d.Bands = append(d.Bands, band{Within: b.Within, Rate: b.Rate, Precision: b.Precision})
	}
	return d
}

// An eye is what a page is told of one: the key of a state and perhaps the name or index of its value, or a point.
type eye struct {
	Key   string    `json:"key,omitempty"`
	Value string    `json:"value,omitempty"`
	At    []float64 `json:"at,omitempty"`
}

// eyesOf returns the eyes that a client was given: none if it is to see from nowhere, nil if it was not given any. For the client "" it returns the eyes of
// clients that were given none, in whose keys replication.ClientInEye stands for the name of the client.
func eyesOf(find func(client string) []replication.Eye, client string) (all []eye) {
	common := find(replication.ClientInEye)
	found := common
	if client != "" {
		found = find(client)
		if slices.EqualFunc(found, common, func(a, b replication.Eye) bool {
			b.Key = strings.ReplaceAll(b.Key, replication.ClientInEye, client)
			return a == b
		}) {
			return nil
		}
	}
	all = []eye{} // the client sees from nowhere
	for _, e := range found {
		d := eye{Key: e.Key, Value: e.Value}
		if e.Key == "" {
			d.At = []float64{e.At.X, e.At.Y, e.At.Z}
		}
		all = append(all, d)
	}
	return all
}
