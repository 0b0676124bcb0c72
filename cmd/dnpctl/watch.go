package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/dnp"
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/replication/payload"
)

type watchCommand struct {
	Address string   `arg:"" optional:"" default:"127.0.0.1:3413" placeholder:"ADDRESS" help:"HOST:PORT of an edge (default 127.0.0.1:3413)."`
	JSON    bool     `name:"json" env:"-" help:"Print one JSON object per line: ts, type (connected, linked, changed, unlinked, message, closed), link, message, read_only, values [{index,type,value}], reliable, number, text, reason."`
	Send    []string `sep:"none" env:"-" placeholder:"TEXT" help:"Reliable message to send once connected; may be repeated."`

	LimitFlags
	DNPFlags
}

// A view shows what a watcher receives. Run calls flush after each turn, and at the time that
// flush returned (zero time = at the next event).
type view interface {
	watcher
	closed(reason dnp.CloseReason)
	lines() int // events that it has shown
	flush(now time.Time) (again time.Time, err error)
	end() error
}

// Run watches until it is interrupted, a limit is reached or the connection ends.
func (c *watchCommand) Run(ctx context.Context, _ *slog.Logger) (err error) {
	ctx, cancel := c.limit(ctx)
	defer cancel()
	v := c.view()
	client, err := c.dial(c.Address, v)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, v.end(), client.close()) }()
	sent := false
	err = client.run(ctx, func(now time.Time) (time.Time, error) {
		if client.conn.Established() && !sent {
			sent = true
			if err := c.sendAll(client); err != nil {
				return time.Time{}, err
			}
		}
		if client.closed {
			v.closed(client.reason)
		}
		again, err := v.flush(now)
		if err == nil && c.Count > 0 && v.lines() >= c.Count {
			err = errStop
		}
		return again, err
	})
	if errors.Is(err, errStop) {
		return nil
	}
	return err
}

func (c *watchCommand) sendAll(client *dnpClient) error {
	for _, text := range c.Send {
		if err := client.conn.Send([]byte(text), 0); err != nil {
			return err
		}
	}
	return nil
}

func (c *watchCommand) view() view {
	out := bufio.NewWriter(os.Stdout)
	switch {
	case c.JSON:
		return &jsonView{out: out, max: c.Count, now: time.Now}
	case isTerminal():
		return newTableView(out)
	}
	return &lineView{out: out, max: c.Count}
}

// A jsonView prints one object per line. The fields are a contract with the programs that
// read them: fields may be added, none changes its meaning.
type jsonView struct {
	out *bufio.Writer
	max int // lines, 0 = no limit
	n   int
	now func() time.Time
}

// A line is the object that a jsonView prints, without fields that do not belong to its
// type.
type line struct {
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

func (v *jsonView) print(l line) {
	if v.max > 0 && v.n >= v.max {
		return
	}
	v.n++
	l.Time = v.now().UTC().Format("2006-01-02T15:04:05.000Z")
	b, err := json.Marshal(l)
	if err != nil {
		panic(err) // package payload wrote a value that is not JSON
	}
	v.out.Write(append(b, '\n')) // Flush returns the error
}

func (v *jsonView) connected(to netip.AddrPort) {
	v.print(line{Type: "connected", Address: to.String()})
}

func (v *jsonView) linked(l *link) {
	all := netstate.NewMask(l.state.Layout().Len())
	all.Fill(l.state.Layout().Len())
	v.print(line{Type: "linked", Link: (*uint16)(&l.id), Message: messageText(l.message), ReadOnly: &l.readOnly, Values: lineValues(l, all)})
}

func (v *jsonView) changed(l *link, values netstate.Mask) {
	v.print(line{Type: "changed", Link: (*uint16)(&l.id), Message: messageText(l.message), Values: lineValues(l, values)})
}

func (v *jsonView) unlinked(l *link) {
	v.print(line{Type: "unlinked", Link: (*uint16)(&l.id), Message: messageText(l.message)})
}

func (v *jsonView) message(data []byte, reliable bool, number uint64) {
	text := messageText(data)
	l := line{Type: "message", Reliable: &reliable, Text: &text}
	if reliable {
		l.Number = &number
	}
	v.print(l)
}

func (v *jsonView) closed(reason dnp.CloseReason) {
	v.print(line{Type: "closed", Reason: reason.String()})
}

func (v *jsonView) lines() int { return v.n }

func (v *jsonView) flush(time.Time) (time.Time, error) { return time.Time{}, v.out.Flush() }

func (v *jsonView) end() error { return v.out.Flush() }

func lineValues(l *link, values netstate.Mask) (list []lineValue) {
	for i, ok := values.Next(0); ok; i, ok = values.Next(i + 1) {
		t := l.state.Layout().Type(i)
		list = append(list, lineValue{i, t.String(), payload.AppendValue(nil, t, l.state.Value(i))})
	}
	return list
}

// A lineView prints one readable line per event, for output to a file or another program.
type lineView struct {
	out *bufio.Writer
	max int // lines, 0 = no limit
	n   int
}

func (v *lineView) printf(format string, args ...any) {
	if v.max > 0 && v.n >= v.max {
		return
	}
	v.n++
	fmt.Fprintf(v.out, format+"\n", args...)
}

func (v *lineView) connected(to netip.AddrPort) { v.printf("connected to %s", to) }

func (v *lineView) linked(l *link) {
	access := "read-write"
	if l.readOnly {
		access = "read-only"
	}
	values := make([]string, l.state.Layout().Len())
	for i := range values {
		values[i] = fmt.Sprintf("%v=%s", l.state.Layout().Type(i), valueText(l.state, i))
	}
	v.printf("+ %04x %s (%s) %s", uint16(l.id), harmless(messageText(l.message)), access, strings.Join(values, " "))
}

func (v *lineView) changed(l *link, values netstate.Mask) {
	var list []string
	for i, ok := values.Next(0); ok; i, ok = values.Next(i + 1) {
		list = append(list, fmt.Sprintf("%d=%s", i, valueText(l.state, i)))
	}
	v.printf("~ %04x %s %s", uint16(l.id), harmless(messageText(l.message)), strings.Join(list, " "))
}

func (v *lineView) unlinked(l *link) {
	v.printf("- %04x %s", uint16(l.id), harmless(messageText(l.message)))
}

func (v *lineView) message(data []byte, reliable bool, number uint64) {
	v.printf("%s", messageLine(data, reliable, number))
}

// messageLine returns a message from the server in readable form.
func messageLine(data []byte, reliable bool, number uint64) string {
	kind := "unreliable"
	if reliable {
		kind = "reliable " + strconv.FormatUint(number, 10)
	}
	return fmt.Sprintf("< %s (%s, %d bytes)", harmless(messageText(data)), kind, len(data))
}

func (v *lineView) closed(dnp.CloseReason) {} // the error of the command has the reason

func (v *lineView) lines() int { return v.n }

func (v *lineView) flush(time.Time) (time.Time, error) { return time.Time{}, v.out.Flush() }

func (v *lineView) end() error { return v.out.Flush() }
