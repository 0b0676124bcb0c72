package publisher

import (
	"strconv"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
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

// TestPutAgain has a relay refuse a removal that came twice, while the state was put again: the new state is sent.
func TestPutAgain(t *testing.T) {
	var refused []error
	s := &Space{
		p: &Publisher{cfg: Config{Refused: func(_ string, err error) { refused = append(refused, err) }}}, out: outbox{ops: map[topic]*pendingOp{}},
		states: map[string]*state{"k": {put: &putJSON{}}}, // put, removed, and put again
	}
	removal := &pendingOp{topic: topic{topicState, "k"}, source: "remove k", put: true} // the first put and the removal were one op
	s.results(time.Now(), &request{ops: []*pendingOp{removal}}, payload.Answer{
		Results: []struct{ Error *payload.AnswerError }{{&payload.AnswerError{Code: replication.CodeUnknownState}}},
	})
	if len(refused) > 0 || s.out.ops[topic{topicState, "k"}] == nil {
		t.Errorf("refused %v; to be sent: %v, want the state", refused, s.out.ops)
	}
}
