package compose

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/turn"
	"github.com/dnprelay/dnprelay/subject"
)

// Times of the probe with which a node checks that its publishes reach a relay.
const (
	mappingPatience  = 10 * time.Second // without an answer before it is a problem
	mappingReconnect = 30 * time.Second // the same after a reconnect: streams first elect leaders, then relays get their shards again
	mappingPause     = time.Second      // between two probes
	mappingAgain     = 5 * time.Second  // between two checks while there is a problem
)

// watchMapping checks, at the start and after each reconnect, whether the NATS server of the
// connection brings publishes to relays, and to the right ones. It logs one line for each
// new problem, and one when there is none again. It returns when ctx ends.
func (n *node) watchMapping(ctx context.Context) error {
	changed := turn.NewWake()
	n.bus.OnChange(func(connected bool) {
		if connected {
			changed.Wake()
		}
	})
	patience := mappingPatience
	for logged := ""; ; {
		problem := mappingProblem(ctx, n.bus, n.subjects, n.shards, patience)
		n.misrouted.Store(problem != "")
		var again <-chan time.Time
		switch {
		case ctx.Err() != nil:
			return nil
		case problem != "":
			again = time.After(mappingAgain)
			if problem != logged {
				n.log.Error("publishes go wrong: "+problem, "subject", n.subjects.Publish("*", ""))
			}
		case logged != "":
			n.log.Info("publishes reach relays again")
		}
		logged = problem
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			patience = mappingReconnect
		case <-again:
			patience = mappingPatience
		}
	}
}

// mappingProblem sends probes until a relay answers or patience ends, and returns the problem; empty if there is none.
func mappingProblem(ctx context.Context, b bus.Bus, subjects subject.Names, shards int, patience time.Duration) string {
	for end := time.Now().Add(patience); ; {
		answer, err := bus.Ask(ctx, b, bus.Msg{Subject: subjects.Probe()}, mappingPause)
		if err == nil {
			return probeProblem(answer.Data, shards)
		}
		if ctx.Err() != nil || errors.Is(err, bus.ErrDisconnected) || errors.Is(err, bus.ErrClosed) {
			return "" // watchMapping checks again after the reconnect
		}
		if time.Now().After(end) {
			return "no relay answers; either this NATS server has no subject mappings (INTERFACES.md), or no relay holds the shard"
		}
		if !turn.Pause(ctx, mappingPause) {
			return ""
		}
	}
}

// probeProblem compares the answer of the holder with what this node expects.
func probeProblem(answer []byte, shards int) string {
	var a struct{ Shard, Shards int }
	if json.Unmarshal(answer, &a) != nil {
		return "the answer to a probe is " + string(answer)
	}
	switch {
	case a.Shards != shards:
		return "the relays have another number of shards than --shards of this node"
	case a.Shard != cluster.Shard(subject.ProbeSpace, shards):
		return "the subject mappings of this NATS server have another number of shards than --shards"
	}
	return ""
}
