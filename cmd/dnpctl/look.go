package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/dnprelay/dnprelay/cmd/dnpctl/progress"
	"github.com/dnprelay/dnprelay/internal/inspect"
	"github.com/dnprelay/dnprelay/internal/inspect/ask"
)

// LookFlags are the flags of commands that look at a deployment.
type LookFlags struct {
	JSON bool `name:"json" env:"-" help:"Print JSON, with the fields of INTERFACES.md: one object per line, for why and top one object."`

	NATSFlags `group:"NATS"`
}

// read asks the nodes, and shows meanwhile how many entries have come.
func read[T any](f *LookFlags, what string, question func(*ask.Asker) (T, error)) (answer T, err error) {
	a, end, err := f.asker()
	if err != nil {
		return answer, err
	}
	defer end()
	line := progress.Start(!f.JSON)
	defer line.End()
	entries := 0
	a.Page = func(n int) {
		entries += n
		line.Set(soFar(entries, what))
	}
	a.Page(0)
	return question(a)
}

// soFar says how many entries of a list have come.
func soFar(entries int, what string) progress.Status {
	return progress.Status{Text: fmt.Sprintf("%d %s so far", entries, what)}
}

// asker returns what asks the nodes. The caller calls end.
func (f *LookFlags) asker() (a *ask.Asker, end func(), err error) {
	nc, err := f.connect()
	if err != nil {
		return nil, nil, err
	}
	return &ask.Asker{Conn: nc, Subjects: f.subjects()}, nc.Close, nil
}

// printList prints entries, one JSON object per line or as a table with a heading.
func printList[T any](f *LookFlags, heading string, entries []T, cells func(w io.Writer, x *T)) error {
	if !f.JSON {
		return printTable(os.Stdout, heading, entries, cells)
	}
	for i := range entries {
		fmt.Println(jsonText(&entries[i]))
	}
	return nil
}

// jsonText returns the JSON of what a command prints, which is made of values that JSON has.
func jsonText(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// printTable prints aligned columns. Cells end with tabs.
func printTable[T any](out io.Writer, heading string, entries []T, cells func(w io.Writer, x *T)) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, heading)
	for i := range entries {
		cells(w, &entries[i])
	}
	return w.Flush()
}

type spacesCommand struct{ LookFlags }

// Run lists the spaces.
func (c *spacesCommand) Run(ctx context.Context, _ *slog.Logger) error {
	spaces, err := read(&c.LookFlags, "spaces", func(a *ask.Asker) ([]inspect.Space, error) { return a.Spaces(ctx) })
	if err != nil {
		return err
	}
	return printList(&c.LookFlags, "SPACE\tSTATES\tCLIENTS\tHOLDER\tSHARD\tEPOCH\tSEQ\tHELD FOR", spaces, func(w io.Writer, s *inspect.Space) {
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%d\t%d\t%d\t%s%s\n", s.Space, s.States, s.Clients, s.Holder, s.Shard, s.Epoch, s.Seq, s.Since.Brief(), notes(!s.Serving, "loading", !s.Durable, "not stored"))
	})
}

// notes returns the words whose conditions hold.
func notes(pairs ...any) (text string) {
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i].(bool) {
			text += " " + pairs[i+1].(string)
		}
	}
	return text
}

type nodesCommand struct{ LookFlags }

// Run lists the nodes.
func (c *nodesCommand) Run(ctx context.Context, _ *slog.Logger) error {
	a, end, err := c.asker()
	if err != nil {
		return err
	}
	defer end()
	nodes, missing, err := a.Nodes(ctx)
	if err != nil {
		return err
	}
	if c.JSON {
		for i := range nodes {
			nodes[i].List = inspect.List[inspect.Member]{Entries: []inspect.Member{}}
		}
		if err := printList(&c.LookFlags, "", nodes, nil); err != nil {
			return err
		}
		return printList(&c.LookFlags, "", missing, nil)
	}
	return printNodes(os.Stdout, nodes, missing)
}

func printNodes(out io.Writer, nodes []inspect.NodesAnswer, missing []inspect.Member) error {
	err := printTable(out, "NODE\tROLE\tVERSION\tUP FOR\tSHARDS\tSPACES\tCLIENTS\tWAITING\tSTATE", nodes, func(w io.Writer, n *inspect.NodesAnswer) {
		shards := "-"
		if n.Role == "relay" {
			shards = fmt.Sprint(n.Shards)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%s\n", n.Head.Node, n.Role, n.Version, n.Uptime.Brief(), shards, n.Spaces, n.Clients, n.Waiting, n.Condition())
	})
	for _, m := range missing {
		fmt.Fprintf(out, "%s %s does not answer; gossip knows it as %s\n", m.Role, m.Node, m.Phase)
	}
	return err
}

type clientsCommand struct {
	Space string `arg:"" want:"token" help:"Space of the clients."`
	LookFlags
}

// Run lists the clients of a space.
func (c *clientsCommand) Run(ctx context.Context, _ *slog.Logger) error {
	clients, err := read(&c.LookFlags, "clients", func(a *ask.Asker) ([]inspect.Client, error) { return a.Clients(ctx, c.Space) })
	if err != nil {
		return err
	}
	return printList(&c.LookFlags, clientHeading, clients, clientCells)
}

const clientHeading = "CLIENT\tEDGE\tADDRESS\tCARRIER\tFOR\tLINKS\tLOSS\tRTT\tBUDGET USED\tWAITING\tHEARD"

func clientCells(w io.Writer, c *inspect.Client) {
	rtt := "-"
	if c.Path.RTT > 0 {
		rtt = c.Path.RTT.Brief()
	}
	waiting := "-"
	if c.Links.Waiting > 0 {
		waiting = fmt.Sprintf("%d, %s", c.Links.Waiting, c.Links.Oldest.Brief())
	}
	fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%.0f%%\t%s\t%.0f%%\t%s\t%s\n", c.Client, c.Edge, c.Address, c.Carrier, c.Age.Brief(), c.Links.Up,
		100*c.Path.Loss, rtt, 100*c.Path.Used, waiting, c.Path.Heard.Brief()+" ago"+notes(c.Path.Away, "(away)"))
}

type whyCommand struct {
	Space  string `arg:"" want:"token" help:"Space of the state."`
	Client string `arg:"" want:"token" help:"Client whose view is explained."`
	Key    string `arg:"" want:"key" help:"Key of the state."`
	LookFlags
}

// Run says why a client has what it has of a state.
func (c *whyCommand) Run(ctx context.Context, _ *slog.Logger) error {
	a, end, err := c.asker()
	if err != nil {
		return err
	}
	defer end()
	facts, err := a.Why(ctx, c.Space, c.Client, c.Key)
	if err != nil {
		return err
	}
	reasons := inspect.Reasons(facts)
	if c.JSON {
		return printObject(inspect.WhyAnswer{Head: inspect.NewHead("", "dnpctl", nil), Space: c.Space, Client: c.Client, Key: c.Key, Facts: facts, Reasons: reasons})
	}
	os.Stdout.WriteString(prose(c, facts, reasons))
	return nil
}

// prose returns what people read: first whether all is well, then every reason, with those that keep values from the
// client marked.
func prose(c *whyCommand, f *inspect.Facts, reasons []inspect.Reason) string {
	var b strings.Builder
	who := fmt.Sprintf("Client %s", c.Client)
	if f.Edge != nil {
		who += " (edge " + f.Edge.Edge + ")"
	}
	if slices.ContainsFunc(reasons, func(r inspect.Reason) bool { return r.Blocks }) {
		fmt.Fprintf(&b, "%s does not have the newest values of %s, because of what ! marks:\n\n", who, c.Key)
	} else {
		fmt.Fprintf(&b, "%s has the newest values of %s:\n\n", who, c.Key)
	}
	for _, r := range reasons {
		mark := " "
		if r.Blocks {
			mark = "!"
		}
		fmt.Fprintf(&b, "%s %s\n", mark, r.Text)
	}
	return b.String()
}

// lineOf returns a line that a command prints: JSON, or text for people.
func lineOf(asJSON bool, v any, text string) string {
	if asJSON {
		return jsonText(v)
	}
	return text
}

// printResult prints what a command has done: one JSON object, or text for people. It returns no error.
func printResult(asJSON bool, v any, text string) error {
	if asJSON {
		return printObject(v)
	}
	fmt.Println(text)
	return nil
}

// printObject prints one JSON object, indented for a terminal. It returns no error.
func printObject(v any) error {
	fmt.Println(readable(jsonText(v)))
	return nil
}
