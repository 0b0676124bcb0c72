package client

import (
	"errors"
	"testing"

	"github.com/dnprelay/dnprelay/internal/edgetest"
)

// TestFlushEnded: when the connection ends before the edge has acknowledged a message, Flush says so, and so do
// Undelivered and Close, however it ends.
func TestFlushEnded(t *testing.T) {
	t.Parallel()
	for how, end := range map[string]func(*Client){
		"Close elsewhere": func(c *Client) { c.Close() },
		"by the edge":     func(c *Client) { c.SendUnreliable([]byte("close")) },
		"the socket":      func(c *Client) { c.carrier.close() },
	} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			c := connect(t, edgetest.Start(t, edgetest.Config{DeafTo: 2}), Config{}) // the first is the hello
			if err := c.Send([]byte("heard")); err != nil {
				t.Fatal(err)
			}
			if err := c.Flush(patient(t)); err != nil {
				t.Fatalf("a message that is acknowledged: %v", err)
			}
			if err := c.Send([]byte("lost")); err != nil {
				t.Fatal(err)
			}
			flushed := make(chan error, 1)
			go func() { flushed <- c.Flush(patient(t)) }()
			end(c)
			if err := receive(t, flushed, "Flush"); err == nil || err != c.Err() {
				t.Errorf("Flush returns %v, want %v", err, c.Err())
			}
			if n := c.Undelivered(); n != len("lost") {
				t.Errorf("%d bytes are undelivered after the end, want %d", n, len("lost"))
			}
			if err := c.Flush(patient(t)); err == nil {
				t.Error("a later Flush returns nil")
			}
			if err := c.Close(); !errors.Is(err, ErrLost) {
				t.Errorf("Close returns %v, want ErrLost", err)
			}
		})
	}
}

// TestCloseDelivered: Close of a client whose messages are acknowledged, or that sent none, returns nil.
func TestCloseDelivered(t *testing.T) {
	t.Parallel()
	edge := edgetest.Start(t, edgetest.Config{})
	for _, messages := range []int{0, 3} {
		c := connect(t, edge, Config{})
		for range messages {
			if err := c.Send([]byte("x")); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Flush(patient(t)); err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil || c.Undelivered() != 0 {
			t.Errorf("%d messages: Close returns %v, %d bytes are undelivered", messages, err, c.Undelivered())
		}
		if err := c.Flush(patient(t)); err != nil {
			t.Errorf("%d messages: Flush after Close returns %v", messages, err)
		}
	}
}
