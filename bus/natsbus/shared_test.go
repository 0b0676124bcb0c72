package natsbus

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/dnprelay/dnprelay/bus"
)

// TestSharedCostsNoGoroutine: an edge has a subscription for each client, so none may cost a
// goroutine.
func TestSharedCostsNoGoroutine(t *testing.T) {
	const n = 500
	b := connect(t, Config{InProcess: startServer(t, "")})
	flush(t, b)
	before := runtime.NumGoroutine()
	for i := range n {
		if _, err := b.SubscribeShared(fmt.Sprintf("to.%d", i), func(bus.Msg) {}); err != nil {
			t.Fatal(err)
		}
	}
	flush(t, b)
	if grown := runtime.NumGoroutine() - before; grown > n/100 {
		t.Errorf("%d goroutines for %d subscriptions, want none", grown, n)
	}
}

// TestSharedQueueIsBounded: messages beyond the bound are dropped and counted, and later ones arrive.
func TestSharedQueueIsBounded(t *testing.T) {
	const n = sharedMessages + 500
	server := startServer(t, "")
	a, b := connect(t, Config{InProcess: server, OutgoingBytes: 64 << 20}), connect(t, Config{InProcess: server})
	entered, blocked := make(chan struct{}, n+2), make(chan struct{})
	if _, err := b.SubscribeShared("to.*", func(bus.Msg) { entered <- struct{}{}; <-blocked }); err != nil {
		t.Fatal(err)
	}
	flush(t, b)
	for range n {
		if err := a.Publish(bus.Msg{Subject: "to.x"}); err != nil {
			t.Fatal(err)
		}
	}
	flush(t, a)
	receive(t, entered, "the first message")
	flush(t, b)    // all messages have arrived
	const held = 1 // by the handler
	want := uint64(n - sharedMessages - held)
	if missed := b.Stats().Missed; missed != want && missed != want+held { // the handler may have begun late
		t.Errorf("%d missed, want %d: the messages beyond the queue", missed, want)
	}
	close(blocked)
	for range sharedMessages - 1 {
		receive(t, entered, "a message in the queue")
	}
}
