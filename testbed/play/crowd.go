//go:build linux

package play

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/internal/proctest"
	"github.com/dnprelay/dnprelay/testbed/history"
)

const (
	settleMost = 30 * time.Second // for messages under way at the end
	settleRest = 3 * time.Second  // without an arrival or an answer
)

// A Crowd is a game server and players that share a history.
type Crowd struct {
	Log     *history.Log
	Players []*Player
	Pace    Pace // of the messages of each player that speaks, and of those to it
	Breaks  Pace // the same of each listener: 0 as long as it only listens

	file        string
	game        *Game
	interrupted atomic.Int64
	reliable    atomic.Int64 // messages, both ways
	latest      atomic.Int64 // when a message arrived or was answered last, in µs since 1970
	cancel      context.CancelFunc
	running     sync.WaitGroup
}

// NewCrowd starts a history. The game server and the players use the returned context,
// which ends with Stop and not with ctx, so that a run that is ended by hand can settle.
func NewCrowd(ctx context.Context, file string) (context.Context, *Crowd, error) {
	log, err := history.Create(file)
	if err != nil {
		return ctx, nil, err
	}
	c := &Crowd{Log: log, file: file}
	ctx, c.cancel = context.WithCancel(context.WithoutCancel(ctx))
	return ctx, c, nil
}

// Note adds a record to the history.
func (c *Crowd) Note(r history.Record) {
	switch r.Kind {
	case history.Closed:
		c.interrupted.Add(1)
	case history.Said, history.Told:
		c.reliable.Add(1)
	case history.Heard, history.Got, history.Answered: // what is answered arrives later
		c.latest.Store(time.Now().UnixMicro())
	}
	c.Log.Add(r)
}

// Go runs a function until Stop.
func (c *Crowd) Go(f func()) { c.running.Go(f) }

// StartGame connects the game server, with the history of the crowd.
func (c *Crowd) StartGame(ctx context.Context, cfg GameConfig) (err error) {
	cfg.Pace, cfg.Note = c.paceOf, c.Note
	if c.game, err = NewGame(ctx, cfg); err != nil {
		return err
	}
	c.Go(func() { c.game.Run(ctx) })
	return nil
}

// Join lets a player play.
func (c *Crowd) Join(ctx context.Context, p *Player) {
	p.Pace, p.Note = c.paceOf(p.Name), c.Note
	c.Players = append(c.Players, p)
	c.Go(func() { p.Run(ctx) })
}

// paceOf returns the pace of messages from and to a player.
func (c *Crowd) paceOf(who string) *Pace {
	if history.Listener(who) {
		return &c.Breaks
	}
	return &c.Pace
}

// Interrupted returns how many connections of players ended.
func (c *Crowd) Interrupted() int { return int(c.interrupted.Load()) }

// Reliable returns how many reliable messages were sent, both ways.
func (c *Crowd) Reliable() uint64 { return uint64(c.reliable.Load()) }

// Finish stops all messages, waits until those under way are acknowledged and none has
// arrived or been answered for a while, ends the game and checks the history. It does so after the end of ctx
// as well, and the verdict says when the run was ended by hand, or did not settle.
func (c *Crowd) Finish(ctx context.Context) (history.Verdict, error) {
	var remarks []string
	if ctx.Err() != nil {
		remarks = append(remarks, "the run was ended by hand")
	}
	c.Pace.Set(0)
	c.Breaks.Set(0)
	err := proctest.Await(context.WithoutCancel(ctx), settleMost, "all messages are acknowledged and have arrived", func() bool {
		return time.Since(time.UnixMicro(c.latest.Load())) > settleRest && c.game.Settled() &&
			!slices.ContainsFunc(c.Players, func(p *Player) bool { return !p.Settled() })
	})
	if err != nil {
		remarks = append(remarks, err.Error()+"; messages that count as lost may be under way")
	}
	c.Log.Add(history.Record{Kind: history.Ended, Note: strings.Join(remarks, "; ")})
	if err := c.Stop(); err != nil {
		return history.Verdict{}, err
	}
	return c.Judge(history.Everyone)
}

// Judge checks what the history has about some players. Call it after Finish.
func (c *Crowd) Judge(about func(who string) bool) (history.Verdict, error) {
	return history.CheckFile(c.file, about)
}

// Stop ends the players, the game server and the history. It may be called again.
func (c *Crowd) Stop() error {
	c.cancel()
	c.running.Wait()
	return c.Log.Close()
}

// Choose returns the items with the wanted names, in that order, or all if none is wanted.
func Choose[T any](all []T, name func(T) string, wanted []string) (list []T, err error) {
	if len(wanted) == 0 {
		return all, nil
	}
	var names []string
	for _, item := range all {
		names = append(names, name(item))
	}
	for _, w := range wanted {
		i := slices.Index(names, w)
		if i < 0 {
			return nil, fmt.Errorf("there is no %q; there are %s", w, strings.Join(names, ", "))
		}
		list = append(list, all[i])
	}
	return list, nil
}

// Random returns a duration, least at the least and below most.
func Random(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Int64N(int64(most-least)))
}
