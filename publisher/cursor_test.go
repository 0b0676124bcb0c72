package publisher

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"
)

// TestCursorBound requires that a full cursor forgets the sessions that were silent the
// longest, and that storing changes nothing.
func TestCursorBound(t *testing.T) {
	var c Cursor
	at := time.Unix(1_000_000, 0)
	for i := range cursorMax + 10 {
		c.take(&Message{Session: fmt.Sprint(i), Number: 4, Time: at.Add(time.Duration(i) * time.Millisecond)})
	}
	if n := len(c.at.Sessions); n > cursorMax || n < cursorMax*3/4 {
		t.Fatalf("%d sessions", n)
	}
	if c.Next("0") != 0 || c.Next(fmt.Sprint(cursorMax)) != 5 {
		t.Error("the cursor forgot a new session or remembers the oldest")
	}
	data, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d bytes for each session", len(data)/len(c.at.Sessions))
	var d Cursor
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	e := d.Clone()
	if fresh, _ := d.take(&Message{Session: fmt.Sprint(cursorMax), Number: 4, Time: at}); fresh {
		t.Error("a message that the cursor has counts as new")
	}
	if fresh, gap := e.take(&Message{Session: fmt.Sprint(cursorMax), Number: 9, Previous: 5, chained: true, Time: at}); !fresh || gap != nil {
		t.Error("the next message does not count as new")
	}
	if fresh, gap := e.take(&Message{Session: fmt.Sprint(cursorMax), Number: 12, Previous: 11, chained: true, Time: at}); !fresh || gap == nil {
		t.Error("the cursor does not report a gap")
	}
	if d.Next(fmt.Sprint(cursorMax)) != 5 {
		t.Error("a clone changes its original")
	}
}
