package publisher

import (
	"encoding/json"
	"time"

	"github.com/dnprelay/dnprelay/replication"
)

// An Event is news of a space. Fields that do not belong to its type are empty.
type Event struct {
	Type string // joined, left, linked, rejected, changed, refused, reassert, recycle, uncertain

	Time       time.Time `json:"ts"`
	Epoch, Seq uint64

	Client  string
	Session string // of joined and left
	Edge    string
	Reason  string // of left
	Key     string // of linked, rejected, changed and refused
	Link    uint16
	Code    string                     // of refused
	Values  map[string]json.RawMessage // of changed and refused, by name, as JSON
	Numbers []uint64                   // of uncertain
}

// event heeds what concerns the copy.
func (s *Space) event(now time.Time, data []byte) {
	var ev Event
	if json.Unmarshal(data, &ev) != nil {
		return // anybody may publish events
	}
	switch replication.EventType(ev.Type) {
	case replication.EventReassert:
		s.heard = now
		s.follow(ev.Epoch)
	case replication.EventChanged:
		s.written(ev)
	case replication.EventLeft:
		if ev.Reason != "replaced" { // by a newer session of the same client
			delete(s.groups, ev.Client)
		}
	}
}

// written takes what a client wrote into the copy, unless this Space has something
// newer to say.
func (s *Space) written(ev Event) {
	st := s.states[ev.Key]
	if st == nil || st.put == nil || !st.removedAt.IsZero() {
		return
	}
	w := s.out.words[topic{topicState, ev.Key}]
	for name, v := range ev.Values {
		i, ok := st.index(name)
		if !ok || w != nil && (w.put || w.sets[indexName(i)]) {
			continue
		}
		st.put.Values[i].Value, st.theirs[i] = v, true
	}
}
