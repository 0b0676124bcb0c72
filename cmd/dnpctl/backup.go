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

func (f *DataFlags) path(space string) string { return filepath.Join(f.Dir, space+fileSuffix) }

// A spaceResult is what a command has done with a space.
type spaceResult struct {
	backup.Header
	backup.Counts

	Replaced int `json:"replaced,omitempty"` // states that the space had
	Absent   int `json:"absent,omitempty"`   // ops about clients that are not in the space
	Refused  int `json:"refused,omitempty"`  // ops that the relay refused for another reason
}

// A copier copies spaces of a deployment.
type copier struct {
	*DataFlags
	nc     *nats.Conn
	line   *progress.Line
	spaces map[string]inspect.Space // those that relays hold
}

// begin connects, and asks who holds what. The caller calls end, also after an error. It fails while a shard has no holder, whose spaces
// would seem to be empty.
func (c *copier) begin(ctx context.Context) (err error) {
	c.spaces = make(map[string]inspect.Space)
	if c.nc, err = c.connect(); err != nil {
		return err
	}
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
		if c.spaces[s.Space] = s; !s.Serving {
			return fmt.Errorf("relay %s still loads space %s; try again soon", s.Holder, s.Space)
		}
	}
	return err
}

func (c *copier) end() {
	c.line.End()
	if c.nc != nil {
		c.nc.Close()
	}
}

// Bounds of a copy. They are arbitrary.
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
	for range copyTries { // the space may change its holder, and a part of the answer may get lost
		if copied, err = c.ask(ctx, s); err == nil || !turn.Pause(ctx, copyPause) {
			break
		}
	}
	if err != nil {
		err = fmt.Errorf("space %s: %w", space, err)
	}
	return copied, err
}

func (c *copier) ask(ctx context.Context, s inspect.Space) (*replication.Stored, error) {
	sub, err := c.nc.SubscribeSync(c.nc.NewInbox())
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }() // fails for a closed connection only
	answer := &replication.Stored{Space: s.Space}
	err = errors.Join(sub.SetPendingLimits(-1, copyBytes), c.nc.PublishRequest(c.subjects().Repair(s.Shard), sub.Subject, answer.Request()))
	for whole := false; err == nil && !whole; {
		wait, cancel := context.WithTimeout(ctx, c.Timeout)
		var m *nats.Msg
		if m, err = sub.NextMsgWithContext(wait); err == nil {
			whole, err = answer.Apply(m.Data)
		} else if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("no answer within %v; a relay of an older release gives none", c.Timeout)
		}
		cancel()
	}
	return answer, err
}

// progress shows how many of the spaces a command has checked, backed up or restored.
func (c *copier) progress(i, n int, done string) {
	c.line.Set(progress.Status{Done: i, Total: n, Text: fmt.Sprintf("%d of %d spaces %s", i, n, done)})
}

type backupCommand struct{ DataFlags }

// Run writes a file for each space.
func (c *backupCommand) Run(ctx context.Context, _ *slog.Logger) error {
	from := &copier{DataFlags: &c.DataFlags, line: progress.Start(!c.JSON)}
	defer from.end()
	if err := from.begin(ctx); err != nil {
		return err
	}
	names := slices.Clone(c.Spaces)
	for name, s := range from.spaces {
		if len(c.Spaces) == 0 && s.States > 0 {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	for _, name := range names {
		if from.spaces[name].States == 0 {
			return fmt.Errorf("no relay has a state of space %s", name)
		}
		if err := vacant(c.path(name)); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(c.Dir, 0o777); err != nil {
		return err
	}
	for i, name := range names {
		from.progress(i, len(names), "backed up")
		r := &spaceResult{Header: backup.Header{Space: name, Time: time.Now().UTC().Format(time.RFC3339), Spaces: len(names)}}
		if err := c.save(ctx, from, r); err != nil {
			return fmt.Errorf("%d of %d spaces are backed up: %w", i, len(names), err)
		}
		from.line.Println(lineOf(c.JSON, r, fmt.Sprintf("%s: %d states backed up, of position %d:%d", name, r.States, r.Epoch, r.Seq)))
	}
	return nil
}

// vacant returns an error if there is a file.
func vacant(path string) error {
	_, err := os.Lstat(path)
	switch {
	case err == nil:
		return fmt.Errorf("%s exists; a backup overwrites nothing", path)
	case errors.Is(err, fs.ErrNotExist):
		return nil
	}
	return err
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
	if r.Counts, err = backup.Write(f, r.Header, copied); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = vacant(c.path(r.Space)) // another space may have it, where a file system does not tell a from A
	}
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), c.path(r.Space))
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
	ops       []byte              // to be published, with a comma behind each
	n         int                 // of them
}

// Run checks everything, and then restores one space after the other.
func (c *restoreCommand) Run(ctx context.Context, _ *slog.Logger) error {
	to := &copier{DataFlags: &c.DataFlags, line: progress.Start(!c.JSON)}
	defer to.end()
	all, err := c.files(to)
	if err != nil {
		return err
	}
	if err := to.begin(ctx); err != nil {
		return err
	}
	for i, r := range all {
		to.progress(i, len(all), "compared with the deployment")
		if err := c.target(ctx, to, r); err != nil {
			return err
		}
	}
	done, refused := "restored", 0
	if c.DryRun {
		done = "would be restored"
	}
	for i, r := range all {
		to.progress(i, len(all), done)
		if !c.DryRun {
			if err := c.restore(ctx, to, r); err != nil {
				return fmt.Errorf("%d of %d spaces are restored, and space %s in part: %w; when the reason is gone, run the command again with --replace", i, len(all), r.Space, err)
			}
		}
		text := fmt.Sprintf("%s: %d states %s, of position %d:%d, %s, in the place of %d; %d ops about absent clients, %d refused", r.Space, r.States, done, r.Epoch, r.Seq, r.Time, r.Replaced, r.Absent, r.Refused)
		to.line.Println(lineOf(c.JSON, &r.spaceResult, text))
		refused += r.Refused
	}
	if refused > 0 {
		return fmt.Errorf("relays refused %d ops", refused)
	}
	return nil
}

// files checks the files.
func (c *restoreCommand) files(to *copier) (all []*restoration, err error) {
	names := slices.Compact(slices.Sorted(slices.Values(c.Spaces)))
	if len(names) == 0 {
		entries, err := os.ReadDir(c.Dir)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if name, ok := strings.CutSuffix(e.Name(), fileSuffix); ok && name[:min(1, len(name))] != "." {
				names = append(names, name)
			}
		}
	}
	for i, name := range names {
		to.progress(i, len(names), "checked")
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

// restore publishes what a file has.
func (c *restoreCommand) restore(ctx context.Context, to *copier, r *restoration) error {
	if r.Replaced+r.interests > 0 {
		r.ops, r.n = append(r.ops, `{"op":"clear"},`...), 1
	}
	most := min(publishBytes, int(to.nc.MaxPayload())-publishMargin)
	err := c.read(r.Space, r, func(text []byte, op replication.Op) error {
		leave := slices.DeleteFunc(r.groups[op.Client], func(g string) bool { return slices.Contains(op.Join, g) })
		if op.Kind == replication.OpGroup && len(leave) > 0 {
			text = (&payload.Op{Op: "group", Client: op.Client, Join: op.Join, Leave: leave}).Append(nil)
		}
		if r.n == publishOps || r.n > 0 && len(r.ops)+len(text) > most {
			if err := c.publish(ctx, to, r); err != nil {
				return err
			}
		}
		r.ops, r.n = append(append(r.ops, text...), ','), r.n+1
		return nil
	})
	if err == nil && r.n > 0 {
		err = c.publish(ctx, to, r)
	}
	return err
}

// publish publishes ops. Those that are refused, which it counts, leave the others alone.
func (c *restoreCommand) publish(ctx context.Context, to *copier, r *restoration) error {
	body := fmt.Appendf(nil, `{"atomic":false,"ops":[%s]}`, r.ops[:len(r.ops)-1])
	r.ops, r.n = r.ops[:0], 0
	holder := SpaceFlags{Space: r.Space, NATSFlags: c.NATSFlags}
	data, err := holder.askHolder(ctx, c.subjects().Publish(r.Space, ""), body)
	if err != nil {
		return err
	}
	a, err := payload.ParseAnswer(data)
	if a.Results == nil {
		return err
	}
	for _, x := range a.Results {
		switch {
		case x.Error == nil:
		case x.Error.Code == replication.CodeUnknownClient:
			r.Absent++
		default:
			r.Refused++
			to.line.Fprintln(os.Stderr, fmt.Sprintf("space %s: %v", r.Space, x.Error))
		}
	}
	return nil
}
