package gossip

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
)

// Times of settling who bears a name.
const (
	settleInterval = 500 * time.Millisecond
	settleTries    = 6 // 3 s, while a death shows after one
	settleRest     = 30 * time.Second
	settleMembers  = 3 // are told at once
)

// settle gives this node its name back, until ctx ends. When it was killed and
// comes back at another address before the others have noticed, they hold on to the
// address that they know. After the death of that one has shown they would learn of
// this one in pushPullPeriod; this tells them sooner. When the name is really
// borne by two nodes, it gives up for settleRest.
func (g *Gossip) settle(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-g.contested:
		}
		for range settleTries {
			if !sleep(ctx, settleInterval) {
				return
			}
			g.tellAgain()
		}
		if !sleep(ctx, settleRest) {
			return
		}
	}
}

// tellAgain compares all we know with a few members. What fails is tried again.
func (g *Gossip) tellAgain() {
	var others []cluster.Member
	for m := range g.Roster().All() {
		if m.Name != g.cfg.Self.Name {
			others = append(others, m)
		}
	}
	rand.Shuffle(len(others), func(i, j int) { others[i], others[j] = others[j], others[i] })
	for _, m := range others[:min(settleMembers, len(others))] {
		if err := g.joinOne(m.Gossip); err != nil {
			g.log.Debug("gossip", "event", err.Error())
		}
	}
}

// sleep waits and reports whether ctx goes on.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
