//go:build linux

package play

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/internal/proc"
	"github.com/dnprelay/dnprelay/testbed/history"
	"github.com/dnprelay/dnprelay/testbed/rig"
)

const (
	settleMost = 30 * time.Second // for messages under way at the end
	settleRest = 3 * time.Second  // for arrivals behind the last acknowledgement
)

// A Crowd is a game server and players that share a history.
type Crowd struct {
	Log     *history.Log
	Players []*Player

	file        string
	game        *Game
	quiet       atomic.Bool
	interrupted atomic.Int64
	cancel      context.CancelFunc
	running     sync.WaitGroup
}

// NewCrowd starts a history. The game server and the players use the returned context,
// which ends with Stop.
func NewCrowd(ctx context.Context, file string) (context.Context, *Crowd, error) {
	log, err := history.Create(file)
	if err != nil {
		return ctx, nil, err
	}
	c := &Crowd{Log: log, file: file}
	ctx, c.cancel = context.WithCancel(ctx)
	return ctx, c, nil
}

// Note adds a record to the history.
func (c *Crowd) Note(r history.Record) {
	if r.Kind == history.Closed {
		c.interrupted.Add(1)
	}
	c.Log.Add(r)
}

// Go runs a function until Stop.
func (c *Crowd) Go(f func()) { c.running.Go(f) }

// StartGame connects the game server, with the history of the crowd.
func (c *Crowd) StartGame(ctx context.Context, cfg GameConfig) (err error) {
	cfg.Quiet, cfg.Note = &c.quiet, c.Note
	if c.game, err = NewGame(ctx, cfg); err != nil {
		return err
	}
	c.Go(func() { c.game.Run(ctx) })
	return nil
}

// Join lets a player play.
func (c *Crowd) Join(ctx context.Context, p *Player) {
	p.Quiet, p.Note = &c.quiet, c.Note
	c.Players = append(c.Players, p)
	c.Go(func() { p.Run(ctx) })
}

// Interrupted returns how many connections of players ended.
func (c *Crowd) Interrupted() int { return int(c.interrupted.Load()) }

// Finish stops all messages, waits until those under way are acknowledged and have
// arrived, ends the game and checks the history. The check counts missing messages as
// lost.
func (c *Crowd) Finish(ctx context.Context) (history.Verdict, error) {
	c.quiet.Store(true)
	_ = proc.Await(ctx, settleMost, "all messages are acknowledged", func() bool {
		return c.game.Settled() && !slices.ContainsFunc(c.Players, func(p *Player) bool { return !p.Settled() })
	})
	rig.Sleep(ctx, settleRest)
	if err := errors.Join(ctx.Err(), c.Stop()); err != nil {
		return history.Verdict{}, err
	}
	return history.CheckFile(c.file)
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
