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
	"golang.org/x/term"
)

type sendCommand struct {
	Target     string `arg:"" placeholder:"TARGET" help:"SPACE for all its clients, SPACE/CLIENT for one of them, or HOST:PORT to send to an edge as a DNP client, which fails if the edge acknowledges nothing for --timeout."`
	Message    string `arg:"" placeholder:"MESSAGE" help:"Message to send; - reads it from standard input."`
	Unreliable bool   `env:"-" help:"Send the message once, without repeating it if it is lost."`

	NATSFlags `group:"NATS"`
	Profile   string `default:"denetwork" env:"-" help:"Profile of the edge at HOST:PORT: denetwork or spec."`
	Token     string `env:"DNP_TOKEN" placeholder:"TOKEN|@FILE" help:"Token to log in with at HOST:PORT, or a file with it, as @FILE."`
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

// sendAsClient connects, sends and disconnects: when the edge has acknowledged all of a reliable message,
// or lingerAfterSend after an unreliable one.
func (c *sendCommand) sendAsClient(ctx context.Context, data []byte) error {
	flags := DNPFlags{Profile: c.Profile, Token: c.Token, Timeout: c.Timeout}
	if c.Unreliable {
		return flags.play(ctx, c.Target, nil, sendOnce(data))
	}
	d := delivery{data: data, patience: c.Timeout, progress: progress{terminal: term.IsTerminal(int(os.Stderr.Fd())), out: os.Stderr}}
	err := flags.play(ctx, c.Target, nil, d.step)
	d.progress.end()
	switch {
	case err != nil && d.sent:
		return fmt.Errorf("%w; the edge acknowledged %d of %d bytes", err, d.acknowledged, len(data))
	case err == nil && !d.done():
		return fmt.Errorf("the edge acknowledged %d of %d bytes: %w", d.acknowledged, len(data), context.Cause(ctx))
	}
	return err
}

// lingerAfterSend is how long a client stays connected after it sent an unreliable message: the edge
// ignores one that arrives behind the end of the connection.
const lingerAfterSend = 700 * time.Millisecond

// sendOnce returns the step that sends an unreliable message.
func sendOnce(data []byte) step {
	var sent time.Time
	return func(client *dnpClient, now time.Time) (time.Time, error) {
		switch {
		case !client.conn.Established():
			return time.Time{}, nil
		case sent.IsZero():
			sent = now
			return sent.Add(lingerAfterSend), client.conn.SendUnreliable(data)
		case now.Sub(sent) >= lingerAfterSend:
			return time.Time{}, errStop
		}
		return sent.Add(lingerAfterSend), nil
	}
}

// A delivery is a reliable message on its way to an edge.
type delivery struct {
	data     []byte
	patience time.Duration // for the edge to acknowledge more
	progress progress

	sent         bool
	acknowledged int       // bytes of data
	since        time.Time // when the edge acknowledged more
}

func (d *delivery) done() bool { return d.sent && d.acknowledged == len(d.data) }

// step sends the message, and ends when it is acknowledged or when the patience is over.
func (d *delivery) step(client *dnpClient, now time.Time) (wake time.Time, err error) {
	switch {
	case !client.conn.Established(): // if it ended, the client has the reason
		return time.Time{}, nil
	case !d.sent:
		if err := client.conn.Send(d.data, 0); err != nil {
			return time.Time{}, fmt.Errorf("send %d bytes: %w", len(d.data), err)
		}
		d.sent, d.since = true, now
		d.progress.begin(now, len(d.data))
	}
	if n := len(d.data) - min(client.endpoint.Undelivered(client.conn), len(d.data)); n > d.acknowledged {
		d.acknowledged, d.since = n, now
	}
	deadline := d.since.Add(d.patience)
	switch {
	case d.done():
		return time.Time{}, errStop
	case !now.Before(deadline):
		return time.Time{}, fmt.Errorf("%s acknowledged nothing for %v", client.conn.Addr(), d.patience)
	}
	if at := d.progress.show(now, d.acknowledged); at.Before(deadline) {
		return at, nil
	}
	return deadline, nil
}
