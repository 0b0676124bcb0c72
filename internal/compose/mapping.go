package compose

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/telemetry"
	"github.com/dnprelay/dnprelay/subject"
)

// Times of the probe with which a node checks that its publishes reach a relay.
const (
	mappingPatience = 10 * time.Second // without an answer before it is a problem
	mappingPause    = time.Second      // between two probes
	mappingAgain    = 5 * time.Second  // between two checks while there is a problem
)

// A Mapping knows whether publishes reach relays. The zero value assumes that they do.
type Mapping struct{ wrong atomic.Bool }

// Note adds to the health of a node that publishes go wrong.
func (m *Mapping) Note(h telemetry.Health) telemetry.Health {
	if m.wrong.Load() {
		h.Missing = append(h.Missing, "mapping")
	}
	return h
}

// Watch checks, at the start and after each reconnect, whether the NATS server of the
// connection brings publishes to relays, and to the right ones. It logs one line for each
// new problem, and one when there is none again. It returns when ctx ends.
func (m *Mapping) Watch(ctx context.Context, b bus.Bus, subjects subject.Names, node string, shards int, log *slog.Logger) {
	changed := make(chan struct{}, 1)
	b.OnChange(func(connected bool) {
		if !connected {
			return
		}
		select {
		case changed <- struct{}{}:
		default:
		}
	})
	for logged := ""; ; {
		problem := mappingProblem(ctx, b, subjects, node, shards)
		m.wrong.Store(problem != "")
		var again <-chan time.Time
		switch {
		case ctx.Err() != nil:
			return
		case problem != "":
			again = time.After(mappingAgain)
			if problem != logged {
				log.Error("publishes go wrong: "+problem, "subject", subjects.Publish("*", ""))
			}
		case logged != "":
			log.Info("publishes reach relays again")
		}
		logged = problem
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-again:
		}
	}
}

// mappingProblem sends probes until a relay answers or mappingPatience ends, and returns
// the problem; empty if there is none.
func mappingProblem(ctx context.Context, b bus.Bus, subjects subject.Names, node string, shards int) string {
	for end := time.Now().Add(mappingPatience); ; {
		answer, err := ask(ctx, b, subjects.Probe(node))
		if err == nil {
			return probeProblem(answer, node, shards)
		}
		if ctx.Err() != nil || errors.Is(err, bus.ErrDisconnected) || errors.Is(err, bus.ErrClosed) {
			return "" // Watch checks again after the reconnect
		}
		if time.Now().After(end) {
			return "no relay answers; either this NATS server has no subject mappings (INTERFACES.md), or no relay holds the shard"
		}
		select {
		case <-ctx.Done():
			return ""
		case <-time.After(mappingPause):
		}
	}
}

// probeProblem compares the answer of the holder with what this node expects.
func probeProblem(answer []byte, node string, shards int) string {
	var a struct{ Shard, Shards int }
	if json.Unmarshal(answer, &a) != nil {
		return "the answer to a probe is " + string(answer)
	}
	switch {
	case a.Shards != shards:
		return "the relays have another number of shards than --shards of this node"
	case a.Shard != cluster.Shard(subject.ProbeSpace(node), shards):
		return "the subject mappings of this NATS server have another number of shards than --shards"
	}
	return ""
}

func ask(ctx context.Context, b bus.Bus, subject string) ([]byte, error) {
	type result struct {
		data []byte
		err  error
	}
	got := make(chan result, 1)
	b.Request(bus.Msg{Subject: subject}, mappingPause, func(m bus.Msg, err error) { got <- result{m.Data, err} })
	select {
	case r := <-got:
		return r.data, r.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
