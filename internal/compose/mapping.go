package compose

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/replication"
)

// How long a node waits for somebody to answer publishes before it says so, and how
// often it looks meanwhile.
const (
	mappingPatience = 10 * time.Second
	mappingPause    = time.Second
)

// WatchMapping finds out, at the start and after each reconnect, whether the NATS
// server that the node is connected to brings publishes to relays, and to the right
// ones, and says so in one line if not. It returns when ctx ends.
func WatchMapping(ctx context.Context, bus replication.Bus, subjects replication.Subjects, node string, shards int, log *slog.Logger) {
	changed := make(chan struct{}, 1)
	bus.OnChange(func(connected bool) {
		if !connected {
			return
		}
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	for {
		if problem := mappingProblem(ctx, bus, subjects, node, shards); problem != "" && ctx.Err() == nil {
			log.Error("publishes go wrong: "+problem, "subject", subjects.Publish("*", ""))
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		}
	}
}

// mappingProblem asks until somebody answers or patience ends, and returns what is
// wrong.
func mappingProblem(ctx context.Context, bus replication.Bus, subjects replication.Subjects, node string, shards int) string {
	for end := time.Now().Add(mappingPatience); ; {
		answer, err := ask(ctx, bus, subjects.Probe(node))
		if err == nil {
			return probeProblem(answer, node, shards)
		}
		if ctx.Err() != nil || errors.Is(err, replication.ErrDisconnected) || errors.Is(err, replication.ErrBusClosed) {
			return "" // it will be looked at again after the reconnect
		}
		if time.Now().After(end) {
			return "nobody answers; either this NATS server has no subject mappings (INTERFACES.md), or no relay holds the shard"
		}
		select {
		case <-ctx.Done():
			return ""
		case <-time.After(mappingPause):
		}
	}
}

// probeProblem compares a holder's answer with what this node expects.
func probeProblem(answer []byte, node string, shards int) string {
	var a struct{ Shard, Shards int }
	if json.Unmarshal(answer, &a) != nil {
		return "the answer to a probe is " + string(answer)
	}
	switch {
	case a.Shards != shards:
		return "the relays count another number of shards than --shards of this node"
	case a.Shard != cluster.Shard(replication.ProbeSpace(node), shards):
		return "the subject mappings of this NATS server count another number of shards than --shards"
	}
	return ""
}

func ask(ctx context.Context, bus replication.Bus, subject string) ([]byte, error) {
	type result struct {
		data []byte
		err  error
	}
	got := make(chan result, 1)
	bus.Request(replication.Msg{Subject: subject}, mappingPause, func(m replication.Msg, err error) { got <- result{m.Data, err} })
	select {
	case r := <-got:
		return r.data, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
