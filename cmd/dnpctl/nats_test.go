package main

import (
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/config"
)

// TestPasswordIsNotPrinted: URLs contain passwords, and errors end up in tickets.
func TestPasswordIsNotPrinted(t *testing.T) {
	for _, url := range []string{"nats://u:canary@127.0.0.1:1", "nats://canary@127.0.0.1:1", "nats://a:canary@127.0.0.1:1,nats://b:canary@127.0.0.1:1"} {
		f := NATSFlags{NATS: config.NATS{NATSURL: url}, Timeout: time.Second}
		if _, err := f.connect(); err == nil || strings.Contains(err.Error(), "canary") || !strings.Contains(err.Error(), "127.0.0.1:1") {
			t.Errorf("%s: %v", url, err)
		}
	}
}
