package main

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/natstest"
	"github.com/nats-io/nats-server/v2/server"
)

// TestPasswordIsNotPrinted: URLs contain passwords, and errors end up in tickets.
func TestPasswordIsNotPrinted(t *testing.T) {
	for _, url := range []string{"nats://u:canary@127.0.0.1:1", "nats://canary@127.0.0.1:1", "nats://a:canary@127.0.0.1:1,nats://b:canary@127.0.0.1:1"} {
		f := NATSFlags{NATSLogin: NATSLogin{NATS: config.NATS{NATSURL: url}}, Timeout: time.Second}
		if _, err := f.connect(); err == nil || strings.Contains(err.Error(), "canary") || !strings.Contains(err.Error(), "127.0.0.1:1") {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// TestRefused: a NATS user that may not ask is told so, and does not wait for an answer that cannot come.
func TestRefused(t *testing.T) {
	c := natstest.Start(t, 1, func(o *server.Options) {
		o.Users = []*server.User{{Username: "anne", Password: "x", Permissions: &server.Permissions{Publish: &server.SubjectPermission{Deny: []string{"dnp.>"}}}}}
	})
	login := NATSLogin{NATS: config.NATS{NATSURL: strings.Replace(c.URL(), "nats://", "nats://anne:x@", 1)}}
	space := SpaceFlags{Space: "demo", NATSFlags: NATSFlags{NATSLogin: login, Timeout: time.Hour}}
	for want, command := range map[string]config.Runner{
		"the users game and admin may kick":          &kickCommand{SpaceFlags: space, Client: "alice"},
		"may not publish on dnp.v1.get.demo":         &getCommand{SpaceFlags: space},
		"may not publish on dnp.v1.publish.demo.key": &publishCommand{SpaceFlags: space, Key: "key", Remove: true},
		"; the user admin may":                       &drainCommand{Node: "edge-1", NATSLogin: login},
	} {
		err := command.Run(t.Context(), slog.New(slog.DiscardHandler))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "the NATS user may not publish on ") {
			t.Errorf("%v, want an error with %q", err, want)
		}
		if _, drain := command.(*drainCommand); !drain && !errors.Is(err, errRefused) {
			t.Errorf("%v is no errRefused", err)
		}
	}
}
