package publisher

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"
)

// Bounds of a Cursor. A session of which nothing was heard for so long has ended, and
// whatever could have repeated its messages too; beyond the number, the one that was
// silent the longest is forgotten.
const (
	cursorAge = 24 * time.Hour
	cursorMax = 65_536
)

// A Cursor is which reliable messages of a space's clients a game server has. The zero
// value has none. It is a value to be stored with the state that the messages changed,
// in one step: then a restart loses and doubles nothing. As JSON it is about 60 bytes
// for each session of the last day.
type Cursor struct {
	made     int64  // when the stream was, in Unix nanoseconds
	stream   uint64 // sequence of the newest message; where to go on, not what to take
	sessions map[string]place
}

// A place is how far a session is.
type place struct {
	Next uint64 `json:"next"` // number of the newest message, plus one
	At   int64  `json:"at"`   // when the stream got it, in Unix seconds
}

// Next returns the number that the next message of a session has at least. It is 0 for
// a session without messages.
func (c *Cursor) Next(session string) uint64 { return c.sessions[session].Next }

// Clone returns a copy that does not change with c.
func (c *Cursor) Clone() Cursor { return Cursor{c.made, c.stream, maps.Clone(c.sessions)} }

// cursorJSON is a Cursor as it is stored.
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

// A verdict is what a Cursor says to a message.
type verdict uint8

const (
	verdictNew verdict = iota
	verdictHave
	verdictGap // new, and something before it is missing
)

// take looks at a message, and notes it.
func (c *Cursor) take(m *Message) verdict {
	c.stream = m.stream
	old, known := c.sessions[m.Session]
	if known && m.Number < old.Next {
		return verdictHave
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

// trim forgets sessions that have ended, and at least an eighth of them, so that it is
// rare.
func (c *Cursor) trim(now time.Time) {
	ends := slices.SortedFunc(maps.Keys(c.sessions), func(a, b string) int { return int(c.sessions[a].At - c.sessions[b].At) })
	for i, session := range ends {
		if i >= len(ends)/8 && c.sessions[session].At > now.Add(-cursorAge).Unix() {
			return
		}
		delete(c.sessions, session)
	}
}
