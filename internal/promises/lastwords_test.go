package promises

import (
	"fmt"
	"testing"

	"github.com/coder/websocket"
	"github.com/dnprelay/dnprelay/publisher"
)

// TestLastWords: what a client says on a WebSocket before it closes it arrives, although it does not wait: a message, and that it leaves.
func TestLastWords(t *testing.T) {
	matrix{named: []string{"go,ws,c0,1"}, only: "ws", goOnly: "what each library says is in TestClosed"}.run(t, func(w *world) {
		h := w.events(w.space, publisher.Filter{Kinds: []publisher.Kind{publisher.KindMessage, publisher.KindJoined, publisher.KindLeft}}, nil)
		n := tries(8)
		w.each(n, func(i int) {
			c, _, err := websocket.Dial(w.ctx, w.path().url+"/dnp", &websocket.DialOptions{Subprotocols: []string{"dnp.v1"}})
			w.must(err)
			send := func(d ...byte) { w.must(c.Write(w.ctx, websocket.MessageBinary, d)) }
			_, _, err = c.Read(w.ctx) // the greeting
			w.must(err)
			send(0, 1, 0, 0, 0) // ConnectionRequest
			_, _, err = c.Read(w.ctx)
			w.must(err)
			send(append([]byte{4, 0, 0}, fmt.Sprint("bye ", i)...)...) // ReliableMessage
			send(2)                                                    // ConnectionClose
			w.must(c.Close(websocket.StatusNormalClosure, ""))
		})
		w.eventually("every client leaves", func() bool {
			return h.count(func(ev publisher.Event) bool { return ev.Kind == publisher.KindLeft }) == n
		})
		lost := 0
		for i := range n {
			if !h.has(func(ev publisher.Event) bool {
				return ev.Kind == publisher.KindMessage && string(ev.Message.Data) == fmt.Sprint("bye ", i)
			}) {
				lost++
			}
		}
		byPeer := h.count(func(ev publisher.Event) bool { return ev.Kind == publisher.KindLeft && ev.Reason == "peer" })
		w.tell(n, lost+n-byPeer, "%d messages lost, %d left by another reason than peer", lost, n-byPeer)
	})
}
