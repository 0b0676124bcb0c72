package systest

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// holderPlan has no faults but those of its test.
var holderPlan = takeoverPlan{name: "lost node", holders: 2}

// loseNode kills the edge of a client and the relay that holds its space in one moment, as the loss of
// their node does. The other edges lose the bus for a while, if reconnect is not zero, because the
// NATS server that they were connected to was on that node, too.
func (w *takeoverWorld) loseNode(p *takeoverPlayer, reconnect time.Duration) {
	first := p.owner()
	w.ring.holder("s").kill()
	w.net.Schedule(detection, w.ring.tell)
	first.ends()
	w.net.Schedule(8*time.Second, first.boot)
	if reconnect == 0 {
		return
	}
	for _, e := range w.edges {
		if e.alive {
			e.bus.SetConnected(false)
			w.net.Schedule(reconnect, func() { e.bus.SetConnected(true) })
		}
	}
}

// playWithoutHolder plays until some time after the loss of a node, and wants no client to notice it.
func playWithoutHolder(t *testing.T, w *takeoverWorld, reconnect time.Duration) {
	t.Helper()
	for _, p := range w.players {
		p.begin()
	}
	w.net.Every(100*time.Millisecond, func() bool {
		w.value++
		w.fire("s", fmt.Sprintf(`{"op":"set","key":"tower","values":{"n":%d}}`, w.value))
		return !w.healed
	})
	w.net.Run(12 * time.Second)
	w.loseNode(w.players[0], reconnect)
	w.net.Run(12 * time.Second)
	w.heal()
	w.net.Run(takeoverHeal)
	w.final()
	for _, e := range w.errors {
		t.Error(e)
	}
}

// TestTakeoverNodeLost loses a node while the replicas of the other edges may have missed something: these edges
// serve the clients with what they have until another relay holds the space.
func TestTakeoverNodeLost(t *testing.T) {
	for seed := range uint64(4) {
		playWithoutHolder(t, newTakeoverWorldOf(t, seed, holderPlan), 300*time.Millisecond)
	}
}

// TestTakeoverNodeOfSpaceLost loses a node whose edge has all clients of the space. The other edges have its
// states nevertheless.
func TestTakeoverNodeOfSpaceLost(t *testing.T) {
	played := 0
	for seed := uint64(0); played < 2; seed++ {
		w := newTakeoverWorldOf(t, seed, holderPlan)
		owner := w.players[0].owner()
		if slices.ContainsFunc(w.players, func(p *takeoverPlayer) bool { return p.owner() != owner }) {
			continue
		}
		played++
		playWithoutHolder(t, w, 0)
	}
}
