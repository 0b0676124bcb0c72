package natsbus

import (
	"fmt"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/nats-io/nats.go"
)

// TestReadEvery: a connection that pauses between reads gets everything, in order.
func TestReadEvery(t *testing.T) {
	server := startServer(t, "127.0.0.1:0")
	cfg := Config{URL: server.URL(), ReadEvery: time.Millisecond}
	var o nats.Options
	for _, set := range cfg.options() {
		if err := set(&o); err != nil {
			t.Fatal(err)
		}
	}
	if o.CustomDialer == nil {
		t.Error("the connection does not pause")
	}
	const n = 1000
	a, b := connect(t, Config{InProcess: server}), connect(t, cfg)
	got := make(chan string, n)
	if _, err := b.Subscribe("x", func(m bus.Msg) { got <- string(m.Data) }); err != nil {
		t.Fatal(err)
	}
	flush(t, b)
	for i := range n {
		if err := a.Publish(bus.Msg{Subject: "x", Data: fmt.Append(nil, i)}); err != nil {
			t.Fatal(err)
		}
		if i%50 == 0 {
			flush(t, a)
		}
	}
	for i := range n {
		if m := receive(t, got, "all messages arrive"); m != fmt.Sprint(i) {
			t.Fatalf("message %d is %s", i, m)
		}
	}
}
