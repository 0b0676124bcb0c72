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
type Cursor struct{ at progress }

// A progress is the stored form of a Cursor.
type progress struct {
	Made     int64            `json:"made"`   // when the stream was made, in Unix nanoseconds
	Stream   uint64           `json:"stream"` // sequence of the newest message; where to continue reading, not which messages are new
	Sessions map[string]place `json:"sessions"`
}

// A place is how far a session is.
type place struct {
	Next uint64 `json:"next"` // number of the newest message, plus one
	At   int64  `json:"at"`   // when the stream stored that message, in Unix seconds
}

// Next returns the lowest number that the next message of a session can have: 0 for a
// session without messages.
func (c *Cursor) Next(session string) uint64 { return c.at.Sessions[session].Next }

// Clone returns a copy that does not change with c.
func (c *Cursor) Clone() Cursor {
	return Cursor{progress{c.at.Made, c.at.Stream, maps.Clone(c.at.Sessions)}}
}

// MarshalJSON writes the Cursor.
func (c Cursor) MarshalJSON() ([]byte, error) { return json.Marshal(c.at) }

// UnmarshalJSON reads what MarshalJSON wrote.
func (c *Cursor) UnmarshalJSON(data []byte) error {
	var at progress
	if err := json.Unmarshal(data, &at); err != nil {
		return fmt.Errorf("cursor: %w", err)
	}
	c.at = at
	return nil
}

// take notes a message, and decides whether it is new. gap is a *GapError if a message before
// it is missing.
func (c *Cursor) take(m *Message) (fresh bool, gap error) {
	c.at.Stream = m.stream
	old, known := c.at.Sessions[m.Session]
	if known && m.Number < old.Next {
		return false, nil
	}
	if c.at.Sessions == nil {
		c.at.Sessions = map[string]place{}
	}
	if !known && len(c.at.Sessions) >= cursorMax {
		c.trim(m.Time)
	}
	c.at.Sessions[m.Session] = place{m.Number + 1, m.Time.Unix()}
	if m.chained && m.Previous != old.Next {
		return true, &GapError{m.Client, m.Session, old.Next, m.Previous}
	}
	return true, nil
}

// trim forgets sessions that have ended, and at least an eighth of all, so that it runs
// rarely.
func (c *Cursor) trim(now time.Time) {
	all := c.at.Sessions
	oldest := slices.SortedFunc(maps.Keys(all), func(a, b string) int { return int(all[a].At - all[b].At) })
	for i, session := range oldest {
		if i >= len(oldest)/8 && all[session].At > now.Add(-cursorAge).Unix() {
			return
		}
		delete(all, session)
	}
}
