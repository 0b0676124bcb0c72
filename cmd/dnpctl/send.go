package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/replication/payload"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats.go"
)

type sendCommand struct {
	Target     string `arg:"" placeholder:"TARGET" help:"SPACE for all its clients, SPACE/CLIENT for one of them, or HOST:PORT to send to an edge as a DNP client."`
	Message    string `arg:"" placeholder:"MESSAGE" help:"Message to send; - reads it from standard input."`
	Unreliable bool   `env:"-" help:"Send the message once, without repeating it if it is lost."`

	NATSFlags `group:"NATS"`
	Profile   string `default:"denetwork" env:"-" help:"Profile of the edge at HOST:PORT: denetwork or spec."`
}

// Problems lists what is wrong with c.
func (c *sendCommand) Problems() (list config.Problems) {
	if c.toEdge() {
		return (&DNPFlags{Profile: c.Profile, Timeout: c.Timeout}).Problems()
	}
	space, client, one := strings.Cut(c.Target, "/")
	if !subject.ValidToken(space) || one && !subject.ValidToken(client) {
		list.Add("TARGET", "want SPACE, SPACE/CLIENT or HOST:PORT, got %q", c.Target)
	}
	if c.Message == "" {
		list.Add("MESSAGE", "is empty")
	}
	return list
}

// toEdge reports whether the target is an address. Names of spaces have no colon.
func (c *sendCommand) toEdge() bool { return strings.Contains(c.Target, ":") }

// Run sends the message.
func (c *sendCommand) Run(ctx context.Context, _ *slog.Logger) error {
	data := []byte(c.Message)
	if c.Message == "-" {
		var err error
		if data, err = io.ReadAll(os.Stdin); err != nil {
			return err
		}
	}
	space, client, one := strings.Cut(c.Target, "/")
	switch {
	case c.toEdge():
		return c.sendAsClient(ctx, data)
	case one && !c.Unreliable:
		return c.sendToOne(ctx, space, client, data)
	case one:
		return c.publish(c.subjects().To(space, client), data)
	}
	return c.publish(c.subjects().ToAll(space), data)
}

// sendToOne sends reliably to one client, and reports a client that is not connected.
func (c *sendCommand) sendToOne(ctx context.Context, space, client string, data []byte) error {
	reply, err := c.request(ctx, c.subjects().To(space, client), data)
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("client %s is not connected to space %s", client, space)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("no answer from the edge of client %s within %v", client, c.Timeout)
	case err != nil:
		return err
	}
	if _, err := payload.ParseAnswer(reply); err != nil {
		return err
	}
	fmt.Printf("%s\n", reply)
	return nil
}

// publish sends without an answer. It knows only that NATS received the message.
func (c *sendCommand) publish(subject string, data []byte) error {
	nc, err := c.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	m := &nats.Msg{Subject: subject, Data: data}
	if c.Unreliable {
		m.Header = nats.Header{"Dnp-Reliable": []string{"false"}}
	}
	if err := nc.PublishMsg(m); err != nil {
		return err
	}
	return nc.FlushTimeout(c.Timeout)
}

// sendAsClient connects, sends, and disconnects after lingerAfterSend.
func (c *sendCommand) sendAsClient(ctx context.Context, data []byte) error {
	flags := DNPFlags{Profile: c.Profile, Timeout: c.Timeout}
	var sent time.Time
	return flags.play(ctx, c.Target, nil, func(client *dnpClient, now time.Time) (_ time.Time, err error) {
		switch {
		case !client.conn.Established():
			return time.Time{}, nil
		case !sent.IsZero() && now.Sub(sent) >= lingerAfterSend:
			return time.Time{}, errStop
		case sent.IsZero() && c.Unreliable:
			err = client.conn.SendUnreliable(data)
		case sent.IsZero():
			err = client.conn.Send(data, 0)
		}
		if sent.IsZero() {
			sent = now
		}
		return sent.Add(lingerAfterSend), err
	})
}

// lingerAfterSend is how long a client stays connected after sending, so that it repeats a
// lost datagram once (after 0.5 s).
const lingerAfterSend = 700 * time.Millisecond
