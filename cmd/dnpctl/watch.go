package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/dnprelay/dnprelay/client"
	"github.com/dnprelay/dnprelay/dnp/message"
	"github.com/dnprelay/dnprelay/dnp/wire"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/top"
	"github.com/dnprelay/dnprelay/replication/payload"
)

type watchCommand struct {
	Address string   `arg:"" optional:"" default:"127.0.0.1:3413" placeholder:"ADDRESS" help:"HOST:PORT or URL (udp://, ws://, wss://, wt://) of an edge (default 127.0.0.1:3413)."`
	JSON    bool     `name:"json" env:"-" help:"Print one JSON object per line: ts, type (connected, linked, changed, unlinked, message, closed), link, message, read_only, values [{index,type,value}], reliable, number, text, decoded [{type,value}], reason."`
	Send    []string `sep:"none" env:"-" placeholder:"TEXT" help:"Reliable message to send once connected; may be repeated."`

	Decode []string `sep:"none" env:"-" placeholder:"TYPES" help:"Decode messages in the Drag[en]gine's file format, as byte=3,string8,vector: types with commas, and values that a message must have to be of this form. May be repeated; the first form that fits a message exactly counts. Other messages are shown as they are. dnpctl send --help lists the types."`

	LimitFlags
	DNPFlags
}

// Problems lists what is wrong with c.
func (c *watchCommand) Problems() (list config.Problems) {
	for _, text := range c.Decode {
		_, err := parseForm(text)
		list.AddErr("--decode", err)
	}
	return list
}

// forms returns the forms, which Problems has checked.
func (c *watchCommand) forms() (list []form) {
	for _, text := range c.Decode {
		if one, err := parseForm(text); err == nil {
			list = append(list, one)
		}
	}
	return list
}

// An eventKind says what happened to the client, in the words of --json.
type eventKind string

const (
	connected eventKind = "connected"
	linked    eventKind = "linked"
	changed   eventKind = "changed"
	unlinked  eventKind = "unlinked"
	received  eventKind = "message"
	closed    eventKind = "closed"
)

// A state is what lines and tables show of a *client.State.
type state interface {
	ID() uint16
	Key() string
	Message() []byte
	ReadOnly() bool
	Len() int
	Name(index int) string
	Type(index int) wire.ValueType
	At(index int) client.Value
	Fields(index int) []client.Field // the components of data that the link message tells
}

// An event is what happened to the client, and is valid during the call that has it.
type event struct {
	kind    eventKind
	address string
	state   state
	indices []int // of values that are new
	message client.Message
	decoded []message.Value // of the message, if it has one of the forms
	reason  client.Reason
}

// A view shows what happens to a client. Run calls flush after events, and at the time that flush
// returned (zero time = at the next event).
type view interface {
	show(e event)
	flush(now time.Time) (again time.Time, err error)
	end() error
}

// A watcher counts events and gives them to a view.
type watcher struct {
	full   func(shown int) bool
	forms  []form        // of messages
	showed chan struct{} // one slot: wakes Run after events

	mu      sync.Mutex // the client's goroutine brings events, that of Run flushes the view
	view    view
	shown   int
	linked  bool // a state was
	address string
}

// show gives an event to the view. The client tells of links before Dial returns.
func (w *watcher) show(c *client.Client, e event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.address == "" && c != nil {
		w.address = c.Address().String()
		w.showOne(event{kind: connected, address: w.address})
	}
	w.linked = w.linked || e.kind == linked
	if e.kind != connected {
		w.showOne(e)
	}
	select {
	case w.showed <- struct{}{}:
	default:
	}
}

func (w *watcher) showOne(e event) {
	if !w.full(w.shown) {
		w.shown++
		w.view.show(e)
	}
}

// flush flushes the view, and reports whether it has enough.
func (w *watcher) flush() (again time.Time, enough bool, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	again, err = w.view.flush(time.Now())
	return again, w.full(w.shown), err
}

// config returns the events of a client that the view shows.
func (w *watcher) config() client.Config {
	return client.Config{
		Link: func(c *client.Client, s *client.State) {
			all := make([]int, s.Len())
			for i := range all {
				all[i] = i
			}
			w.show(c, event{kind: linked, state: s, indices: all})
		},
		Change: func(c *client.Client, s *client.State, indices []int) {
			w.show(c, event{kind: changed, state: s, indices: indices})
		},
		Unlink: func(c *client.Client, s *client.State) {
			if c.Err() == nil { // the end of the connection is one event
				w.show(c, event{kind: unlinked, state: s})
			}
		},
		Message: func(c *client.Client, m client.Message) {
			w.show(c, event{kind: received, message: m, decoded: decodeMessage(w.forms, m.Data)})
		},
	}
}

// Run watches until it is interrupted, a limit is reached or the connection ends.
func (c *watchCommand) Run(ctx context.Context, _ *slog.Logger) error {
	ctx, cancel := c.limit(ctx)
	defer cancel()
	w := &watcher{full: c.full, showed: make(chan struct{}, 1), view: c.view(), forms: c.forms()}
	err := c.watch(ctx, w)
	if ctx.Err() != nil {
		err = nil
	}
	if !w.linked { // a client that did not log in sees nothing
		err = c.explain(err)
	}
	if end, ok := errors.AsType[*client.EndError](err); ok && c.JSON { // otherwise the error of the command has the reason
		w.show(nil, event{kind: closed, reason: end.Reason})
	}
	_, _, flushed := w.flush()
	return errors.Join(err, flushed, w.view.end())
}

func (c *watchCommand) watch(ctx context.Context, w *watcher) error {
	conn, err := c.dial(ctx, c.Address, w.config())
	if err != nil {
		return err
	}
	defer conn.Close()
	w.show(conn, event{kind: connected})
	for _, text := range c.Send {
		if err := conn.Send([]byte(text)); err != nil {
			return err
		}
	}
	for {
		again, enough, err := w.flush()
		if err != nil || enough {
			return err
		}
		var timer <-chan time.Time
		if !again.IsZero() {
			timer = time.After(time.Until(again))
		}
		select {
		case <-w.showed:
		case <-timer:
		case <-ctx.Done():
			return nil
		case <-conn.Done():
			return conn.Err()
		}
	}
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
	line func(e event) string
}

func (v *lineView) show(e event) { fmt.Fprintln(v.out, v.line(e)) } // flush returns the error

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
	Key      string      `json:"key,omitempty"`     // of the state, if the link message describes it
	ReadOnly *bool       `json:"read_only,omitempty"`
	Values   []lineValue `json:"values,omitempty"`
	Reliable *bool       `json:"reliable,omitempty"`
	Number   *uint64     `json:"number,omitempty"` // of a reliable message, from 0
	Text     *string     `json:"text,omitempty"`   // a message, as Message

	Decoded []decodedValue `json:"decoded,omitempty"` // of a message

	Reason string `json:"reason,omitempty"`
}

// jsonLine returns an event as a JSON object.
func jsonLine(e event) string {
	out := eventLine{
		Time: time.Now().UTC().Format("2006-01-02T15:04:05.000Z"), Type: string(e.kind), Address: e.address, Values: lineValues(e.state, e.indices),
		Reason: string(e.reason),
	}
	if s := e.state; s != nil {
		id := s.ID()
		out.Link, out.Message = &id, payload.MessageText(s.Message())
		if s.Key() != string(s.Message()) {
			out.Key = s.Key()
		}
	}
	switch e.kind {
	case linked:
		readOnly := e.state.ReadOnly()
		out.ReadOnly = &readOnly
	case received:
		text := payload.MessageText(e.message.Data)
		out.Reliable, out.Text, out.Decoded = &e.message.Reliable, &text, decodedValues(e.decoded)
		if e.message.Reliable {
			out.Number = &e.message.Number
		}
	}
	return jsonText(out)
}

// plainLine returns an event in readable form, for output to a file or another program.
func plainLine(e event) string {
	switch e.kind {
	case connected:
		return "connected to " + e.address
	case received:
		return messageLine(e)
	case closed:
		return "closed: " + string(e.reason)
	}
	mark := map[eventKind]string{linked: "+", changed: "~", unlinked: "-"}[e.kind]
	text := fmt.Sprintf("%s %04x %s", mark, e.state.ID(), keyText(e.state))
	switch {
	case e.kind == linked && e.state.ReadOnly():
		text += " (read-only)"
	case e.kind == linked:
		text += " (read-write)"
	}
	for _, i := range e.indices {
		name := named(e.state, i)
		if e.kind == linked && e.state.Name(i) == "" {
			name = e.state.Type(i).String()
		}
		text += " " + name + "=" + valueText(e.state, i)
	}
	return text
}

// keyText returns the key of a state for a terminal, base64 if it is no text.
func keyText(s state) string { return top.Printable(payload.MessageText([]byte(s.Key()))) }

// messageLine returns a message from the server in readable form.
func messageLine(e event) string {
	m := e.message
	kind := "unreliable"
	if m.Reliable {
		kind = "reliable " + strconv.FormatUint(m.Number, 10)
	}
	text := decodedText(e.decoded)
	if e.decoded == nil {
		text = top.Printable(payload.MessageText(m.Data))
	}
	return fmt.Sprintf("< %s (%s, %d bytes)", text, kind, len(m.Data))
}
