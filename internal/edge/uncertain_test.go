package edge

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/sessionlog"
	"github.com/dnprelay/dnprelay/sessionlog/memlog"
)

// TestUncertainAtTheHeir: an edge that is to take over a session whose log is damaged says
// whose it was and which numbers the log knows, and tells the client.
func TestUncertainAtTheHeir(t *testing.T) {
	first, w := newTravelled(t)
	addr := strayClient(1)
	c := first.join(w, addr)
	for range 3 {
		if err := c.Send(first.net.Now(), []byte("said")); err != nil {
			t.Fatal(err)
		}
	}
	c.Advance(first.net.Now())
	first.pass(100 * time.Millisecond)
	name := first.worker.keeper.name(addr)
	x := first.worker.keeper.byName[name]
	received, sent := x.core.Conn().Next()
	if received < 3 {
		t.Fatalf("the next number of the client is %d, want 3 at least", received)
	}
	log := first.worker.keeper.d.Log.(*memlog.Store)
	entries := log.Entries(name)
	log.Append([]sessionlog.Write{{Log: name, Expect: entries[len(entries)-1].Seq, Data: []byte("junk")}}, func(int, sessionlog.Answer) {})
	first.net.Run(50 * time.Millisecond)

	heir, ways := first.heirOf()
	var told []string
	_, err := heir.other.Subscribe(heir.edge.cfg.Subjects.Event("s"), func(m bus.Msg) {
		var ev replication.Event
		if err := json.Unmarshal(m.Data, &ev); err != nil {
			t.Error(err)
		}
		told = append(told, string(m.Data))
		if len(told) == 1 && (ev.Session != x.about.ID || !slices.Equal(ev.Numbers, []uint64{received, sent})) {
			t.Errorf("it is told %s, want session %s and the numbers %d, %d", m.Data, x.about.ID, received, sent)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	heir.worker.adopt(name, way{}, "")
	heir.passWith(first, 100*time.Millisecond)
	if len(told) != 2 {
		t.Errorf("%d events are told, want uncertain and left: %s", len(told), told)
	}
	if ways.direct[addr] != 1 {
		t.Errorf("the client is sent %d datagrams, want the end", ways.direct[addr])
	}
}
