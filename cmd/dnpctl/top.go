package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/internal/inspect"
	"github.com/dnprelay/dnprelay/internal/inspect/ask"
	"github.com/dnprelay/dnprelay/internal/top"
	"github.com/dnprelay/dnprelay/internal/turn"
	"github.com/dnprelay/dnprelay/replication"
	replview "github.com/dnprelay/dnprelay/replication/view"
	"golang.org/x/sync/errgroup"
	"golang.org/x/term"
)

type topCommand struct {
	Once     bool          `env:"-" help:"Print once and end. Without it, the command is a screen that keys control on a terminal, and elsewhere prints again after each --interval."`
	Interval time.Duration `default:"1s" want:"100ms..1h" env:"-" help:"Time over which rates are measured."`
	Rows     int           `default:"10" want:"1..1000" env:"-" help:"Most rows of each table that is printed."`
	LookFlags
	config.Sharding `set:"shards=64"`
}

// Of how many spaces, those with the most clients, top asks for the clients: when it prints, and on a screen,
// which asks every second.
const (
	topSpaces       = 10
	topScreenSpaces = 4
)

// A topView is what top prints.
type topView struct {
	Nodes   []inspect.NodesAnswer `json:"nodes"`
	Missing []inspect.Member      `json:"missing"`
	Spaces  []top.SpaceRate       `json:"spaces"`
	Clients []top.Client          `json:"clients"`
}

// Run shows the busiest spaces and clients.
func (c *topCommand) Run(ctx context.Context, _ *slog.Logger) error {
	a, end, err := c.asker()
	if err != nil {
		return err
	}
	defer end()
	s := &topSource{ctx: ctx, command: c, asker: a, spaces: topSpaces}
	if !c.Once && !c.JSON && isTerminal() && term.IsTerminal(int(os.Stdin.Fd())) {
		s.spaces, s.follower = topScreenSpaces, &follower{ctx: ctx, command: c}
		return s.screen()
	}
	for {
		v, err := c.look(s)
		switch {
		case ctx.Err() != nil && !c.Once:
			return nil // the user ends the view
		case err != nil:
			return err
		case c.JSON:
			err = printObject(v)
		default:
			err = c.show(v)
		}
		if err != nil || c.Once {
			return err
		}
	}
}

// look takes two readings.
func (c *topCommand) look(s *topSource) (v topView, err error) {
	before := s.Read(top.Want{Now: true})
	if before.Err != nil {
		return v, before.Err
	}
	after := s.Read(top.Want{})
	top.BusiestClients(after.Clients)
	v = topView{Nodes: after.Nodes, Missing: after.Missing, Spaces: top.SpaceRates(before.Spaces, after.Spaces), Clients: after.Clients}
	v.Spaces, v.Clients = v.Spaces[:min(len(v.Spaces), c.Rows)], v.Clients[:min(len(v.Clients), c.Rows)]
	return v, after.Err
}

// show prints the view.
func (c *topCommand) show(v topView) error {
	var b bytes.Buffer
	err := printNodes(&b, v.Nodes, v.Missing)
	fmt.Fprintln(&b)
	err = errors.Join(err, printTable(&b, "SPACE\tSTATES\tCLIENTS\tHOLDER\tPUBLISHES/S\tBATCHES/S\tBYTES/S", v.Spaces, func(w io.Writer, s *top.SpaceRate) {
		fmt.Fprintf(w, "%s\t%d\t%d\t%s\t%.1f\t%.1f\t%.0f\n", s.Space.Space, s.Space.States, s.Space.Clients, s.Space.Holder, s.PublishRate, s.BatchRate, s.ByteRate)
	}))
	if len(v.Clients) > 0 {
		fmt.Fprintln(&b)
		err = errors.Join(err, printTable(&b, clientHeading, v.Clients, func(w io.Writer, c *top.Client) { clientCells(w, &c.Client) }))
	}
	if err == nil {
		_, err = os.Stdout.Write(b.Bytes())
	}
	return err
}

// A topSource reads a deployment.
type topSource struct {
	ctx      context.Context
	command  *topCommand
	asker    *ask.Asker
	spaces   int       // of which it asks for the clients
	follower *follower // nil: it reads no states

	mu     sync.Mutex // a reading for a page that was just opened overtakes one that waits for its turn
	cancel context.CancelFunc
	last   time.Time       // when a reading began
	before []inspect.Space // of the reading before
}

// screen runs the screen until the user ends it.
func (s *topSource) screen() error {
	var cancel context.CancelFunc
	s.ctx, cancel = context.WithCancel(s.ctx)
	defer s.follower.follow("") // behind cancel, so that nothing begins to follow again
	defer cancel()
	_, err := tea.NewProgram(top.New(s), tea.WithContext(s.ctx), tea.WithoutSignalHandler()).Run()
	if s.ctx.Err() != nil {
		return nil // a signal ended it
	}
	return err
}

// Read waits for its turn, and reads.
func (s *topSource) Read(w top.Want) top.Reading {
	ctx, wait := s.begin(w.Now)
	if !turn.Pause(ctx, wait) {
		return top.Reading{Round: w.Round, Err: ctx.Err()}
	}
	s.mu.Lock()
	s.last = time.Now()
	s.mu.Unlock()
	r, err := s.read(ctx, w)
	r.Round, r.At, r.Err = w.Round, time.Now(), err
	return r
}

// begin ends a reading that is under way, and returns how long the next one waits.
func (s *topSource) begin(now bool) (ctx context.Context, wait time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancel != nil {
		s.cancel()
	}
	ctx, s.cancel = context.WithCancel(s.ctx)
	if !now {
		wait = time.Until(s.last.Add(s.command.Interval))
	}
	return ctx, wait
}

// read asks the nodes: for nodes and spaces at once, because an asker waits some 300 ms for further answers, and then for clients.
func (s *topSource) read(ctx context.Context, w top.Want) (r top.Reading, err error) {
	group, both := errgroup.WithContext(ctx)
	group.Go(func() (err error) { r.Nodes, r.Missing, err = s.asker.Nodes(both); return err })
	group.Go(func() (err error) { r.Spaces, err = s.asker.Spaces(both); return err })
	if err := group.Wait(); err != nil {
		return r, err
	}
	if s.follower != nil {
		r.Followed = s.chosen(w.Space, r.Spaces)
		r.States, r.Unknown = s.follower.follow(r.Followed)
	}
	r.Clients, err = s.clients(ctx, w.Space, r.Spaces)
	return r, err
}

// chosen returns the space to follow.
func (s *topSource) chosen(space string, now []inspect.Space) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	rates := top.SpaceRates(s.before, now)
	s.before = now
	return cmp.Or(space, top.Follow(rates, s.follower.followed()))
}

// clients returns the clients of a space, or of those with the most clients.
func (s *topSource) clients(ctx context.Context, space string, all []inspect.Space) (list []top.Client, err error) {
	all = slices.Clone(all)
	slices.SortStableFunc(all, func(x, y inspect.Space) int { return cmp.Compare(y.Clients, x.Clients) })
	all = slices.DeleteFunc(all, func(x inspect.Space) bool { return x.Clients == 0 || space != "" && x.Space != space })
	all = all[:min(len(all), s.spaces)]
	lists := make([][]inspect.Client, len(all))
	group, ctx := errgroup.WithContext(ctx)
	for i, x := range all {
		group.Go(func() (err error) { lists[i], err = s.asker.Clients(ctx, x.Space); return err })
	}
	err = group.Wait()
	for i, x := range all {
		for _, c := range lists[i] {
			list = append(list, top.Client{Space: x.Space, Client: c})
		}
	}
	return list, err
}

// Why asks the nodes why a client has what it has.
func (s *topSource) Why(space, client, key string) (*inspect.Facts, error) {
	return s.asker.Why(s.ctx, space, client, key)
}

// A follower counts the changes of the states of one space, which it follows as an edge does.
type follower struct {
	ctx     context.Context
	command *topCommand

	mu     sync.Mutex // the goroutine that follows counts, readings copy
	space  string
	run    *following // nil: none is under way
	failed error      // why the last one ended
	again  time.Time  // when to try once more
}

// A following is one goroutine that follows.
type following struct {
	observer
	f      *follower
	cancel context.CancelFunc
	done   chan struct{}
	states map[string]*top.State
}

// followPause is the pause before a space that could not be followed is tried again.
const followPause = 5 * time.Second

func (f *follower) followed() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.space
}

// follow follows a space from here on, or none if it has no name, and returns what is known of its states, or why nothing is.
func (f *follower) follow(space string) (list []top.State, unknown string) {
	f.mu.Lock()
	old := f.run
	if f.space != space {
		f.space, f.run, f.failed, f.again = space, nil, nil, time.Time{}
	} else {
		old = nil
	}
	if now := time.Now(); f.run == nil && space != "" && !now.Before(f.again) {
		f.start(now)
	}
	if f.run != nil {
		for _, s := range f.run.states {
			list = append(list, *s)
		}
	}
	if f.failed != nil {
		unknown = f.failed.Error()
	}
	f.mu.Unlock()
	if old != nil {
		old.cancel()
		<-old.done
	}
	slices.SortFunc(list, func(a, b top.State) int { return cmp.Compare(a.Key, b.Key) })
	return list, unknown
}

// start starts to follow the space.
func (f *follower) start(now time.Time) {
	ctx, cancel := context.WithCancel(f.ctx)
	r := &following{f: f, cancel: cancel, done: make(chan struct{}), states: make(map[string]*top.State)}
	f.run, f.failed, f.again = r, nil, now.Add(followPause)
	feed := newFeed(f.space, f.command.Sharding, f.command.Timeout)
	feed.replica = replication.NewReplica(f.space, r)
	feed.replica.SetWitness(r.count)
	go func() { // ends with ctx, and follow waits for it
		defer close(r.done)
		defer cancel()
		err := feed.run(ctx, &f.command.NATSFlags)
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.run == r {
			f.run, f.failed = nil, err
		}
	}()
}

// Added begins to count.
func (r *following) Added(s *replication.State) {
	r.f.mu.Lock()
	defer r.f.mu.Unlock()
	r.states[s.Desc.Key] = &top.State{Key: s.Desc.Key}
}

// Removed ends it.
func (r *following) Removed(s *replication.State) {
	r.f.mu.Lock()
	defer r.f.mu.Unlock()
	delete(r.states, s.Desc.Key)
}

// count counts a change that the holder sent to everybody.
func (r *following) count(w replication.Witnessed) {
	change := w.Record.Message == replview.Update || w.Record.Message == replview.Keyframe
	if w.Repair || !w.Applied || w.State == nil || !change {
		return
	}
	r.f.mu.Lock()
	defer r.f.mu.Unlock()
	if s := r.states[w.State.Desc.Key]; s != nil {
		s.Changes++
		s.Bytes += uint64(len(w.Record.Data))
	}
}
