package sessionlog_test

import (
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// TestOfferOfGoneState: a session is adopted while an offer is in flight whose state does not
// exist any more. Its number must not stay a hole, before which the client stops for ever.
func TestOfferOfGoneState(t *testing.T) {
	for _, long := range []bool{false, true} {
		d := newDesk(t)
		d.want("the session is open", "opened")
		if long { // the client shows that it knows command 10, so the offer's bytes are not kept
			for _, ev := range d.ep.Receive(d.net.Now(), vip, []byte{10, 0, 0, 0}, &d.out) {
				d.s.Handle(d.net.Now(), &ev)
			}
			d.run(50 * time.Millisecond)
			d.heard = nil
		}
		layout, err := netstate.NewLayout([]netstate.Value{{Type: 5}})
		if err != nil {
			t.Fatal(err)
		}
		state := d.ep.NewSource(dnp.SourceConfig{State: netstate.NewState(layout), Message: []byte("m"), Ref: 1})
		if err := d.conn.Link(state, true); err != nil {
			t.Fatal(err)
		}
		d.run(50 * time.Millisecond)
		if err := d.conn.Send([]byte("behind it"), 0); err != nil {
			t.Fatal(err)
		}
		d.run(50 * time.Millisecond)
		_, sent := d.conn.Next()
		if sent != 2 || d.conn.SpeaksLong() != long {
			t.Fatalf("the next number is %d, want 2; the client knows command 10: %v", sent, d.conn.SpeaksLong())
		}

		heir := newDesk(t)
		heir.heard, heir.store, heir.net = nil, d.store, d.net
		heir.conn.Abandon()
		heir.s = sessionlog.Adopt(heir.config("b"), "log")
		heir.run(50 * time.Millisecond)
		heir.s.Claim()
		heir.run(50 * time.Millisecond)
		heir.want("the session is the other edge's", "found", "adopted")
		if _, n := heir.conn.Next(); n != sent {
			t.Errorf("its next number is %d, want %d", n, sent)
		}
	}
}
