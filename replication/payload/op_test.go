package payload

import (
	"encoding/json"
	"testing"
)

// TestSetNames: whatever a game server calls a value, the op is JSON, so that the relay can refuse the name.
func TestSetNames(t *testing.T) {
	const name = "a\"b\\\n"
	text := (&Op{Op: "set", Key: "k", Sets: []Member{{name, json.RawMessage("1")}, {"hp", json.RawMessage("2")}}}).Append(nil)
	var got struct{ Values map[string]int }
	if err := json.Unmarshal(text, &got); err != nil || got.Values[name] != 1 || got.Values["hp"] != 2 {
		t.Errorf("%s is %v, %v", text, got.Values, err)
	}
}
