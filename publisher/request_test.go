package publisher

import (
	"strconv"
	"testing"
)

// TestOutboxPop counts the entries that the outbox moves to pop 65,536 of them. A pop
// that shifts the entries behind it moves them about two billion times.
func TestOutboxPop(t *testing.T) {
	const entries = 65_536
	o := outbox{ops: map[topic]*pendingOp{}}
	for i := range entries {
		o.push(&pendingOp{topic: topic{topicState, strconv.Itoa(i)}})
	}
	moved := 0
	for i := range entries {
		last := &o.order[len(o.order)-1]
		if p := o.pop(); p.topic.name != strconv.Itoa(i) {
			t.Fatalf("pop %d returns %q, want the entries in the order of their pushes", i, p.topic.name)
		}
		if n := len(o.order); n > 0 && &o.order[n-1] != last {
			moved += n
		}
	}
	if moved > entries || !o.empty() {
		t.Errorf("%d pops moved %d entries, want at most one each; empty: %v", entries, moved, o.empty())
	}
}
