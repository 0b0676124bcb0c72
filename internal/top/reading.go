package top

import (
	"cmp"
	"slices"
	"time"

	"github.com/dnprelay/dnprelay/internal/inspect"
)

// A Want says which parts of a deployment a reading has to have besides its nodes and spaces.
type Want struct {
	Space string // whose clients and states; empty: those of the busiest space, and the clients of some more
	Now   bool   // the reading does not wait for its turn
	Round uint64 // comes back in the reading
}

// A Reading is what a deployment says of itself. Counters are those of the nodes, so two readings give rates.
type Reading struct {
	Round uint64
	At    time.Time
	Err   error // why there is nothing else

	Nodes   []inspect.NodesAnswer
	Missing []inspect.Member
	Spaces  []inspect.Space
	Clients []Client

	Followed string // the space of the states
	States   []State
	Unknown  string // why there are no states
}

// A Client is a client with its space.
type Client struct {
	Space string `json:"space"`
	inspect.Client
}

// A State is what was seen of a state since the command began to follow its space.
type State struct {
	Key     string
	Changes uint64
	Bytes   uint64 // of the records with its changes
}

// A SpaceRate is a space with its rates.
type SpaceRate struct {
	inspect.Space
	PublishRate float64 `json:"publishes_per_second"`
	BatchRate   float64 `json:"batches_per_second"`
	ByteRate    float64 `json:"bytes_per_second"`
}

// SpaceRates returns the spaces with rates, the busiest first. The time between two readings of a space is that
// which its holder measured.
func SpaceRates(before, after []inspect.Space) (all []SpaceRate) {
	old := make(map[string]inspect.Space)
	for _, s := range before {
		old[s.Space] = s
	}
	for _, s := range after {
		t := SpaceRate{Space: s}
		if was, ok := old[s.Space]; ok && was.Epoch == s.Epoch && s.Since > was.Since {
			per := func(now, then uint64) float64 { return float64(now-then) / time.Duration(s.Since-was.Since).Seconds() }
			t.PublishRate, t.BatchRate, t.ByteRate = per(s.Publishes, was.Publishes), per(s.Batches, was.Batches), per(s.BatchBytes, was.BatchBytes)
		}
		all = append(all, t)
	}
	slices.SortStableFunc(all, func(x, y SpaceRate) int {
		return cmp.Or(cmp.Compare(y.ByteRate, x.ByteRate), cmp.Compare(y.Space.Clients, x.Space.Clients))
	})
	return all
}

// Follow returns the space whose states are worth to be seen: the busiest one. It stays with the one that is followed until another
// is twice as busy, because a follower that has just begun knows no rates.
func Follow(rates []SpaceRate, followed string) string {
	for _, s := range rates {
		if s.Space.Space == followed && rates[0].ByteRate <= 2*s.ByteRate {
			return followed
		}
	}
	if len(rates) == 0 {
		return ""
	}
	return rates[0].Space.Space
}

// BusiestClients sorts clients: those whose values wait come first, then those who use most of their budget.
func BusiestClients(list []Client) {
	slices.SortStableFunc(list, func(x, y Client) int {
		return cmp.Or(cmp.Compare(y.Links.Waiting, x.Links.Waiting), cmp.Compare(y.Path.Used, x.Path.Used), cmp.Compare(y.Links.Up, x.Links.Up))
	})
}

// A stateRate is a state with its rates.
type stateRate struct {
	State
	changeRate, byteRate float64
}

// stateRates returns the states with their rates. Counters that went back are those of a new follower.
func stateRates(before, after Reading) (all []stateRate) {
	old := make(map[string]State)
	seconds := after.At.Sub(before.At).Seconds()
	if before.Followed == after.Followed && seconds > 0 {
		for _, s := range before.States {
			old[s.Key] = s
		}
	}
	for _, s := range after.States {
		r := stateRate{State: s}
		if was, ok := old[s.Key]; ok && s.Changes >= was.Changes && s.Bytes >= was.Bytes {
			r.changeRate, r.byteRate = float64(s.Changes-was.Changes)/seconds, float64(s.Bytes-was.Bytes)/seconds
		}
		all = append(all, r)
	}
	return all
}
