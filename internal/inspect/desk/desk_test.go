package desk

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/bus/membus"
	"github.com/dnprelay/dnprelay/internal/inspect"
)

// TestDesk asks for more than a node answers.
func TestDesk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var due []func() // deliveries of the bus
		b := membus.New(membus.Config{Schedule: func(_ time.Duration, f func()) { due = append(due, f) }}).Node("e")
		var answers []string
		if _, err := b.Subscribe("me", func(m bus.Msg) { answers = append(answers, string(m.Data)) }); err != nil {
			t.Fatal(err)
		}
		d := New(b, "e", "edge")
		said := func() []string {
			for _, deliver := range due {
				deliver()
			}
			got := answers
			due, answers = nil, nil
			time.Sleep(time.Second) // of the clock of synctest, so that the limits are full again
			return got
		}
		busy := `{"v":1,"node":"e","role":"edge","error":{"code":"busy"}}`
		parse := func([]byte) (inspect.Query, error) { return inspect.Query{Max: 1}, nil }

		if _, ok := d.Take(bus.Msg{}, parse); ok {
			t.Error("a request without a subject for the answer is taken")
		}
		if q, ok := d.Take(bus.Msg{Reply: "me"}, parse); !ok || q.Max != 1 {
			t.Errorf("a request is not taken: %+v", q)
		}
		if _, ok := d.Take(bus.Msg{Reply: "me"}, func([]byte) (inspect.Query, error) { return inspect.Query{}, inspect.ErrBadRequest }); ok {
			t.Error("a malformed request is taken")
		}
		if got := said(); len(got) != 1 || got[0] != `{"v":1,"node":"e","role":"edge","error":{"code":"bad_request"}}` {
			t.Errorf("a malformed request is answered with %q", got)
		}
		entered := 0
		for range openMax + 1 {
			if d.Enter("me") {
				entered++
			}
		}
		if got := said(); entered != openMax || !slices.Equal(got, []string{busy}) {
			t.Errorf("%d requests at a time, the next is answered with %q", entered, got)
		}
		d.Leave()
		if !d.Enter("me") {
			t.Error("no request is let in although one has left")
		}
		taken := 0
		for range 200 {
			if _, ok := d.Take(bus.Msg{Reply: "me"}, parse); ok {
				taken++
			}
		}
		if got := said(); taken != 100 || len(got) != 10 || got[0] != busy {
			t.Errorf("%d of 200 requests at once are taken, %d are told that the node is busy", taken, len(got))
		}
		if got, want := d.limiter.Counts, (inspect.LimiterCounts{Answered: 102, Busy: 10, Dropped: 90, Malformed: 1}); got != want {
			t.Errorf("counted %+v, want %+v", got, want)
		}
	})
}
