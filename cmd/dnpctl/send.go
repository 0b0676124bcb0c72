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

	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/cmd/dnpctl/progress"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/replication/payload"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats.go"
)

type sendCommand struct {
	Target     string `arg:"" placeholder:"TARGET" help:"SPACE for all its clients, SPACE/CLIENT for one of them, or HOST:PORT or a URL (udp://, ws://, wss://, wt://) to send to an edge as a DNP client, which fails if the edge acknowledges nothing for --timeout."`
	Text       string `arg:"" name:"message" optional:"" placeholder:"MESSAGE" help:"Message to send; - reads it from standard input."`
	JSON       bool   `name:"json" env:"-" help:"Print the answer about a message to one client as JSON, as without this flag; other messages have none. It hides the progress of a long message."`
	Unreliable bool   `env:"-" help:"Send the message once, without repeating it if it is lost."`

	Message []string `name:"message" sep:"none" env:"-" placeholder:"TYPE:VALUE" help:"A value of a message in the Drag[en]gine's file format, in place of MESSAGE, as --message byte:3 --message string8:tower --message vector:1,2,3. Repeat it for each value, in the order in which the game reads them. Types: char, byte, short, ushort, int, uint, long, ulong, float, double, string8, string16, vector, vector2, quaternion, point, point3, dvector, color, color3."`

	NATSFlags `group:"NATS"`
	Login     DNPLogin `embed:""` // for HOST:PORT and URLs; otherwise its problems are none
}

// Problems lists what is wrong with c.
func (c *sendCommand) Problems() (list config.Problems) {
	space, client, one := strings.Cut(c.Target, "/")
	switch {
	case c.toEdge():
		list = c.Login.Problems()
	case !subject.ValidToken(space), one && !subject.ValidToken(client):
		list.Add("TARGET", "want SPACE, SPACE/CLIENT, HOST:PORT or a URL, got %q", c.Target)
	}
	if len(c.Message) > 0 {
		_, err := typedMessage(c.Message)
		list.AddErr("--message", err)
	}
	list.AddIf(c.Text != "" && len(c.Message) > 0, "--message", "replaces MESSAGE, which must be absent")
	list.AddIf(c.Text == "" && len(c.Message) == 0, "MESSAGE", "is empty")
	return list
}

// message returns what to send.
func (c *sendCommand) message() ([]byte, error) {
	if len(c.Message) > 0 {
		return typedMessage(c.Message)
	}
	return argument(c.Text)
}

// argument returns what an argument has; - is standard input.
func argument(text string) ([]byte, error) {
	if text == "-" {
		return io.ReadAll(os.Stdin)
	}
	return []byte(text), nil
}

// toEdge reports whether the target is an address. Names of spaces have no colon.
func (c *sendCommand) toEdge() bool { return strings.Contains(c.Target, ":") }

// Run sends the message.
func (c *sendCommand) Run(ctx context.Context, _ *slog.Logger) error {
	data, err := c.message()
	if err != nil {
		return err
	}
	space, client, one := strings.Cut(c.Target, "/")
	switch {
	case c.toEdge():
		return c.sendAsClient(ctx, data)
	case one && !c.Unreliable:
		return c.sendToOne(ctx, space, client, data)
	case one:
		return c.publish(c.subjects().To(space, client), data, fmt.Sprintf("client %s is not connected to space %s", client, space))
	}
	return c.publish(c.subjects().ToAll(space), data, "no edge has a client in space "+space)
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

// publish sends without an answer. It knows only whether an edge listens there, because NATS tells those who
// want an answer that there is none. Then the error says absent.
func (c *sendCommand) publish(subject string, data []byte, absent string) error {
	nc, err := c.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	inbox := nc.NewInbox()
	answers, err := nc.SubscribeSync(inbox)
	if err != nil {
		return err
	}
	m := &nats.Msg{Subject: subject, Reply: inbox, Data: data}
	if c.Unreliable {
		m.Header = nats.Header{"Dnp-Reliable": []string{"false"}}
	}
	if err := nc.PublishMsg(m); err != nil {
		return err
	}
	if err := nc.FlushTimeout(c.Timeout); err != nil {
		return err
	}
	if n, _, err := answers.Pending(); err != nil || n == 0 { // what NATS says came before its answer to the flush
		return err
	}
	if _, err := answers.NextMsg(c.Timeout); errors.Is(err, nats.ErrNoResponders) {
		return errors.New(absent)
	}
	return nil
}

// sendAsClient connects, sends and disconnects: when the edge has acknowledged all of a reliable message,
// or lingerAfterSend after an unreliable one.
func (c *sendCommand) sendAsClient(ctx context.Context, data []byte) error {
	conn, err := c.Login.dial(ctx, c.Target, c.Timeout, client.Config{BytesPerSecond: sendRate})
	if err != nil {
		return err
	}
	defer conn.Close()
	if c.Unreliable {
		if err := conn.SendUnreliable(data); err != nil {
			return err
		}
		return stay(ctx, conn, lingerAfterSend)
	}
	d := delivery{conn: conn, size: len(data), patience: c.Timeout}
	if err := conn.Send(data); err != nil {
		return fmt.Errorf("send %d bytes: %w", len(data), err)
	}
	line := progress.Start(!c.JSON)
	defer line.End()
	if err := d.wait(ctx, func(acknowledged int) {
		line.Set(progress.Status{Done: acknowledged, Total: d.size, Text: fmt.Sprintf("%d of %d kB acknowledged", acknowledged/1000, d.size/1000)})
	}); err != nil {
		return fmt.Errorf("%w; the edge acknowledged %d of %d bytes", err, d.acknowledged(), d.size)
	}
	return nil
}

// sendRate is how much a client sends at most. An edge drops what is beyond its own bound, which
// operators may raise.
const sendRate = 256 << 10

// lingerAfterSend is how long a client stays connected after it sent an unreliable message: the edge
// ignores one that arrives behind the end of the connection.
const lingerAfterSend = 700 * time.Millisecond

// A delivery is a reliable message on its way to an edge.
type delivery struct {
	conn     *client.Client
	size     int
	patience time.Duration // for the edge to acknowledge more
}

func (d *delivery) acknowledged() int { return d.size - min(d.conn.Undelivered(), d.size) }

// wait waits until the message is acknowledged, or the edge acknowledges nothing for the patience. It tells how much is
// acknowledged.
func (d *delivery) wait(ctx context.Context, tell func(acknowledged int)) error {
	since := time.Now()
	for had := 0; had < d.size; {
		tell(had)
		deadline := since.Add(d.patience)
		limited, cancel := context.WithDeadline(ctx, deadline)
		err := d.conn.Until(limited, func() bool { return d.acknowledged() > had })
		cancel()
		now := time.Now()
		switch {
		case err == nil:
			had, since = d.acknowledged(), now
		case ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded):
			return err
		case !now.Before(deadline):
			return fmt.Errorf("%s acknowledged nothing for %v", d.conn.Address(), d.patience)
		}
	}
	return nil
}
