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

// How long a node waits for somebody to answer publishes before it says so, and how
// often it looks meanwhile.
const (
	mappingPatience = 10 * time.Second
	mappingPause    = time.Second
)

// mappingAgain is how often a node looks again while publishes go wrong.
const mappingAgain = 5 * time.Second

// A Mapping knows whether publishes reach relays. The zero value believes that they do.
type Mapping struct{ wrong atomic.Bool }

// Note adds to what a node says of itself that publishes go wrong.
func (m *Mapping) Note(h telemetry.Health) telemetry.Health {
	if m.wrong.Load() {
		h.Missing = append(h.Missing, "mapping")
	}
	return h
}

// Watch finds out, at the start and after each reconnect, whether the NATS server that
// the node is connected to brings publishes to relays, and to the right ones, and says so
// in one line if not, and in another when they are right again. It returns when ctx ends.
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
	for said := ""; ; {
		problem := mappingProblem(ctx, b, subjects, node, shards)
		m.wrong.Store(problem != "")
		var again <-chan time.Time
		switch {
		case ctx.Err() != nil:
			return
		case problem != "":
			again = time.After(mappingAgain)
			if problem != said {
				log.Error("publishes go wrong: "+problem, "subject", subjects.Publish("*", ""))
			}
		case said != "":
			log.Info("publishes are right again")
		}
		said = problem
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-again:
		}
	}
}

// mappingProblem asks until somebody answers or patience ends, and returns what is
// wrong.
func mappingProblem(ctx context.Context, b bus.Bus, subjects subject.Names, node string, shards int) string {
	for end := time.Now().Add(mappingPatience); ; {
		answer, err := ask(ctx, b, subjects.Probe(node))
		if err == nil {
			return probeProblem(answer, node, shards)
		}
		if ctx.Err() != nil || errors.Is(err, bus.ErrDisconnected) || errors.Is(err, bus.ErrClosed) {
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
	case a.Shard != cluster.Shard(subject.ProbeSpace(node), shards):
		return "the subject mappings of this NATS server count another number of shards than --shards"
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
