package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"time"

	"github.com/dnprelay/dnprelay/cmd/dnpctl/progress"
	"github.com/dnprelay/dnprelay/interest"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/inspect"
	"github.com/dnprelay/dnprelay/replication/payload"
	"github.com/nats-io/nats.go"
)

type getCommand struct {
	SpaceFlags `set:"space=Space of the states."`
	Key        string `arg:"" optional:"" want:"key" help:"Key of a state; default: all states."`
	JSON       bool   `name:"json" env:"-" help:"Print each answer on one line, also on a terminal."`
}

// Run prints the answer as one JSON object. Relays answer for a whole space in pages, and Run
// prints one object for each.
func (c *getCommand) Run(ctx context.Context, _ *slog.Logger) error {
	line := progress.Start(!c.JSON)
	defer line.End()
	states := 0
	for after := ""; ; {
		line.Set(soFar(states, "states"))
		var body []byte
		if after != "" {
			body, _ = json.Marshal(map[string]string{"after": after}) // never fails for a map of strings
		}
		data, err := c.askHolder(ctx, c.subjects().Get(c.Space, c.Key), body)
		if err != nil {
			return err
		}
		if _, err := payload.ParseAnswer(data); err != nil {
			return err
		}
		text := string(data)
		if !c.JSON {
			text = readable(text)
		}
		line.Println(text)
		var page struct {
			After  string            `json:"after"`
			States []json.RawMessage `json:"states"`
		}
		if err := json.Unmarshal(data, &page); err != nil || page.After == "" {
			return err
		}
		after = page.After
		states += len(page.States)
	}
}

// readable returns an object indented for a terminal, and on one line otherwise.
func readable(object string) string {
	var pretty bytes.Buffer
	if isTerminal() && json.Indent(&pretty, []byte(object), "", "  ") == nil {
		return pretty.String()
	}
	return object
}

type whoCommand struct {
	SpaceFlags `set:"space=Space of the clients."`
	Near       string        `env:"-" placeholder:"PLACE" help:"Only clients whose eye is near, the nearest first, with distance and band, as edges know them: near the state KEY, KEY#VALUE for one without an interest, or a point X,Y or X,Y,Z, as --near=-5,0,3. Needs the NATS user observer or admin, as --sees does."`
	Within     *float64      `env:"-" placeholder:"D" help:"Only clients that are so near."`
	Axes       string        `env:"-" placeholder:"xz" help:"Axes between which distances are measured; default: those of the interest of the state, or all."`
	Sees       string        `env:"-" placeholder:"KEY" want:"key" help:"Only clients that see the state; --near then says how near they are to its place."`
	JSON       bool          `name:"json" env:"-" help:"Print one JSON object per line, as without this flag unless --near or --sees is given."`
	Wait       time.Duration `default:"300ms" help:"How long to wait for further edges after each answer, without --near and --sees."`
}

// Problems lists what is wrong with c.
func (c *whoCommand) Problems() (list config.Problems) {
	list.AddIf(c.Near == "" && (c.Within != nil || c.Axes != ""), "--within and --axes", "need --near")
	if c.Within != nil && !(*c.Within >= 0) {
		list.Add("--within", "want 0 or more, got %v", *c.Within)
	}
	_, ok := interest.ParseAxes(c.Axes)
	list.AddIf(c.Axes != "" && !ok, "--axes", "want some of xyz, in this order, got %q", c.Axes)
	_, err := inspect.ParsePlace(c.Near)
	list.AddIf(c.Near != "" && err != nil, "--near", "%v, got %q", err, c.Near)
	return list
}

// Run prints the answer of each edge, one JSON object per line. It does not know how many
// edges there are, so it waits for more after each answer.
func (c *whoCommand) Run(ctx context.Context, _ *slog.Logger) error {
	if c.Near != "" || c.Sees != "" {
		return c.near(ctx)
	}
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
	if err := nc.PublishRequest(c.subjects().Who(c.Space), inbox, nil); err != nil {
		return err
	}
	for edges := 0; ; edges++ {
		wait, cancel := context.WithTimeout(ctx, c.Wait)
		more, err := printNext(wait, answers)
		cancel()
		switch {
		case more:
		case err == nil && edges == 0:
			return fmt.Errorf("no edge answers for space %s", c.Space)
		default:
			return err
		}
	}
}

// near prints the clients that are near a place, or see a state.
func (c *whoCommand) near(ctx context.Context) error {
	q := inspect.Query{Within: c.Within, Axes: c.Axes, Sees: c.Sees}
	if c.Near != "" {
		p, err := inspect.ParsePlace(c.Near)
		if err != nil {
			return err
		}
		q.Near = &p
	}
	f := LookFlags{JSON: c.JSON, NATSFlags: c.NATSFlags}
	a, end, err := f.asker()
	if err != nil {
		return err
	}
	defer end()
	clients, nowhere, err := a.Near(ctx, c.Space, q)
	if err != nil {
		return err
	}
	if len(clients) == 0 {
		switch nowhere {
		case inspect.NoState:
			return fmt.Errorf("space %s has no state with this key", c.Space)
		case inspect.NoPlace:
			return fmt.Errorf("%s has no place: name a value that is one, as KEY#pos, unless it has an interest; and it may be null", c.Near)
		}
	}
	return printList(&f, "CLIENT\tEDGE\tDISTANCE\tBAND\tEYES", clients, nearCells)
}

func nearCells(w io.Writer, c *inspect.Client) {
	n, distance, band := c.Near, "-", "-"
	if n.Distance != nil {
		distance = strconv.FormatFloat(*n.Distance, 'f', 1, 64)
	}
	switch {
	case n.Band > 0:
		band = fmt.Sprintf("%d of %d", n.Band, n.Bands)
	case n.Bands > 0:
		band = fmt.Sprintf("beyond %d", n.Bands)
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d%s\n", c.Client, c.Edge, distance, band, n.Eyes, notes(n.Band > 0 && !n.Sees, "(not in the audience)"))
}

// printNext prints the next message. more is false if there is none before ctx ends.
func printNext(ctx context.Context, from *nats.Subscription) (more bool, err error) {
	m, err := from.NextMsgWithContext(ctx)
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.Is(err, nats.ErrNoResponders):
		return false, nil
	case err != nil:
		return false, err
	}
	fmt.Printf("%s\n", m.Data)
	return true, nil
}

type eventsCommand struct {
	SpaceFlags `set:"space=Space to listen to."`
	JSON       bool `name:"json" env:"-" help:"Print one JSON object per line, as without this flag."` // so that scripts need not know which commands do
	LimitFlags
}

// LimitFlags end a command that otherwise runs until it is interrupted.
type LimitFlags struct {
	Count int           `placeholder:"N" env:"-" want:"0.." help:"End after this many lines; 0 = never."`
	For   time.Duration `placeholder:"TIME" env:"-" want:"0.." help:"End after this time; 0 = never."`
}

// full reports whether n lines are as many as --count allows.
func (f *LimitFlags) full(n int) bool { return f.Count > 0 && n >= f.Count }

// limit returns ctx, which ends after --for.
func (f *LimitFlags) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	if f.For == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, f.For)
}

// Run prints events until it is interrupted or a limit is reached.
func (c *eventsCommand) Run(ctx context.Context, _ *slog.Logger) error {
	ctx, cancel := c.limit(ctx)
	defer cancel()
	nc, err := c.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	events, err := nc.SubscribeSync(c.subjects().Event(c.Space))
	if err != nil {
		return err
	}
	for n := 0; !c.full(n); n++ {
		if more, err := printNext(ctx, events); err != nil {
			return fmt.Errorf("events of space %s: %w", c.Space, err)
		} else if !more {
			return nil
		}
	}
	return nil
}
