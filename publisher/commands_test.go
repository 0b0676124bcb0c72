package publisher

import (
	"errors"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats.go"
)

// TestAnswerHeardLate: an edge that says that the client has an answer means this one if the edge did not confirm an earlier attempt in
// time, and another one otherwise.
func TestAnswerHeardLate(t *testing.T) {
	for _, c := range []struct {
		reply   string
		unheard bool
		ends    bool
		want    error
	}{
		{`{"number":7}`, false, true, nil},
		{`{"duplicate":true}`, false, true, ErrLate},
		{`{"duplicate":true}`, true, true, nil},
		{`{"error":{"code":"unknown_client"}}`, true, true, ErrLate},
		{`{"error":{"code":"busy"}}`, true, false, nil},
	} {
		if ends, err := verdict("c", []byte(c.reply), c.unheard); ends != c.ends || !errors.Is(err, c.want) {
			t.Errorf("after %s (an attempt was not confirmed: %t) the repetition ends: %t, %v; want %t, %v", c.reply, c.unheard, ends, err, c.ends, c.want)
		}
	}
}

// TestReplyTooLate: an answer behind the time for which the edge waits is refused.
func TestReplyTooLate(t *testing.T) {
	s := quietSpace()
	for _, c := range []struct {
		ago  time.Duration
		want error
	}{{time.Minute, nats.ErrInvalidConnection}, {0, nats.ErrInvalidConnection}, {6 * time.Second, ErrLate}} {
		m := &nats.Msg{Subject: "dnp.v1.command.demo.k", Reply: "inbox", Header: nats.Header{
			subject.HeaderCommand: {"open"}, subject.HeaderRequest: {"1"}, subject.HeaderSession: {"s"}, subject.HeaderClient: {"ann"}, subject.HeaderTimeout: {"5000"},
		}}
		if c.ago == time.Minute { // an edge that does not say how long it waits
			m.Header.Del(subject.HeaderTimeout)
		}
		ev, ok := s.said(time.Now().Add(-c.ago), m)
		if !ok {
			t.Fatal("the command is not one")
		}
		if err := ev.Command.Reply(t.Context(), nil); !errors.Is(err, c.want) {
			t.Errorf("a reply after %v: %v, want %v", c.ago, err, c.want)
		}
	}
}
