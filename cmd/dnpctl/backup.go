package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/cmd/dnpctl/progress"
	"github.com/dnprelay/dnprelay/internal/backup"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/inspect"
	"github.com/dnprelay/dnprelay/internal/inspect/ask"
	"github.com/dnprelay/dnprelay/internal/turn"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/replication/payload"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats.go"
)

// fileSuffix is that of the file of a space, behind its name.
const fileSuffix = ".jsonl"

// DataFlags are the arguments and flags of backup and restore.
type DataFlags struct {
	Dir    string   `arg:"" help:"Directory with a file SPACE.jsonl for each space: JSON lines, of which each but the first and the last is an op of a publish."`
	Spaces []string `arg:"" optional:"" name:"space" help:"Only these spaces; default: all."`
	JSON   bool     `name:"json" env:"-" help:"Print one JSON object per space: space, epoch, seq, time, ops, states; restore also replaced, absent, refused."`

	config.Sharding `set:"shards=64"`
	NATSFlags       `group:"NATS"`
}

// Problems lists what is wrong with f.
func (f *DataFlags) Problems() (list config.Problems) {
	for _, name := range f.Spaces {
		list.AddIf(!subject.ValidToken(name), "SPACE", "want [A-Za-z0-9_-]{1,%d}, got %q", subject.TokenMax, name)
	}
	return append(list, f.NATSFlags.Problems()...)
}

func (f *DataFlags) path(space string) string { return filepath.Join(f.Dir, space+fileSuffix) }

// A spaceResult is what a command has done with a space.
type spaceResult struct {
	backup.Header
	backup.Counts

	Replaced int `json:"replaced,omitempty"` // states that the space had
	Absent   int `json:"absent,omitempty"`   // ops about clients that are not in the space
	Refused  int `json:"refused,omitempty"`  // ops that the relay refused for another reason
}

func (r *spaceResult) text(done string) string {
	text := fmt.Sprintf("%s: %d states %s, of position %d:%d, %s", r.Space, r.States, done, r.Epoch, r.Seq, r.Time)
	for _, n := range []struct {
		n    int
		what string
	}{{r.Replaced, "in the place of %d states"}, {r.Absent, "without %d ops about clients that are not in the space"}, {r.Refused, "%d ops are refused"}} {
		if n.n > 0 {
			text += fmt.Sprintf("; "+n.what, n.n)
		}
	}
	return text
}

// A copier copies spaces of a deployment.
type copier struct {
	*DataFlags
	nc     *nats.Conn
	line   *progress.Line
	spaces map[string]inspect.Space // those that relays hold
}

// begin connects, and asks who holds what. Without an error, the caller closes the connection. It fails while a shard has no holder, whose spaces
// would seem to be empty.
func (f *DataFlags) begin(ctx context.Context, line *progress.Line) (*copier, error) {
	nc, err := f.connect()
	if err != nil {
		return nil, err
	}
	c := &copier{DataFlags: f, nc: nc, spaces: make(map[string]inspect.Space), line: line}
	if err := c.look(ctx); err != nil {
		nc.Close()
		return nil, err
	}
	return c, nil
}

func (c *copier) look(ctx context.Context) error {
	a := ask.Asker{Conn: c.nc, Subjects: c.subjects()}
	nodes, _, err := a.Nodes(ctx)
	if err != nil {
		return err
	}
	held := 0
	for _, n := range nodes {
		if n.NodeFacts != nil {
			held += n.Shards
		}
	}
	if held < c.Shards {
		return fmt.Errorf("relays hold %d of %d shards: some have not started, or --shards is not that of the deployment", held, c.Shards)
	}
	all, err := a.Spaces(ctx)
	for _, s := range all {
		if !s.Serving {
			return fmt.Errorf("relay %s still loads space %s; try again when `dnpctl spaces` lists none as loading", s.Holder, s.Space)
		}
		c.spaces[s.Space] = s
	}
	return err
}

// Bounds of a copy. The times are arbitrary.
const (
	copyTries = 4
	copyPause = time.Second
	copyBytes = 1 << 30 // that wait for the command; what is beyond gets lost
)

// stored returns what the holder stores of a space; nil if no relay has the space.
func (c *copier) stored(ctx context.Context, space string) (copied *replication.Stored, err error) {
	s, ok := c.spaces[space]
	if !ok {
		return nil, nil
	}
	for try := range copyTries { // the space may change its holder, and a part of the answer may get lost
		if try > 0 && !turn.Pause(ctx, copyPause) {
			return nil, ctx.Err()
		}
		if copied, err = c.ask(ctx, s); err == nil {
			return copied, nil
		}
	}
	return nil, fmt.Errorf("space %s: %w", space, err)
}

func (c *copier) ask(ctx context.Context, s inspect.Space) (*replication.Stored, error) {
	sub, err := c.nc.SubscribeSync(c.nc.NewInbox())
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }() // fails for a closed connection only
	if err := sub.SetPendingLimits(-1, copyBytes); err != nil {
		return nil, err
	}
	answer := replication.Stored{Space: s.Space}
	if err := c.nc.PublishRequest(c.subjects().Repair(s.Shard), sub.Subject, answer.Request()); err != nil {
		return nil, err
	}
	for whole := false; !whole; {
		wait, cancel := context.WithTimeout(ctx, c.Timeout)
		m, err := sub.NextMsgWithContext(wait)
		cancel()
		switch {
		case errors.Is(err, context.DeadlineExceeded):
			return nil, fmt.Errorf("no answer within %v; a relay of an older release gives none", c.Timeout)
		case err != nil:
			return nil, err
		}
		if whole, err = answer.Apply(m.Data); err != nil {
			return nil, fmt.Errorf("a part of the answer is missing or cannot be read: %w", err)
		}
	}
	return &answer, nil
}

// done prints what became of the i-th of n spaces.
func (c *copier) done(r *spaceResult, done string, i, n int) {
	c.line.Println(lineOf(c.JSON, r, r.text(done)))
	c.line.Set(spacesSoFar(i+1, n, done))
}

// spacesSoFar says how many spaces a command has checked, backed up or restored.
func spacesSoFar(i, n int, done string) progress.Status {
	return progress.Status{Done: i, Total: n, Text: fmt.Sprintf("%d of %d spaces %s", i, n, done)}
}

type backupCommand struct{ DataFlags }

// Run writes a file for each space.
func (c *backupCommand) Run(ctx context.Context, _ *slog.Logger) error {
	line := progress.Start(!c.JSON)
	defer line.End()
	from, err := c.begin(ctx, line)
	if err != nil {
		return err
	}
	defer from.nc.Close()
	names := c.Spaces
	for _, name := range names {
		if from.spaces[name].States == 0 {
			return fmt.Errorf("no relay has a state of space %s", name)
		}
	}
	if len(names) == 0 {
		for name, s := range from.spaces {
			if s.States > 0 {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if err := os.MkdirAll(c.Dir, 0o777); err != nil {
		return err
	}
	for _, name := range names {
		if err := vacant(c.path(name)); err != nil {
			return err
		}
	}
	for i, name := range names {
		r := spaceResult{Header: backup.Header{Space: name, Time: time.Now().UTC().Format(time.RFC3339), Spaces: len(names)}}
		if err := c.save(ctx, from, &r); err != nil {
			return fmt.Errorf("%d of %d spaces are backed up: %w", i, len(names), err)
		}
		from.done(&r, "backed up", i, len(names))
	}
	return nil
}

// vacant returns an error if there is a file.
func vacant(path string) error {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return errors.Join(err, fmt.Errorf("%s exists; a backup overwrites nothing", path))
	}
	return nil
}

// save writes the file of a space, which is there once it is whole.
func (c *backupCommand) save(ctx context.Context, from *copier, r *spaceResult) error {
	copied, err := from.stored(ctx, r.Space)
	if err != nil {
		return err
	}
	r.Epoch, r.Seq = copied.Store.Position()
	f, err := os.CreateTemp(c.Dir, "."+r.Space+".*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // fails once it has another name
	r.Counts, err = backup.Write(f, r.Header, copied)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	path := c.path(r.Space)
	if err := vacant(path); err != nil { // another space, where a file system does not tell a from A
		return err
	}
	return os.Rename(f.Name(), path)
}

type restoreCommand struct {
	DataFlags
	Replace bool `env:"-" help:"Replace what a space has. Without it, the command refuses spaces that are not empty."`
	DryRun  bool `env:"-" help:"Check the files and the deployment, say what would be done, and change nothing."`
}

// A restoration is the way of one space into a deployment.
type restoration struct {
	spaceResult
	longest   int                 // op
	groups    map[string][]string // that clients are in, by client
	interests int                 // named ones that the space has
}

// Run checks everything, and then restores one space after the other.
func (c *restoreCommand) Run(ctx context.Context, _ *slog.Logger) error {
	line := progress.Start(!c.JSON)
	defer line.End()
	all, err := c.files(line)
	if err != nil {
		return err
	}
	to, err := c.begin(ctx, line)
	if err != nil {
		return err
	}
	defer to.nc.Close()
	for i, r := range all {
		line.Set(spacesSoFar(i, len(all), "compared with the deployment"))
		if err := c.target(ctx, to, r); err != nil {
			return err
		}
	}
	refused := 0
	for i, r := range all {
		if !c.DryRun {
			if err := c.restore(ctx, to, r); err != nil {
				return fmt.Errorf("space %s is restored in part, and %d of %d spaces are restored: %w; when the reason is gone, run the command again with --replace", r.Space, i, len(all), err)
			}
		}
		done := "restored"
		if c.DryRun {
			done = "would be restored"
		}
		to.done(&r.spaceResult, done, i, len(all))
		refused += r.Refused
	}
	if refused > 0 {
		return fmt.Errorf("relays refused %d ops", refused)
	}
	return nil
}

// files checks the files.
func (c *restoreCommand) files(line *progress.Line) (all []*restoration, err error) {
	names := slices.Compact(slices.Sorted(slices.Values(c.Spaces)))
	if len(names) == 0 {
		entries, err := os.ReadDir(c.Dir)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if name, ok := strings.CutSuffix(e.Name(), fileSuffix); ok && subject.ValidToken(name) {
				names = append(names, name)
			}
		}
	}
	for i, name := range names {
		line.Set(spacesSoFar(i, len(names), "checked"))
		r := &restoration{}
		err := c.read(name, r, func(text []byte, _ replication.Op) error {
			r.longest = max(r.longest, len(text))
			return nil
		})
		switch {
		case err != nil:
			return nil, err
		case len(c.Spaces) == 0 && len(names) < r.Header.Spaces:
			return nil, fmt.Errorf("%s has %d of the %d files that were written together: the backup is not complete, or files are missing; the names of spaces as arguments restore those", c.Dir, len(names), r.Header.Spaces)
		}
		all = append(all, r)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has no file of a backup", c.Dir)
	}
	return all, nil
}

// read reads the file of a space, and calls each with its ops.
func (c *restoreCommand) read(space string, into *restoration, each func(text []byte, op replication.Op) error) error {
	f, err := os.Open(c.path(space))
	if err != nil {
		return err
	}
	defer f.Close()
	r, err := backup.NewReader(f)
	if err == nil && r.Header.Space != space {
		err = fmt.Errorf("the file is that of space %s", r.Header.Space)
	}
	for err == nil {
		var text []byte
		var op replication.Op
		if text, op, err = r.Next(); err == nil {
			if err := each(text, op); err != nil {
				return err
			}
		}
	}
	if err != io.EOF {
		return fmt.Errorf("%s: %w", f.Name(), err)
	}
	into.Header, into.Counts = r.Header, r.Counts
	return nil
}

// Sizes of what a publish has around its ops, and of the largest that is put together of several.
const (
	publishMargin = 256
	publishBytes  = 900 << 10
	publishOps    = 10_000 // as many as a relay accepts
)

// target looks at the space that a file is for.
func (c *restoreCommand) target(ctx context.Context, to *copier, r *restoration) error {
	if most := int(to.nc.MaxPayload()); r.longest+publishMargin > most {
		return fmt.Errorf("space %s: a state takes a publish of %d bytes, and the NATS server accepts %d (max_payload)", r.Space, r.longest+publishMargin, most)
	}
	has, err := to.stored(ctx, r.Space)
	if err != nil || has == nil {
		return err
	}
	interests, groups, _ := has.Beside()
	r.Replaced, r.interests, r.groups = len(has.Store.List("", math.MaxInt).States), len(interests), make(map[string][]string)
	for _, client := range groups {
		r.groups[client] = has.Store.Groups(client)
	}
	if r.Replaced+r.interests > 0 && !c.Replace {
		return fmt.Errorf("space %s is not empty: it has %d states and %d named interests; --replace replaces them", r.Space, r.Replaced, r.interests)
	}
	return nil
}

// restore publishes what a file has. Ops that are refused leave the others alone.
func (c *restoreCommand) restore(ctx context.Context, to *copier, r *restoration) error {
	p := publication{to: to, result: &r.spaceResult}
	if r.Replaced+r.interests > 0 {
		p.ops, p.n = append(p.ops, `{"op":"clear"},`...), 1
	}
	most := min(publishBytes, int(to.nc.MaxPayload())-publishMargin)
	err := c.read(r.Space, r, func(text []byte, op replication.Op) error {
		leave := slices.DeleteFunc(r.groups[op.Client], func(g string) bool { return slices.Contains(op.Join, g) })
		if op.Kind == replication.OpGroup && len(leave) > 0 {
			text = (&payload.Op{Op: "group", Client: op.Client, Join: op.Join, Leave: leave}).Append(nil)
		}
		if p.n == publishOps || p.n > 0 && len(p.ops)+len(text) > most {
			if err := p.send(ctx); err != nil {
				return err
			}
		}
		p.ops, p.n = append(append(p.ops, text...), ','), p.n+1
		return nil
	})
	if err == nil && p.n > 0 {
		err = p.send(ctx)
	}
	return err
}

// A publication publishes ops to one space.
type publication struct {
	to     *copier
	result *spaceResult
	ops    []byte // with a comma behind each
	n      int
}

// busyTries is how often a relay may say that it is busy.
const busyTries = 20

// send publishes the ops, and counts those that are refused.
func (p *publication) send(ctx context.Context) error {
	body := fmt.Appendf(nil, `{"atomic":false,"ops":[%s]}`, p.ops[:len(p.ops)-1])
	p.ops, p.n = p.ops[:0], 0
	for range busyTries {
		holder := SpaceFlags{Space: p.result.Space, NATSFlags: p.to.NATSFlags}
		data, err := holder.askHolderOver(ctx, p.to.nc, p.to.subjects().Publish(p.result.Space, ""), body)
		if err != nil {
			return err
		}
		a, err := payload.ParseAnswer(data)
		if payload.HasCode(err, replication.CodeBusy) && a.Error != nil {
			if !turn.Pause(ctx, time.Duration(a.Error.RetryAfter)*time.Millisecond) {
				return ctx.Err()
			}
			continue
		}
		if err != nil && a.Results == nil {
			return err
		}
		for _, x := range a.Results {
			switch {
			case x.Error == nil:
			case x.Error.Code == replication.CodeUnknownClient:
				p.result.Absent++
			default:
				p.result.Refused++
				p.to.line.Fprintln(os.Stderr, fmt.Sprintf("space %s: %v", p.result.Space, x.Error))
			}
		}
		return nil
	}
	return fmt.Errorf("the relay is busy")
}
