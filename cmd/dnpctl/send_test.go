package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/edgetest"
)

// TestSendWaits: a message to an edge is sent when the edge has acknowledged all of it, however
// long that takes. Here the first copy of each part gets lost.
func TestSendWaits(t *testing.T) {
	t.Parallel()
	received := make(chan []byte, 1)
	edge := edgetest.Start(t, edgetest.Config{Received: received, Lossy: true})
	message := bytes.Repeat([]byte("0123456789"), 20_000)
	c := sendCommand{Target: edge.String(), Login: DNPLogin{Profile: "denetwork"}}
	c.Timeout = 4 * time.Second // for more acknowledgements; all take twice as long
	if err := c.sendAsClient(t.Context(), message); err != nil {
		t.Fatal(err)
	}
	select {
	case got := <-received:
		if !bytes.Equal(got, message) {
			t.Errorf("the edge has %d bytes that are not those that were sent", len(got))
		}
	case <-time.After(10 * time.Second):
		t.Error("the command reports success, and the edge has no message")
	}
}

// TestSendGivesUp: the command fails when the edge stops acknowledging, and the error says how
// far it came.
func TestSendGivesUp(t *testing.T) {
	t.Parallel()
	edge := edgetest.Start(t, edgetest.Config{DeafTo: 6}) // the first is the hello
	c := sendCommand{Target: edge.String(), Login: DNPLogin{Profile: "denetwork"}}
	c.Timeout = time.Second
	err := c.sendAsClient(t.Context(), make([]byte, 200_000))
	if err == nil {
		t.Fatal("the edge acknowledged five parts of 168 behind the hello, and the command reports success")
	}
	if text := err.Error(); !strings.Contains(text, "5950 of 200000 bytes") || !strings.Contains(text, "1s") {
		t.Errorf("the error does not say how far the message came, and how long the edge has been silent: %s", text)
	}
}
