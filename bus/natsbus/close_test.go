package natsbus

import (
	"testing"

	"github.com/dnprelay/dnprelay/bus"
)

// TestCloseLosesNothing closes connections right behind their last message, while other messages come to them. A connection that is closed with something
// unread in it is reset, and the server may drop what it had not read yet: the word of an edge that its clients left, for one.
func TestCloseLosesNothing(t *testing.T) {
	s := startServer(t, "127.0.0.1:0")
	from, to := connect(t, Config{URL: s.URL()}), connect(t, Config{URL: s.URL()})
	last := make(chan string, 1)
	if _, err := to.Subscribe("last", func(m bus.Msg) { last <- string(m.Data) }); err != nil {
		t.Fatal(err)
	}
	flush(t, to)
	for range 100 {
		b := connect(t, Config{URL: s.URL()})
		if _, err := b.Subscribe("flood", func(bus.Msg) {}); err != nil {
			t.Fatal(err)
		}
		flush(t, b)
		for range 200 {
			if err := from.Publish(bus.Msg{Subject: "flood", Data: make([]byte, 1000)}); err != nil {
				t.Fatal(err)
			}
		}
		for range 100 {
			if err := b.Publish(bus.Msg{Subject: "other", Data: make([]byte, 1000)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Publish(bus.Msg{Subject: "last"}); err != nil {
			t.Fatal(err)
		}
		b.Close()
		receive(t, last, "the last message of a connection that was closed")
		flush(t, from)
	}
}
