package natslog

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/fence"
	"github.com/dnprelay/dnprelay/internal/jetstream"
	"github.com/dnprelay/dnprelay/internal/natstest"
	"github.com/dnprelay/dnprelay/sessionlog"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// openCopy returns a copy that runs until the test ends, once it has found its streams and its server.
func openCopy(t testing.TB, cfg Config) *Log {
	t.Helper()
	l := startCopy(t, cfg)
	eventually(t, "the copy finds its streams and its server", func() bool { return len(l.Missing()) == 0 && home(l) })
	return l
}

// startCopy returns a copy that runs until the test ends, and may find its streams later.
func startCopy(t testing.TB, cfg Config) *Log {
	t.Helper()
	l := open(t, cfg)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- l.Maintain(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return l
}

// home reports whether a copy is connected to the server of its streams.
func home(l *Log) bool {
	all := l.Servers()
	return len(all) == 1 && serverOf(l) == all[0]
}

// serverOf returns the name of the server to which a copy is connected; empty for none.
func serverOf(l *Log) string {
	if name := l.connection.at.Load(); name != nil {
		return *name
	}
	return ""
}

// eventually waits until ok.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !ok(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("it does not happen that %s", what)
		}
	}
}

// A chain is a log in a copy with its writer.
type chain struct {
	l    *Log
	name string
	seq  uint64
	data []string
}

// write appends one write, and reads the log.
func (c *chain) write() (written, read sessionlog.Answer) {
	data := fmt.Sprint(len(c.data))
	written = ask(func(answer func(sessionlog.Answer)) {
		c.l.Append(sessionlog.Write{Log: c.name, Expect: c.seq, Data: []byte(data), Rollup: len(c.data)%8 == 0}, answer)
	})
	if written.Verdict == fence.OK {
		if c.seq = written.Seq; len(c.data)%8 == 0 {
			c.data = c.data[:0]
			data = "0"
		}
		c.data = append(c.data, data)
	}
	return written, ask(func(answer func(sessionlog.Answer)) { c.l.Read(c.name, answer) })
}

func ask(begin func(answer func(sessionlog.Answer))) sessionlog.Answer {
	done := make(chan sessionlog.Answer, 1)
	begin(func(a sessionlog.Answer) { done <- a })
	return <-done
}

// works wants a write and a read to succeed at once.
func (c *chain) works(t *testing.T, why string) {
	t.Helper()
	before := c.seq
	w, r := c.write()
	if w.Verdict != fence.OK || r.Verdict != fence.OK {
		t.Fatalf("copy %d answers a write that follows %d %v, and a read %v: %s", c.l.cfg.Copy, before, w.Verdict, r.Verdict, why)
	}
	if last := r.Entries[len(r.Entries)-1]; last.Seq != c.seq || len(r.Entries) != len(c.data) {
		t.Fatalf("copy %d has %d writes up to %d, want %d up to %d: %s", c.l.cfg.Copy, len(r.Entries), last.Seq, len(c.data), c.seq, why)
	}
}

// writes wants a write to succeed at once, and returns the verdict of a read, which a server refuses, or on a slow machine does
// not answer in time, while the cluster has no leader.
func (c *chain) writes(t *testing.T, why string) fence.Verdict {
	t.Helper()
	w, r := c.write()
	mayBe := []fence.Verdict{fence.OK, fence.Unreachable, fence.Unknown}
	if w.Verdict != fence.OK || !slices.Contains(mayBe, r.Verdict) {
		t.Fatalf("copy %d answers a write %v, and a read %v: %s", c.l.cfg.Copy, w.Verdict, r.Verdict, why)
	}
	return r.Verdict
}

// recovers waits until a write and a read succeed. A write whose answer was lost is found by reading. None that was
// answered may be lost.
func (c *chain) recovers(t *testing.T, why string) {
	t.Helper()
	eventually(t, why, func() bool {
		w, r := c.write()
		if w.Verdict == fence.Stale && r.Verdict == fence.OK {
			if n := len(r.Entries); n == 0 || r.Entries[n-1].Seq < c.seq {
				t.Fatalf("copy %d has %d writes and not the one with the sequence %d, which was answered: %s", c.l.cfg.Copy, n, c.seq, why)
			}
			c.seq, c.data = r.Entries[len(r.Entries)-1].Seq, nil
			for _, e := range r.Entries {
				c.data = append(c.data, string(e.Data))
			}
		}
		return w.Verdict == fence.OK && r.Verdict == fence.OK
	})
}

// copies opens the three copies, each with a log.
func copies(t *testing.T, cfg Config) (all []*chain) {
	for i := range Copies {
		cfg.Copy = i + 1
		all = append(all, &chain{l: openCopy(t, cfg), name: "x"})
	}
	return all
}

// TestServerGone kills each server in turn, and pauses it, while the copies are in use. Only the copy on that server
// notices, but that the others refuse reads while the cluster has no leader. It is as it was when the server is back.
func TestServerGone(t *testing.T) {
	t.Parallel()
	c := natstest.StartProcesses(t, Copies)
	all := copies(t, Config{Conn: c.Connect(t), Shards: 4, Streams: 2})
	for victim, gone := range all {
		for _, kind := range []string{"killed", "paused"} {
			what := fmt.Sprintf("server %d is %s", victim, kind)
			for _, k := range all {
				k.works(t, "before "+what)
			}
			moves := gone.l.connection.moves.Load()
			if kind == "killed" {
				c.Kill(victim)
			} else {
				c.Pause(victim)
			}
			over := make(chan struct{})
			go func() {
				defer close(over)
				for t.Context().Err() == nil && (home(gone.l) || !c.HasLeader()) {
					time.Sleep(10 * time.Millisecond)
				}
			}()
			for end, on := time.Now().Add(patience), true; on; {
				for _, k := range all {
					if k != gone {
						k.writes(t, what)
					}
				}
				select {
				case <-over:
					on = false
				default:
				}
				if time.Now().After(end) {
					t.Fatalf("%s: the copy does not give it up, or the others elect no leader", what)
				}
			}
			if kind == "killed" {
				c.Launch(t, victim)
			} else {
				c.Continue(victim)
			}
			eventually(t, "the copy is back at its server", func() bool { return home(gone.l) })
			gone.recovers(t, "the copy works again")
			if now := gone.l.connection.moves.Load(); now > moves+2 {
				t.Errorf("the copy counts %d moves, had %d", now, moves)
			}
			eventually(t, "the copy misses nothing", func() bool { return len(gone.l.Missing()) == 0 })
			c.AwaitLeader(t)
		}
	}
	for _, k := range all {
		if k.l.counts.forgot.Load() > 0 || k.l.Replaced() > 0 {
			t.Errorf("copy %d counts %d streams that forgot, %d that were made again", k.l.cfg.Copy, k.l.counts.forgot.Load(), k.l.Replaced())
		}
	}
}

// TestNoLeader kills two servers of three. Without a leader of the cluster the third copy goes on taking writes, and refuses
// reads. An edge that starts finds it. With a second server there is a leader again.
func TestNoLeader(t *testing.T) {
	t.Parallel()
	c := natstest.StartProcesses(t, Copies)
	cfg := Config{Conn: c.Connect(t), Shards: 4, Streams: 2}
	all := copies(t, cfg)
	last := all[2]
	last.works(t, "all servers are there")
	c.Kill(0)
	c.Kill(1)
	eventually(t, "the server notices that there is no leader", func() bool { return last.writes(t, "two other servers are killed") == fence.Unreachable })
	last.writes(t, "there is no leader")
	if a := ask(func(answer func(sessionlog.Answer)) { all[1].l.Read("x", answer) }); a.Verdict == fence.OK {
		t.Errorf("copy 2 answers a read %+v, although its server is killed", a)
	}
	cfg.Conn, cfg.Copy = c.Connect(t), 3
	late := openCopy(t, cfg)
	if !bytes.Equal(late.Secret(), all[0].l.Secret()) {
		t.Error("an edge that starts now gives sessions other names")
	}
	c.Launch(t, 0)
	eventually(t, "an edge that started reads what was written", func() bool {
		a := ask(func(answer func(sessionlog.Answer)) { late.Read("x", answer) })
		return a.Verdict == fence.OK && len(a.Entries) == len(last.data)
	})
}

// TestStartWithoutServer starts an edge while the server of a copy is away. The others work at once, and this one
// when its server is back.
func TestStartWithoutServer(t *testing.T) {
	t.Parallel()
	c := natstest.Start(t, Copies)
	cfg := Config{Conn: c.Connect(t), Shards: 4, Streams: 2}
	for _, k := range copies(t, cfg) {
		k.works(t, "all servers are there")
	}
	c.Stop(1)
	cfg.Conn = c.Connect(t)
	var all []*chain
	for i := range Copies {
		cfg.Copy = i + 1
		all = append(all, &chain{l: startCopy(t, cfg), name: "y"})
	}
	for _, i := range []int{0, 2} {
		eventually(t, "a copy whose server is there works", func() bool { return home(all[i].l) && len(all[i].l.Missing()) == 0 })
		all[i].works(t, "its server is there")
	}
	if got := all[1].l.Missing(); len(got) != 2 || got[0] != CopyStreamName(2, 0) {
		t.Errorf("the copy whose server is away misses %q, want its streams", got)
	}
	if w, r := all[1].write(); w.Verdict == fence.OK || r.Verdict == fence.OK {
		t.Errorf("the copy whose server is away answers a write %v, and a read %v", w.Verdict, r.Verdict)
	}
	c.Restart(t, 1)
	eventually(t, "the copy finds its server", func() bool { return home(all[1].l) && len(all[1].l.Missing()) == 0 })
	all[1].recovers(t, "the server is back")
}

// TestServerForgot has a server come back without what it stored. The copy says so once, and takes logs that begin
// anew, but no write that continues a log which it does not have.
func TestServerForgot(t *testing.T) {
	t.Parallel()
	c := natstest.Start(t, Copies)
	var said lines
	cfg := Config{Conn: c.Connect(t), Shards: 4, Streams: 2, Copy: 2, Log: slog.New(slog.NewTextHandler(&said, nil))}
	lost := make(chan bool, 1)
	cfg.Forgot = func(copy int, of func(log string) bool) {
		lost <- copy == 2 && of("x") && of("y") == (sessionlog.Shard("y", 4)%2 == sessionlog.Shard("x", 4)%2)
	}
	k := &chain{l: openCopy(t, cfg), name: "x"}
	for range 20 {
		k.works(t, "the server has not forgotten yet")
	}
	stream := CopyStreamName(2, sessionlog.Shard("x", 4)%2)
	js, err := natsjs.New(cfg.Conn)
	if err != nil {
		t.Fatal(err)
	}
	before := k.l.maintainer.Looks()
	eventually(t, "the copy has looked at each stream", func() bool { return k.l.maintainer.Looks() > before+cfg.Streams })
	c.Stop(1)
	c.Wipe(t, 1)
	c.Restart(t, 1)
	eventually(t, "the copy is back at its server", func() bool { return home(k.l) })
	eventually(t, "the copy notices", func() bool { return k.l.counts.forgot.Load() == 1 })
	if !<-lost {
		t.Error("the copy tells of other logs than those of the stream that forgot")
	}
	if w, r := k.write(); w.Verdict != fence.Stale || r.Verdict != fence.OK || len(r.Entries) != 0 {
		t.Errorf("a write that continues a log which was forgotten is answered %v, and a read %+v", w.Verdict, r)
	}
	*k = chain{l: k.l, name: "x"}
	k.works(t, "the log begins anew")
	before = k.l.maintainer.Looks()
	eventually(t, "the copy has looked at each stream", func() bool { return k.l.maintainer.Looks() > before+cfg.Streams })
	if k.l.counts.forgot.Load() != 1 || k.l.Replaced() != 0 || strings.Count(said.String(), "lacks writes that it had") != 1 {
		t.Errorf("the copy counts %d streams that forgot, %d that were made again, and says %q", k.l.counts.forgot.Load(), k.l.Replaced(), said.String())
	}
	if i, err := js.Stream(t.Context(), stream); err != nil || i.CachedInfo().State.Msgs == 0 {
		t.Errorf("the stream is %v, %v", i, err)
	}
}

// TestCopyIsMadeAgain deletes a stream of a copy.
func TestCopyIsMadeAgain(t *testing.T) {
	t.Parallel()
	c := natstest.Start(t, Copies)
	cfg := Config{Conn: c.Connect(t), Shards: 4, Streams: 1, Copy: 2}
	k := &chain{l: openCopy(t, cfg), name: "x"}
	k.works(t, "the stream is there")
	js, err := natsjs.New(cfg.Conn)
	if err != nil {
		t.Fatal(err)
	}
	natstest.DeleteStream(t, js, CopyStreamName(2, 0))
	_, _ = k.write() // the copy suspects something
	eventually(t, "the stream is made again", func() bool { return k.l.Replaced() == 1 && len(k.l.Missing()) == 0 })
	if w, r := k.write(); w.Verdict != fence.Stale || len(r.Entries) != 0 {
		t.Errorf("a write that continues a log of the former stream is answered %v, and a read %+v", w.Verdict, r)
	}
	former := k.seq
	*k = chain{l: k.l, name: "x"}
	if k.works(t, "the log begins anew"); k.seq <= former {
		t.Errorf("the sequences of the new stream begin at %d, the former one came to %d", k.seq, former)
	}
	if !home(k.l) || k.l.counts.forgot.Load() > 0 {
		t.Errorf("the copy is at %q and counts %d streams that forgot", serverOf(k.l), k.l.counts.forgot.Load())
	}
}

// TestNoServerHasTag opens a copy that no server holds. The copy says which tag is missing, once.
func TestNoServerHasTag(t *testing.T) {
	t.Parallel()
	c := natstest.Start(t, Copies, func(o *server.Options) { o.Tags.Remove(CopyTag(3)) })
	var said lines
	l := startCopy(t, Config{Conn: c.Connect(t), Shards: 4, Streams: 2, Copy: 3, Log: slog.New(slog.NewTextHandler(&said, nil))})
	looks := l.maintainer.Looks()
	eventually(t, "the copy tries again", func() bool { return l.maintainer.Looks() > looks+2 })
	if got := said.String(); strings.Count(got, "no NATS server has the tag dnprelay-log-3") != 1 {
		t.Errorf("the copy says %q, want the missing tag, once", got)
	}
	if len(l.Missing()) != 2 || len(l.Servers()) != 0 {
		t.Errorf("the copy misses %q and has servers %q", l.Missing(), l.Servers())
	}
	if w, r := (&chain{l: l, name: "x"}).write(); w.Verdict != fence.Unreachable || r.Verdict != fence.Unreachable {
		t.Errorf("a write is answered %v, and a read %v", w.Verdict, r.Verdict)
	}
}

// TestOneSecret opens the copies of several edges at once in a new deployment, and then another one, after DNP_LOG_0
// was deleted. All have one secret.
func TestOneSecret(t *testing.T) {
	t.Parallel()
	c := natstest.Start(t, Copies)
	secrets := make(chan string, 12)
	var starting sync.WaitGroup
	for i := range cap(secrets) {
		cfg := Config{Conn: c.Connect(t), Shards: 4, Copy: i%Copies + 1}
		starting.Go(func() {
			for {
				l, err := Open(t.Context(), cfg)
				if err == nil {
					secrets <- string(l.Secret())
					return
				}
				if t.Context().Err() != nil {
					return
				}
			}
		})
	}
	starting.Wait()
	first := <-secrets
	for range cap(secrets) - 1 {
		if s := <-secrets; s != first || s == "" {
			t.Fatalf("two edges that start at once have the secrets %q and %q", first, s)
		}
	}
	nc := c.Connect(t)
	openCopy(t, Config{Conn: nc, Shards: 4, Copy: 1})
	js, err := natsjs.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	natstest.DeleteStream(t, js, StreamName(0))
	if l := open(t, Config{Conn: nc, Shards: 4, Copy: 2}); string(l.Secret()) != first {
		t.Error("without DNP_LOG_0, an edge gives sessions other names")
	}
}

// TestOtherNumberOfCopies opens a log of one copy as one of three, and the other way round. Both are refused, with the
// number that the streams have and with what to do, and succeed when that was done. An edge that runs meanwhile ends.
func TestOtherNumberOfCopies(t *testing.T) {
	t.Parallel()
	c := natstest.Start(t, Copies)
	nc := c.Connect(t)
	js, err := natsjs.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	one, three := Config{Conn: nc, Shards: 4, Streams: 2}, Config{Conn: nc, Shards: 4, Streams: 2, Copy: 1}
	refused := func(cfg Config, stream, has string) {
		t.Helper()
		_, err := Open(t.Context(), cfg)
		if got := (*CopiesError)(nil); !errors.As(err, &got) || !errors.Is(err, jetstream.ErrDeployment) || got.Stream != stream || got.Has != has || got.Want != cfg.copies() {
			t.Fatalf("with %s copies, opening %d ends with %v", has, cfg.copies(), err)
		}
		for _, text := range []string{has + " cop", "stop all edges", "grep ^DNP_LOG_", "ends all sessions"} {
			if !strings.Contains(err.Error(), text) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %q, want one line with %q", err, text)
			}
		}
	}
	remove := func() { // as the error says
		for name := range js.StreamNames(t.Context()).Name() {
			if strings.HasPrefix(name, "DNP_LOG_") {
				natstest.DeleteStream(t, js, name)
			}
		}
	}
	former := open(t, one)
	refused(three, StreamName(0), "1")
	remove()
	l := open(t, three)
	ended := make(chan error, 1)
	go func() { ended <- former.Maintain(t.Context()) }()
	if err := <-ended; !errors.As(err, new(*CopiesError)) {
		t.Errorf("an edge with one copy that still runs ends with %v", err)
	}
	refused(one, StreamName(0), "3")
	ctx, stop := context.WithCancel(t.Context())
	go func() { ended <- l.Maintain(ctx) }()
	eventually(t, "the copy is made", func() bool { return len(l.Missing()) == 0 })
	stop()
	<-ended
	natstest.DeleteStream(t, js, StreamName(0))
	refused(one, CopyStreamName(1, 0), "3")
	remove()
	open(t, one)
}

// TestCopyElsewhere checks that a copy refuses streams that are no copy: on servers without its tag, or on several.
func TestCopyElsewhere(t *testing.T) {
	t.Parallel()
	cfg := Config{Shards: 4, Streams: 1, Copy: 2}.withDefaults()
	logs := cfg.logs()
	check := func(change func(*natsjs.StreamConfig)) error {
		is := logs.Stream(0, time.Now(), 0)
		is.Placement = &natsjs.Placement{Tags: []string{CopyTag(2)}}
		change(&is)
		return logs.Check(0, is)
	}
	if err := check(func(*natsjs.StreamConfig) {}); err != nil {
		t.Errorf("the stream of a copy is refused: %v", err)
	}
	for what, change := range map[string]func(*natsjs.StreamConfig){
		"three replicas": func(c *natsjs.StreamConfig) { c.Replicas = 3 },
		"no placement":   func(c *natsjs.StreamConfig) { c.Placement = nil },
		"another server": func(c *natsjs.StreamConfig) { c.Placement.Tags[0] = CopyTag(3) },
		"direct get":     func(c *natsjs.StreamConfig) { c.AllowDirect = true },
	} {
		if err := check(change); !errors.Is(err, jetstream.ErrDeployment) || !strings.Contains(err.Error(), "one replica, placed by the tag dnprelay-log-2") {
			t.Errorf("a stream with %s is judged %v", what, err)
		}
	}

	c := natstest.Start(t, Copies)
	cfg.Conn = c.Connect(t)
	l := open(t, cfg)
	js, err := natsjs.New(cfg.Conn)
	if err != nil {
		t.Fatal(err)
	}
	is := logs.Stream(0, time.Now(), 0)
	is.Placement, is.Metadata[metaSecret] = nil, string(l.Secret())
	if _, err := js.CreateStream(t.Context(), is); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := l.Maintain(ctx); !errors.Is(err, jetstream.ErrDeployment) {
		t.Errorf("with a stream that is no copy Maintain ends with %v", err)
	}
}

// TestSeekPause checks how often a copy tries to reach its server.
func TestSeekPause(t *testing.T) {
	for n, want := range map[int]time.Duration{0: seekFirst, 1: 2 * seekFirst, 2: seekLast, 3: seekLast, 1 << 20: seekLast} {
		if got := seekPause(n); got != want {
			t.Errorf("the pause behind round %d is %v, want %v", n, got, want)
		}
	}
}

// TestRefusedConnections counts the attempts of a copy whose servers close each connection at once.
func TestRefusedConnections(t *testing.T) {
	t.Parallel()
	c := natstest.Start(t, Copies)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	var attempts atomic.Int64
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			attempts.Add(1)
			_, _ = conn.Write([]byte(`INFO {"server_name":"n1","max_payload":1048576}` + "\r\nPONG\r\n"))
			conn.Close()
		}
	}()
	nc := c.Connect(t)
	l := newConnection(2, nc, slog.New(slog.DiscardHandler))
	l.options.Url, l.options.Servers = "nats://"+listener.Addr().String(), nil
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	began := time.Now()
	go func() { l.run(ctx); close(done) }()
	eventually(t, "the copy tries several times", func() bool { l.wake.Wake(); return attempts.Load() >= 4 })
	stop()
	<-done
	if took := time.Since(began); took < 3*seekFirst {
		t.Errorf("%d attempts take %v", attempts.Load(), took)
	}
}

// TestCandidates checks which addresses a copy tries, and which first.
func TestCandidates(t *testing.T) {
	c := natstest.Start(t, 1)
	base := c.Connect(t, nats.IgnoreDiscoveredServers())
	l := newConnection(2, base, slog.New(slog.DiscardHandler))
	l.options.Servers = []string{"nats://a", "nats://b", "nats://c", "nats://a"}
	want := func(n int, why string, all ...string) {
		t.Helper()
		if got := l.candidates(n); fmt.Sprint(got) != fmt.Sprint(all) {
			t.Errorf("round %d tries %q, want %q: %s", n, got, all, why)
		}
	}
	want(0, "nothing is known", "nats://a", "nats://b", "nats://c")
	l.setHome("n2")
	l.names["nats://b"], l.names["nats://gone"] = "n2", "n2"
	want(0, "the server was found at b", "nats://b", "nats://a", "nats://c")
	l.current = base
	want(1, "there is a connection to another server", "nats://b")
	want(seekAll, "the server may have moved", "nats://b", "nats://a", "nats://c")
	l.names["nats://b"] = "n3"
	want(1, "the server is not at b any more", "nats://a", "nats://b", "nats://c")
	l.options.Servers = nil
	for i := range 100 {
		l.options.Servers = append(l.options.Servers, fmt.Sprint("nats://", i))
	}
	if n := len(l.candidates(0)); n != urlsMax {
		t.Errorf("a round tries %d addresses, want %d", n, urlsMax)
	}
	if len(l.names) > 0 {
		t.Errorf("the copy remembers %v", l.names)
	}
}

// lines are what a log says, from any goroutine.
type lines struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
