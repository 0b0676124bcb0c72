package systest

import (
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
)

// TestPrepared: an edge that is asked to follow a space says so when each of its workers has
// the states, and not before: sessions come then.
func TestPrepared(t *testing.T) {
	w := newKeepWorld(t, 3)
	w.mustPublish("yard", `{"op":"put","key":"tower","message":"T","values":[{"name":"n","type":"uint16","value":0}]}`)
	e := w.edges[0]
	answer := ""
	ask := bus.Msg{Subject: w.subjects.Edge(e.name), Data: []byte(`{"prepare":["yard"]}`)}
	w.hub.Node("other").Request(ask, 2*time.Second, func(m bus.Msg, err error) {
		if answer = string(m.Data); err != nil {
			answer = err.Error()
		}
		for i, k := range e.workers {
			if r := k.worker.Replica("yard"); r == nil || !r.Complete() {
				t.Errorf("worker %d does not have the states yet", i)
			}
		}
	})
	w.net.Run(2 * time.Second)
	if answer != "{}" {
		t.Errorf("the answer is %q, want that it is prepared", answer)
	}
}
