package publisher

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Bounds of a Cursor. A session that was silent for cursorAge has ended, and so has
// whatever could repeat its messages. Beyond cursorMax sessions, the Cursor forgets those
// that were silent the longest.
const (
	cursorAge = 24 * time.Hour
	cursorMax = 65_536
)

// A Cursor says which reliable messages of a space's clients a game server has. The zero
// value has none. The game server stores it with the state that the messages changed, in
// one step, so that a restart loses and repeats nothing. As JSON a Cursor is about 60
// bytes for each session of the last day.
type Cursor struct {
	made     int64  // when the stream was made, in Unix nanoseconds
	stream   uint64 // sequence of the newest message; where to continue reading, not which messages are new
	sessions map[string]place
}

// A place is how far a session is.
type place struct {
	Next uint64 `json:"next"` // number of the newest message, plus one
	At   int64  `json:"at"`   // when the stream stored that message, in Unix seconds
}

// Next returns the lowest number that the next message of a session can have: 0 for a
// session without messages.
func (c *Cursor) Next(session string) uint64 { return c.sessions[session].Next }

// Clone returns a copy that does not change with c.
func (c *Cursor) Clone() Cursor { return Cursor{c.made, c.stream, maps.Clone(c.sessions)} }

// cursorJSON is the stored form of a Cursor.
type cursorJSON struct {
	Made     int64            `json:"made"`
	Stream   uint64           `json:"stream"`
	Sessions map[string]place `json:"sessions"`
}

// MarshalJSON writes the Cursor.
func (c Cursor) MarshalJSON() ([]byte, error) {
	return json.Marshal(cursorJSON{c.made, c.stream, c.sessions})
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (c *Cursor) UnmarshalJSON(data []byte) error {
	var form cursorJSON
	if err := json.Unmarshal(data, &form); err != nil {
		return fmt.Errorf("cursor: %w", err)
	}
	*c = Cursor{form.Made, form.Stream, form.Sessions}
	return nil
}

// A verdict is what a Cursor decides about a message.
type verdict uint8

const (
	verdictNew verdict = iota
	verdictDuplicate
	verdictGap // new, and a message before it is missing
)

// take decides whether a message is new, and notes it.
func (c *Cursor) take(m *Message) verdict {
	c.stream = m.stream
	old, known := c.sessions[m.Session]
	if known && m.Number < old.Next {
		return verdictDuplicate
	}
	if c.sessions == nil {
		c.sessions = map[string]place{}
	}
	if !known && len(c.sessions) >= cursorMax {
		c.trim(m.Time)
	}
	c.sessions[m.Session] = place{m.Number + 1, m.Time.Unix()}
	if m.chained && m.Previous != old.Next {
		return verdictGap
	}
	return verdictNew
}

// trim forgets sessions that have ended, and at least an eighth of all, so that it runs
// rarely.
func (c *Cursor) trim(now time.Time) {
	oldest := slices.SortedFunc(maps.Keys(c.sessions), func(a, b string) int { return int(c.sessions[a].At - c.sessions[b].At) })
	for i, session := range oldest {
		if i >= len(oldest)/8 && c.sessions[session].At > now.Add(-cursorAge).Unix() {
			return
		}
		delete(c.sessions, session)
	}
}
