package sessionlog_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// stop stops the edge before it hears what the log answered to the newest request; another
// edge may adopt the session. Then the edge goes on, and the log takes its time to tell it.
func (d *desk) stop(taken bool) {
	d.Helper()
	if len(d.held) == 0 {
		d.Fatal("the log was not asked")
	}
	if taken {
		entries := d.store.Entries("log")
		newest := entries[len(entries)-1]
		last, other := newest.Seq, "other"
		block := sessionlog.Block{Epoch: d.s.Epoch() + 1, Owner: 1, Number: 1, Previous: last, Adopt: &other}
		if k, err := sessionlog.ParseBlock(newest.Data); err != nil {
			d.Fatal(err)
		} else if k.Close != nil { // the client came back from the same port
			block.Open, block.Ckpt = true, &sessionlog.Checkpoint{Info: d.s.Info(), Node: other}
		}
		d.store.Append([]sessionlog.Write{{Log: "log", Expect: last, Data: block.Append(nil)}}, func(_ int, a sessionlog.Answer) {
			if a.Verdict != fence.OK {
				d.Errorf("the other edge's adoption: %v", a.Verdict)
			}
		})
		d.net.Run(30 * time.Millisecond)
	}
	d.out.sent = 0
	d.s.Revalidate()
	d.release()
	d.held = make([]func(), 0, 1)
	d.run(50 * time.Millisecond)
	if d.out.sent > 0 {
		d.Errorf("it sends %d datagrams before the log says whose the session is", d.out.sent)
	}
	d.release()
}

// release gives the session the answers that wait.
func (d *desk) release() {
	answers := d.held
	d.held = nil
	for _, f := range answers {
		f()
	}
}

// TestStoppedOwner is an edge that was stopped while a write of it, or a read, was on its
// way. What the log answered then does not say whose the session is by now.
func TestStoppedOwner(t *testing.T) {
	for _, taken := range []bool{true, false} {
		for _, reads := range []bool{false, true} {
			t.Run(fmt.Sprintf("taken %v, reads %v", taken, reads), func(t *testing.T) {
				d := newDesk(t)
				d.want("the session is open", "opened")
				_ = d.conn.Send([]byte("x"), 0)
				if reads {
					d.run(50 * time.Millisecond)
					d.s.Revalidate()
				}
				d.held = make([]func(), 0, 1)
				d.run(50 * time.Millisecond)
				d.stop(taken)
				d.run(time.Second)
				d.resumed(taken)
			})
		}
	}
}

// TestStoppedEnd is an edge that was stopped while the end of its session was on its way to
// the log. By now the client may be back, and at another edge.
func TestStoppedEnd(t *testing.T) {
	for _, taken := range []bool{true, false} {
		t.Run(fmt.Sprintf("taken %v", taken), func(t *testing.T) {
			d := newDesk(t)
			d.want("the session is open", "opened")
			d.conn.Close(dnp.CloseKicked)
			d.held = make([]func(), 0, 1)
			d.run(50 * time.Millisecond)
			d.stop(taken)
			d.run(time.Second)
			if taken {
				d.resumed(taken)
				return
			}
			d.want("the log says that the end is the last word", "ended")
			if d.out.sent == 0 {
				d.Error("the client is not told of the end")
			}
		})
	}
}

// TestStoppedHeir is an edge that was stopped before it heard that it owns the session.
func TestStoppedHeir(t *testing.T) {
	for _, taken := range []bool{true, false} {
		t.Run(fmt.Sprintf("taken %v", taken), func(t *testing.T) {
			d := newDesk(t)
			d.want("the session is open", "opened")
			_ = d.conn.Send([]byte("x"), 0) // which is to be sent again
			d.run(50 * time.Millisecond)
			heir := newDesk(t)
			heir.heard = nil
			heir.store, heir.net = d.store, d.net
			heir.conn.Abandon()
			heir.s = sessionlog.Adopt(heir.config("b"), "log")
			heir.run(50 * time.Millisecond)
			heir.want("there is a session", "found")
			heir.s.Claim()
			heir.held = make([]func(), 0, 1)
			heir.run(50 * time.Millisecond)
			heir.stop(taken)
			heir.run(time.Second)
			if len(heir.heard) == 0 || heir.heard[0] != "adopted" {
				t.Fatalf("the log said that the session is the heir's, which heard %v", heir.heard)
			}
			heir.heard = heir.heard[1:]
			heir.resumed(taken)
		})
	}
}

// resumed says what an edge must have done that goes on.
func (d *desk) resumed(taken bool) {
	d.Helper()
	if !taken {
		d.want("the session is still its own")
		if d.out.sent == 0 {
			d.Error("it says nothing to its client")
		}
		return
	}
	d.want("the log says that another edge has the session", "lost")
	if d.out.sent > 0 {
		d.Errorf("it sent %d datagrams to the client of another edge", d.out.sent)
	}
	if d.conn != nil && d.conn.Established() {
		d.Error("the connection goes on")
	}
}
