package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/replication/payload"
)

type watchCommand struct {
	Address string   `arg:"" optional:"" default:"127.0.0.1:3413" placeholder:"ADDRESS" help:"HOST:PORT of an edge (default 127.0.0.1:3413)."`
	JSON    bool     `name:"json" env:"-" help:"Print one JSON object per line: ts, type (connected, linked, changed, unlinked, message, closed), link, message, read_only, values [{index,type,value}], reliable, number, text, reason."`
	Send    []string `sep:"none" env:"-" placeholder:"TEXT" help:"Reliable message to send once connected; may be repeated."`

	LimitFlags
	DNPFlags
}

// A view shows what happens to a client. Run calls flush after each turn, and at the time that
// flush returned (zero time = at the next event).
type view interface {
	show(e *dnp.Event, l *link)
	flush(now time.Time) (again time.Time, err error)
	end() error
}

// Run watches until it is interrupted, a limit is reached or the connection ends.
func (c *watchCommand) Run(ctx context.Context, _ *slog.Logger) error {
	ctx, cancel := c.limit(ctx)
	defer cancel()
	v, shown, sent := c.view(), 0, false
	watch := func(e *dnp.Event, l *link) {
		if c.full(shown) || e.Kind == dnp.EventClosed && !c.JSON { // the error of the command has the reason
			return
		}
		shown++
		v.show(e, l)
	}
	err := c.play(ctx, c.Address, watch, func(client *dnpClient, now time.Time) (time.Time, error) {
		if client.conn.Established() && !sent {
			sent = true
			for _, text := range c.Send {
				if err := client.conn.Send([]byte(text), 0); err != nil {
					return time.Time{}, err
				}
			}
		}
		again, err := v.flush(now)
		if err == nil && c.full(shown) {
			err = errStop
		}
		return again, err
	})
	return errors.Join(err, v.end())
}

func (c *watchCommand) view() view {
	out := bufio.NewWriter(os.Stdout)
	switch {
	case c.JSON:
		return &lineView{out, jsonLine}
	case isTerminal():
		return &tableView{out: out, size: terminalSize, dirty: true}
	}
	return &lineView{out, plainLine}
}

// A lineView prints one line per event.
type lineView struct {
	out  *bufio.Writer
	line func(e *dnp.Event, l *link) string
}

func (v *lineView) show(e *dnp.Event, l *link) { fmt.Fprintln(v.out, v.line(e, l)) } // flush returns the error

func (v *lineView) flush(time.Time) (time.Time, error) { return time.Time{}, v.out.Flush() }

func (v *lineView) end() error { return v.out.Flush() }

// An eventLine is the object that jsonLine returns, without fields that do not belong to its
// type. The fields are a contract with the programs that read them: fields may be added, none
// changes its meaning.
type eventLine struct {
	Time     string      `json:"ts"`
	Type     string      `json:"type"`
	Address  string      `json:"address,omitempty"`
	Link     *uint16     `json:"link,omitempty"`
	Message  string      `json:"message,omitempty"` // of the link; bytes that are not text are in base64 after base64:
	ReadOnly *bool       `json:"read_only,omitempty"`
	Values   []lineValue `json:"values,omitempty"`
	Reliable *bool       `json:"reliable,omitempty"`
	Number   *uint64     `json:"number,omitempty"` // of a reliable message, from 0
	Text     *string     `json:"text,omitempty"`   // a message, as Message
	Reason   string      `json:"reason,omitempty"`
}

type lineValue struct {
	Index int             `json:"index"`
	Type  string          `json:"type"`
	Value json.RawMessage `json:"value"`
}

// jsonLine returns an event as a JSON object.
func jsonLine(e *dnp.Event, l *link) string {
	out := eventLine{Time: time.Now().UTC().Format("2006-01-02T15:04:05.000Z")}
	if l != nil {
		out.Link, out.Message = (*uint16)(&l.id), payload.MessageText(l.message)
	}
	switch e.Kind {
	case dnp.EventConnected:
		out.Type, out.Address = "connected", e.Conn.Addr().String()
	case dnp.EventLinkOffered:
		out.Type, out.ReadOnly, out.Values = "linked", &l.readOnly, lineValues(l)
	case dnp.EventUpdate:
		out.Type, out.Values = "changed", lineValues(l)
	case dnp.EventLinkDown:
		out.Type = "unlinked"
	case dnp.EventMessage:
		text := payload.MessageText(e.Data)
		out.Type, out.Reliable, out.Text = "message", &e.Reliable, &text
		if e.Reliable {
			out.Number = &e.Number
		}
	case dnp.EventClosed:
		out.Type, out.Reason = "closed", e.Reason.String()
	}
	b, err := json.Marshal(out)
	if err != nil {
		panic(err) // package payload wrote a value that is not JSON
	}
	return string(b)
}

func lineValues(l *link) (list []lineValue) {
	for i, ok := l.changed.Next(0); ok; i, ok = l.changed.Next(i + 1) {
		t := l.state.Layout().Type(i)
		list = append(list, lineValue{i, t.String(), payload.AppendValue(nil, t, l.state.Value(i))})
	}
	return list
}

// plainLine returns an event in readable form, for output to a file or another program.
func plainLine(e *dnp.Event, l *link) string {
	switch e.Kind {
	case dnp.EventConnected:
		return "connected to " + e.Conn.Addr().String()
	case dnp.EventMessage:
		return messageLine(e)
	}
	var values []string
	for i, ok := l.changed.Next(0); ok; i, ok = l.changed.Next(i + 1) {
		name := strconv.Itoa(i)
		if e.Kind == dnp.EventLinkOffered {
			name = l.state.Layout().Type(i).String()
		}
		values = append(values, name+"="+valueText(l.state, i))
	}
	text := fmt.Sprintf("%04x %s", uint16(l.id), harmless(payload.MessageText(l.message)))
	switch {
	case e.Kind == dnp.EventLinkDown:
		return "- " + text
	case e.Kind == dnp.EventUpdate:
		return "~ " + text + " " + strings.Join(values, " ")
	case l.readOnly:
		return "+ " + text + " (read-only) " + strings.Join(values, " ")
	}
	return "+ " + text + " (read-write) " + strings.Join(values, " ")
}

// messageLine returns a message from the server in readable form.
func messageLine(e *dnp.Event) string {
	kind := "unreliable"
	if e.Reliable {
		kind = "reliable " + strconv.FormatUint(e.Number, 10)
	}
	return fmt.Sprintf("< %s (%s, %d bytes)", harmless(payload.MessageText(e.Data)), kind, len(e.Data))
}
