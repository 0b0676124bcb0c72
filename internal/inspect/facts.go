package inspect

import "cmp"

// Facts are what nodes know about a client and one state: the edge that serves the client, and
// the relay that holds the space. Each of them fills its half.
type Facts struct {
	Edge   *EdgeFacts   `json:"edge,omitempty"`   // nil: no edge has the client
	Holder *HolderFacts `json:"holder,omitempty"` // nil: no relay holds the space
}

// EdgeFacts are what the edge of a client knows.
type EdgeFacts struct {
	Edge     string `json:"edge"`
	Session  string `json:"session"`
	Adopting string `json:"adopting,omitempty"` // the step of the takeover; the rest is unknown then
	Draining bool   `json:"draining,omitempty"`
	Age      Millis `json:"age_ms"`      // of the session here
	Unheard  Millis `json:"unheard_ms"`  // since the last sign of the holder
	Followed Millis `json:"followed_ms"` // since the edge began to follow the space

	Epoch uint64 `json:"epoch"` // position of the replica
	Seq   uint64 `json:"seq"`
	Whole bool   `json:"whole"` // the replica has every state, as far as it knows

	State   *StateFacts `json:"state,omitempty"`      // nil: the replica has no state with the key
	Removed *Millis     `json:"removed_ms,omitempty"` // how long ago the state ended, if that was lately

	Own       bool   `json:"own,omitempty"`       // the client itself made the state
	Declined  bool   `json:"declined,omitempty"`  // the client refused the link
	NoRoom    bool   `json:"no_room,omitempty"`   // the state waits until another link ends
	Unaligned bool   `json:"unaligned,omitempty"` // after a takeover, the edge offers nothing before the replica is complete
	Links     *Links `json:"links,omitempty"`

	Link *LinkFacts `json:"link,omitempty"` // nil: the client has no link to the state
	Path PathFacts  `json:"path"`
}

// StateFacts are what the replica says about a state and a client.
type StateFacts struct {
	Audience string   `json:"audience"` // all, none, listed, all_but
	Groups   []string `json:"groups,omitempty"`
	Named    bool     `json:"named,omitempty"`         // the audience names the client itself
	Member   []string `json:"client_groups,omitempty"` // the groups of the client
	Included bool     `json:"included"`
	Priority int      `json:"priority"`
	Values   int      `json:"values"`
	Level    *Level   `json:"level,omitempty"` // nil: the client gets everything
	Sight    *Sight   `json:"sight,omitempty"` // nil: the state has no interest, and is seen from everywhere
}

// A Sight is how near a state with an interest is to the eyes of a client.
type Sight struct {
	Interest string   `json:"interest,omitempty"` // its name; empty for one of the state's own
	Eyes     int      `json:"eyes"`               // of the client
	Band     int      `json:"band"`               // at the last look, 1 for the nearest; 0: beyond all
	Bands    int      `json:"bands"`              // 0: the edge does not know the interest
	Within   float64  `json:"within,omitempty"`   // where the band ends; where the last one ends if the state is beyond all
	Distance *float64 `json:"distance,omitempty"` // at present, from the nearest eye; nil if the state, or every eye, is nowhere
	Asleep   bool     `json:"asleep,omitempty"`   // the client has a link, which is sent nothing
}

// A Level is the level of detail at which a client sees a state.
type Level struct {
	Precision float64 `json:"precision"`         // factor on the precision of the values
	Rate      float64 `json:"rate,omitempty"`    // most changes a second; 0 is no limit
	Lacks     int     `json:"lacks,omitempty"`   // values that differ from the state's
	Next      Millis  `json:"next_ms,omitempty"` // until they are brought up to date
}

// LinkFacts are what the connection knows about the link.
type LinkFacts struct {
	ID       uint16 `json:"id"`
	Phase    string `json:"phase"` // queued, offered, presumed, up
	ReadOnly bool   `json:"read_only"`
	Proven   bool   `json:"proven"`          // the client has said something about the link
	Ahead    int    `json:"ahead,omitempty"` // offers that go before this one

	Held   uint32 `json:"held"`            // the version up to which the client was sent values; 0: all are due
	Newest uint32 `json:"newest"`          // version of the state at this edge
	Lacks  int    `json:"lacks,omitempty"` // values that are newer than what was sent

	Waits   bool   `json:"waits,omitempty"` // for the budget
	Waiting Millis `json:"waiting_ms,omitempty"`
	Writes  int    `json:"writes,omitempty"` // values of the client that the holder has not acknowledged

	Quiet   *Millis `json:"quiet_ms,omitempty"`   // since the last change that was sent
	Refresh *Millis `json:"refresh_ms,omitempty"` // until the last changes are repeated
	Scrub   *Millis `json:"scrub_ms,omitempty"`   // until all values are sent again, about
}

// PathFacts are what is known of the way to a client.
type PathFacts struct {
	Heard  Millis  `json:"heard_ms"`       // since the last datagram
	Loss   float64 `json:"loss"`           // share of datagrams lost lately, both ways
	RTT    Millis  `json:"rtt_ms"`         // 0: not known yet
	Rate   int     `json:"rate"`           // bytes a second that the edge sends at most at present; 0: no limit
	Slowed float64 `json:"slowed"`         // 1, or by how much a crowded path lowers the rate
	Used   float64 `json:"used"`           // share of the saved budget that is spent; 1: nothing is left
	Away   bool    `json:"away,omitempty"` // the connection of the carrier takes nothing, or is gone
}

// HolderFacts are what the relay knows that holds the space.
type HolderFacts struct {
	Relay   string `json:"relay"`
	Loading bool   `json:"loading,omitempty"` // it does not serve the shard yet
	Known   bool   `json:"known"`             // it has the space
	Epoch   uint64 `json:"epoch"`
	Seq     uint64 `json:"seq"`
	States  uint64 `json:"states"`

	State     bool      `json:"state"`              // the space has a state with the key
	Connected int       `json:"connected"`          // sessions of the client that edges named
	Sessions  []Session `json:"sessions,omitempty"` // at most SessionsMax of them; none in a space with very many sessions
}

// SessionsMax is how many sessions of a client an answer names.
const SessionsMax = 4

// A Session is one session as the holder knows it.
type Session struct {
	Session string `json:"session"`
	Edge    string `json:"edge,omitempty"`   // that named it last
	Missed  int    `json:"missed,omitempty"` // questions of the holder since then
}

// Merge puts the facts of several answers together. Of several edges the one counts that
// serves the client, and of several relays the one in the highest epoch.
func Merge(all []*Facts) *Facts {
	sum := &Facts{}
	for _, f := range all {
		if f == nil {
			continue
		}
		if e := f.Edge; e != nil && (sum.Edge == nil || sum.Edge.Adopting != "" && e.Adopting == "" ||
			(sum.Edge.Adopting == "") == (e.Adopting == "") && e.Age < sum.Edge.Age) {
			sum.Edge = e
		}
		if h := f.Holder; h != nil && (sum.Holder == nil || compareHolders(h, sum.Holder) > 0) {
			sum.Holder = h
		}
	}
	return sum
}

func compareHolders(a, b *HolderFacts) int {
	serving := func(h *HolderFacts) int {
		if h.Loading {
			return 0
		}
		return 1
	}
	return cmp.Or(serving(a)-serving(b), cmp.Compare(a.Epoch, b.Epoch))
}
