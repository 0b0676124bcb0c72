package publisher

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"
)

// TestCursorBound: a cursor forgets those who were silent the longest, and is what it
// was after it was stored.
func TestCursorBound(t *testing.T) {
	var c Cursor
	at := time.Unix(1_000_000, 0)
	for i := range cursorMax + 10 {
		c.take(&Message{Session: fmt.Sprint(i), Number: 4, Time: at.Add(time.Duration(i) * time.Millisecond)})
	}
	if n := len(c.sessions); n > cursorMax || n < cursorMax*3/4 {
		t.Fatalf("%d sessions", n)
	}
	if c.Next("0") != 0 || c.Next(fmt.Sprint(cursorMax)) != 5 {
		t.Error("the oldest is to be forgotten, not the newest")
	}
	data, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes for each session", len(data)/len(c.sessions))
	var d Cursor
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	e := d.Clone()
	if d.take(&Message{Session: fmt.Sprint(cursorMax), Number: 4, Time: at}) != verdictHave {
		t.Error("a message that it has is new again")
	}
	if e.take(&Message{Session: fmt.Sprint(cursorMax), Number: 9, Previous: 5, chained: true, Time: at}) != verdictNew {
		t.Error("the next one is not")
	}
	if e.take(&Message{Session: fmt.Sprint(cursorMax), Number: 12, Previous: 11, chained: true, Time: at}) != verdictGap {
		t.Error("a gap is not seen")
	}
	if d.Next(fmt.Sprint(cursorMax)) != 5 {
		t.Error("a clone changes its original")
	}
}
