package promises

import (
	"context"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/publisher"
)

// TestSendLong: a message that takes longer than any fixed time of the library is no error before the deadline of the caller.
func TestSendLong(t *testing.T) {
	eachCond(t, []int{2}, func(w *world, _ cond, p *path) {
		names := make(chan string, 1)
		w.events(w.space, publisher.Filter{Kinds: []publisher.Kind{publisher.KindJoined}}, func(ev publisher.Event) { names <- ev.Client })
		got := make(chan int, 9)
		w.dial(p.url, client.Config{Message: func(_ *client.Client, m client.Message) { got <- len(m.Data) }})
		me := <-names
		const long = 256 << 10
		for range tries(1) {
			ctx, cancel := context.WithTimeout(w.ctx, time.Minute)
			number, err := w.space.Send(ctx, publisher.Outgoing{To: me, Data: make([]byte, long)})
			cancel()
			if err != nil || number == 0 {
				w.Errorf("Send: number %d, %v, want one within the minute", number, err)
			}
			if n := <-got; n != long {
				w.Errorf("the client gets %d bytes", n)
			}
		}
	})
}
