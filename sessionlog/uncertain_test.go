package sessionlog_test

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// TestUncertainNumbers: an edge that cannot take a session over, because of what the log has
// last, says who it is and which numbers the log knows.
func TestUncertainNumbers(t *testing.T) {
	gap := sessionlog.Block{Changes: dnp.Changes{Sent: []dnp.SentCommand{{Number: 1000, Kind: dnp.SentMessage, Data: []byte("x")}}}, Acks: true}
	for _, c := range []struct {
		name  string
		last  func(previous uint64) []byte
		claim bool // it is found out when the session is the other edge's
	}{
		{"damaged", func(uint64) []byte { return []byte("junk") }, false},
		{"numbers that do not follow", func(previous uint64) []byte {
			gap.Epoch, gap.Owner, gap.Number, gap.Previous = 1, 1, 1, previous
			return gap.Append(nil)
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDesk(t)
			d.want("the session is open", "opened")
			for i := range 3 {
				command := binary.LittleEndian.AppendUint16([]byte{4}, uint16(i))
				for _, ev := range d.ep.Receive(d.net.Now(), vip, append(command, "said"...), &d.out) {
					d.s.Handle(d.net.Now(), &ev)
				}
			}
			for range 2 {
				if err := d.conn.Send([]byte("told"), 0); err != nil {
					t.Fatal(err)
				}
			}
			d.run(time.Second)
			received, sent := d.conn.Next()
			if received != 3 || sent != 2 {
				t.Fatalf("the next numbers are %d and %d, want 3 and 2", received, sent)
			}
			entries := d.store.Entries("log")
			tail := entries[len(entries)-1].Seq
			d.store.Append([]sessionlog.Write{{Log: "log", Expect: tail, Data: c.last(tail)}}, func(int, sessionlog.Answer) {})
			d.net.Run(50 * time.Millisecond)

			heir := newDesk(t)
			heir.heard, heir.store, heir.net = nil, d.store, d.net
			heir.conn.Abandon()
			heir.s = sessionlog.Adopt(heir.config("b"), "log")
			heir.run(50 * time.Millisecond)
			if c.claim {
				heir.want("there is a session", "found")
				heir.s.Claim()
				heir.run(50 * time.Millisecond)
				heir.want("it is the other edge's, which cannot go on", "adopted", "uncertain")
			} else {
				heir.want("there is a session that cannot be read to its end", "uncertain")
			}
			if a := heir.last; a.Received != received || a.Sent != sent {
				t.Errorf("numbers %d and %d are named, the log knows %d and %d", a.Received, a.Sent, received, sent)
			}
			if heir.last.Info.ID != d.s.Info().ID || heir.last.Info.Addr != vip {
				t.Errorf("it names the session %+v", heir.last.Info)
			}
		})
	}
}
