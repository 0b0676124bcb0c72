package promises

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/publisher"
)

// TestSendLong: a message that takes longer than any fixed time of the library is no error before the deadline of the caller.
func TestSendLong(t *testing.T) {
	matrix{named: []string{"go,udp,c2,1"}}.run(t, func(w *world) {
		const long = 256 << 10
		var broken atomic.Int64
		n := tries(1)
		w.each(n, func(int) {
			got := make(chan int, 1)
			c, me := w.named(w.path(), ears{message: func(data []byte) { got <- len(data) }})
			ctx, cancel := context.WithTimeout(w.ctx, 10*time.Minute)
			number, err := w.space.Send(ctx, publisher.Outgoing{To: me, Data: make([]byte, long)})
			cancel()
			if err != nil || number == 0 {
				broken.Add(1)
				w.Logf("Send to %s: number %d, %v, want one before the deadline", me, number, err)
				return
			}
			select {
			case n := <-got:
				if n != long {
					broken.Add(1)
					w.Logf("%s gets %d bytes", me, n)
				}
			case <-c.Done():
				broken.Add(1)
				w.Logf("%s ends: %v", me, c.Err())
			case <-w.ctx.Done():
				broken.Add(1)
				w.Logf("%s gets nothing", me)
			}
			w.must(c.Close())
		})
		w.tell(n, int(broken.Load()), "")
	})
}
