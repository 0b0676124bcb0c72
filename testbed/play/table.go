//go:build linux

package play

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/internal/proc"
	"github.com/dnprelay/dnprelay/testbed/history"
)

// Times of a table.
const (
	worldPace  = 20 * time.Millisecond  // between changes of the world, so no shorter silence can be seen
	playerPace = 500 * time.Millisecond // mean time between messages of each client, each way
	startMost  = 60 * time.Second       // until all players are heard
	settleMost = 30 * time.Second       // for messages under way at the end
	settleRest = 3 * time.Second        // for arrivals behind the last acknowledgement
)

// A TableConfig says who plays at a table.
type TableConfig struct {
	Edges   []netip.AddrPort // behind a balancer
	Players int
	Seed    uint64
	Log     *history.Log
	Game    GameConfig // the paces, Quiet and Note are set by Open
}

// A Table is a game with its players behind a balancer on loopback.
type Table struct {
	*Balancer
	cfg         TableConfig
	game        *Game
	players     []*Player
	quiet       atomic.Bool
	interrupted atomic.Int64
	cancel      context.CancelFunc
	running     sync.WaitGroup
}

// Open starts everything. Players play until Close.
func Open(ctx context.Context, cfg TableConfig) (t *Table, err error) {
	t = &Table{cfg: cfg}
	ctx, t.cancel = context.WithCancel(ctx)
	defer func() {
		if err != nil {
			t.Close()
		}
	}()
	note := func(r history.Record) {
		if r.Kind == history.Closed {
			t.interrupted.Add(1)
		}
		cfg.Log.Add(r)
	}
	t.Balancer, err = NewBalancer(BalancerConfig{Listen: netip.MustParseAddrPort("127.0.0.1:0"), Edges: cfg.Edges, Seed: cfg.Seed, Note: note})
	if err != nil {
		return t, err
	}
	cfg.Game.WorldPace, cfg.Game.Pace, cfg.Game.Quiet, cfg.Game.Note = worldPace, playerPace, &t.quiet, note
	if t.game, err = NewGame(ctx, cfg.Game); err != nil {
		return t, err
	}
	t.running.Go(func() { t.game.Run(ctx) })
	kinds := Behaviours()
	for i := range cfg.Players {
		b := kinds[i%len(kinds)]
		p := &Player{
			Name: fmt.Sprint(b.Name, i), Behaviour: b, Server: t.Addr(), Local: netip.MustParseAddrPort("127.0.0.1:0"), Pace: playerPace,
			Rand: rand.New(rand.NewPCG(cfg.Seed, uint64(100+i))), Quiet: &t.quiet, Note: note, Flow: t.Name, Ended: t.Forget,
		}
		t.players = append(t.players, p)
		t.running.Go(func() { p.Run(ctx) })
	}
	return t, nil
}

// Await waits until the game server has heard all players.
func (t *Table) Await(ctx context.Context) error {
	return proc.Await(ctx, startMost, "the game server hears all players", func() bool { return t.game.HeardParties() >= t.cfg.Players })
}

// Interrupted returns how many connections of players ended.
func (t *Table) Interrupted() int { return int(t.interrupted.Load()) }

// Settle stops all messages and waits until those under way are acknowledged and have
// arrived. The check counts the rest as lost.
func (t *Table) Settle(ctx context.Context) {
	t.quiet.Store(true)
	_ = proc.Await(ctx, settleMost, "all messages are acknowledged", func() bool {
		for _, p := range t.players {
			if !p.Settled() {
				return false
			}
		}
		return t.game.Settled()
	})
	proc.Sleep(ctx, settleRest)
}

// Close ends the players and the game.
func (t *Table) Close() {
	t.cancel()
	t.running.Wait()
	if t.Balancer != nil {
		t.Balancer.Close()
	}
}
