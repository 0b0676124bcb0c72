package sessionlog_test

import (
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/dnp/command"
	"github.com/dnprelay/dnprelay/sessionlog"
)

// TestCommandsSurvive checks that the owners of a session know from its log whether the client opted in to
// commands, and which answers have a number: from the records of the messages, and from a checkpoint.
func TestCommandsSurvive(t *testing.T) {
	d := newDesk(t)
	d.receive(append([]byte{4, 0, 0}, command.Hello...))
	for _, token := range []uint64{command.Token(command.HelloID), 7<<20 | 1, command.Token(1), command.Token(3)} {
		if err := d.conn.Send([]byte("x"), token); err != nil {
			t.Fatal(err)
		}
	}
	d.run(100 * time.Millisecond)
	check := func(why string) {
		t.Helper()
		p := d.s.Commands()
		if p.Hello != 1 || p.OptedIn(0) || !p.OptedIn(1) {
			t.Errorf("%s: the hello has number %d less one, want 0", why, p.Hello)
		}
		for id, want := range []bool{true, true, false, true, false} {
			if got := p.Answered(uint16(id)); got != want {
				t.Errorf("%s: request %d counts as answered: %v, want %v", why, id, got, want)
			}
		}
		if got := d.s.Token(); got != 7<<20|1 {
			t.Errorf("%s: the highest token is %#x, want that of the game: an answer has none of the game's", why, got)
		}
	}
	check("the first owner")
	for _, c := range []struct{ node, why string }{{"b", "an owner that reads the records of the messages"}, {"c", "an owner that reads a checkpoint"}} {
		d.conn.Abandon() // the owner dies
		d.s = sessionlog.Adopt(d.config(c.node), "log")
		d.run(100 * time.Millisecond)
		d.s.Claim()
		d.run(2 * time.Second) // the new owner writes a checkpoint
		check(c.why)
	}
}
