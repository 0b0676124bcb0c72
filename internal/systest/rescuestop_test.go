package systest

import (
	"context"
	"fmt"
	"log/slog"
	"syscall"
	"testing"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/cluster/redisaffinity"
	verdict "github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/sessionlog"
	"github.com/dnprelay/dnprelay/sessionlog/natsfrom"
	"github.com/dnprelay/dnprelay/sessionlog/natslog"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// signal sends a signal to a process, as SIGSTOP.
func (p *process) signal(s syscall.Signal) {
	p.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.Fatal(err)
	}
}

// TestRescueStop stops the edge of a client, which another one takes over, and lets it go on.
// It finds datagrams of the client that came to it meanwhile, and nothing is accepted from
// it: not by the log, whose newest write and only later epoch are the other edge's, nor by
// the stream for game servers or Redis. What TestWoken counts datagram by datagram is only
// logged here, since a process can be stopped in the middle of sending.
func TestRescueStop(t *testing.T) {
	r := newRescue(t, "--workers", "1") // a session does not move within its edge, which is an epoch more
	r.talk(20)
	r.edges[0].signal(syscall.SIGSTOP)
	const unheard = 5
	for range unheard { // the first edge gets them, and only then the second one
		r.say()
	}
	seen := r.swivel.fromClient.Load()
	eventually(t, "the client says it to the edge that is stopped", func() bool { return r.swivel.fromClient.Load() >= seen+unheard })
	r.route(1)
	r.hear(unheard)
	r.talk(20)
	before := r.swivel.fromEdge(r.addrs[0])
	r.edges[0].signal(syscall.SIGCONT)
	r.shows(0, `dnp_session_lost_total`, 1)
	r.shows(0, `dnp_session_durable`, 0)
	r.talk(20)

	if r.metric(0, `dnp_session_adopted_total`) > 0 {
		t.Skip("the machine is so slow that the edge took the other one for dead, and adopted the session as it may")
	}
	log, redis := r.owners(t.Context())
	for where, s := range map[string]cluster.Served{"the log": log, "Redis": redis} {
		if s.Node != "e2" || s.Epoch != 2 {
			t.Errorf("%s says that the session is %s's in epoch %d, want e2's in 2", where, s.Node, s.Epoch)
		}
	}
	r.shows(1, `dnp_session_lost_total`, 0)
	if n := streamed(t, r.nc); n != r.said {
		t.Errorf("the stream has %d messages, want the %d that the client said", n, r.said)
	}
	t.Logf("the edge that went on sent %d datagrams to the client", r.swivel.fromEdge(r.addrs[0])-before)
}

// owners returns whose the session is as its log says, and as Redis says.
func (r *rescue) owners(ctx context.Context) (log, redis cluster.Served) {
	r.Helper()
	ctx, stop := context.WithCancel(ctx)
	conn, err := nats.Connect(r.nc.ConnectedUrl(), nats.ReconnectBufSize(-1))
	if err != nil {
		r.Fatal(err)
	}
	defer conn.Close()
	l, err := natslog.Open(ctx, natslog.Config{Conn: conn, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		r.Fatal(err)
	}
	a, err := redisaffinity.Open(redisaffinity.Config{URL: r.redis, Node: "observer", Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		r.Fatal(err)
	}
	ended := make(chan struct{}, 2)
	go func() { l.Run(ctx); ended <- struct{}{} }()
	go func() { a.Run(ctx); ended <- struct{}{} }()
	defer func() { stop(); <-ended; <-ended }()
	name := sessionlog.Key(l.Secret(), r.swivel.behind(), r.addrs[0].Port())
	eventually(r.T, "the log is read", func() bool {
		answer := make(chan sessionlog.Answer, 1)
		l.Read(name, func(a sessionlog.Answer) { answer <- a })
		log, err = owner(<-answer)
		return err == nil
	})
	eventually(r.T, "Redis is asked", func() bool {
		answer := make(chan error, 1)
		a.Find(name, func(s cluster.Served, err error) { redis = s; answer <- err })
		return <-answer == nil
	})
	return log, redis
}

// owner returns who wrote the newest entry of a log.
func owner(a sessionlog.Answer) (s cluster.Served, err error) {
	if a.Verdict != verdict.OK || len(a.Entries) == 0 {
		return s, fmt.Errorf("%v, %d entries", a.Verdict, len(a.Entries))
	}
	for _, e := range a.Entries {
		k, err := sessionlog.ParseBlock(e.Data)
		if err != nil {
			return s, err
		}
		if k.Ckpt != nil {
			s.Node = k.Ckpt.Node
		}
		if k.Adopt != nil {
			s.Node = *k.Adopt
		}
		s.Epoch = k.Epoch
	}
	return s, nil
}

// streamed returns how many messages of clients the stream for game servers has.
func streamed(t *testing.T, nc *nats.Conn) int {
	t.Helper()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	s, err := js.Stream(ctx, natsfrom.StreamName)
	if err != nil {
		t.Fatal(err)
	}
	return int(s.CachedInfo().State.Msgs)
}
