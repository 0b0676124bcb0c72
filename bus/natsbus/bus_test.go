package natsbus

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/natsembed"
	"github.com/dnprelay/dnprelay/internal/natstest"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

const patience = 10 * time.Second

// shards is the number of shards to which the servers map publishes.
const shards = 64

func TestMain(m *testing.M) { natstest.VerifyNoLeaks(m) }

func startServer(t *testing.T, listen string) *natsembed.Server {
	t.Helper()
	s, err := natsembed.Start(natsembed.Config{Listen: listen, Mappings: subject.Names{}.Mappings(shards)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Shutdown)
	return s
}

func connect(t *testing.T, cfg Config) *Bus {
	t.Helper()
	b, err := Connect(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.Close)
	return b
}

func flush(t *testing.T, b *Bus) {
	t.Helper()
	if err := b.Flush(patience); err != nil {
		t.Fatal(err)
	}
}

func receive[T any](t *testing.T, c <-chan T, why string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("nothing came: %s", why)
		panic("unreachable")
	}
}

// The shard hash of package cluster and that of the server must be equal.
func TestShardIsThatOfTheServer(t *testing.T) {
	b := connect(t, Config{InProcess: startServer(t, "")})
	var subjects subject.Names
	got := make(chan subject.Address, 4096)
	_, err := b.Subscribe("dnp.v1.shard.>", func(m bus.Msg) {
		a, ok := subjects.ParsePublish(m.Subject)
		if !ok {
			t.Errorf("subject %s", m.Subject)
		}
		got <- a
	})
	if err != nil {
		t.Fatal(err)
	}
	const letters = "ABCXYZabcxyz0189_-"
	rnd := rand.New(rand.NewPCG(1, 2))
	for i := range 3000 {
		name := make([]byte, 1+rnd.IntN(64))
		for j := range name {
			name[j] = letters[rnd.IntN(len(letters))]
		}
		key := []string{"", "k", "a.b.c.d.e.f.g.h"}[i%3]
		if err := b.Publish(bus.Msg{Subject: subjects.Publish(string(name), key)}); err != nil {
			t.Fatal(err)
		}
		want := subject.Address{Shard: cluster.Shard(string(name), shards), Space: string(name), Key: key}
		if a := receive(t, got, "the mapped publish"); a != want {
			t.Fatalf("the server made %+v, want %+v", a, want)
		}
	}
}

func TestReconnect(t *testing.T) {
	s, err := natsembed.Start(natsembed.Config{Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	listen := strings.TrimPrefix(s.URL(), "nats://")
	b := connect(t, Config{URL: s.URL()})
	changes := make(chan bool, 16)
	b.OnChange(func(connected bool) { changes <- connected })
	got := make(chan string, 16)
	if _, err := b.Subscribe("x", func(m bus.Msg) { got <- string(m.Data) }); err != nil {
		t.Fatal(err)
	}
	flush(t, b)

	s.Shutdown()
	if receive(t, changes, "the connection broke") || b.Connected() {
		t.Fatal("still connected without a server")
	}
	if err := b.Publish(bus.Msg{Subject: "x", Data: []byte("lost")}); !errors.Is(err, bus.ErrDisconnected) {
		t.Errorf("publish without a server: %v", err)
	}
	asked := make(chan error, 1)
	b.Request(bus.Msg{Subject: "x"}, time.Hour, func(_ bus.Msg, err error) { asked <- err })
	if err := receive(t, asked, "a request without a server fails at once"); !errors.Is(err, bus.ErrDisconnected) {
		t.Errorf("request without a server: %v", err)
	}
	late := make(chan string, 16)
	if _, err := b.Subscribe("late", func(m bus.Msg) { late <- string(m.Data) }); err != nil {
		t.Errorf("subscribe without a server: %v", err)
	}

	startServer(t, listen)
	if !receive(t, changes, "the connection came back") || !b.Connected() {
		t.Fatal("not connected to the new server")
	}
	flush(t, b)
	for _, subject := range []string{"x", "late"} {
		if err := b.Publish(bus.Msg{Subject: subject, Data: []byte("after")}); err != nil {
			t.Fatal(err)
		}
	}
	if m := receive(t, got, "subscriptions survive"); m != "after" {
		t.Errorf("got %q, but a dropped message must not arrive later", m)
	}
	if m := receive(t, late, "a subscription made without a server counts as well"); m != "after" {
		t.Errorf("got %q", m)
	}
	if st := b.Stats(); st.Reconnects != 1 || st.DroppedDisconnected != 2 {
		t.Errorf("stats %+v", st)
	}
}

func TestSlowHandlerIsCounted(t *testing.T) {
	srv := startServer(t, "")
	reported := make(chan error, 16)
	slow := connect(t, Config{InProcess: srv, PendingMessages: 10, OnError: func(err error) { reported <- err }})
	fast := connect(t, Config{InProcess: srv})
	block, entered := make(chan struct{}), make(chan struct{}, 1000)
	stop, err := slow.Subscribe("x", func(bus.Msg) {
		entered <- struct{}{}
		<-block
	})
	if err != nil {
		t.Fatal(err)
	}
	flush(t, slow)
	for range 100 {
		if err := fast.Publish(bus.Msg{Subject: "x"}); err != nil {
			t.Fatal(err)
		}
	}
	flush(t, fast)
	flush(t, slow) // the server sends all messages before it answers this
	if err := receive(t, reported, "the first drop"); !errors.Is(err, nats.ErrSlowConsumer) || !strings.Contains(err.Error(), "x") {
		t.Errorf("reported %v", err)
	}
	receive(t, entered, "the handler runs")
	if st := slow.Stats(); st.SlowConsumers != 1 || st.Missed < 80 || st.Missed > 95 {
		t.Errorf("stats %+v, want about 89 missed of 100", st)
	}
	missed := slow.Stats().Missed
	close(block)
	stop()
	flush(t, slow)
	if st := slow.Stats(); st.Missed != missed {
		t.Errorf("after unsubscribe %d are missed, were %d", st.Missed, missed)
	}
}

// TestMayAnswer checks that a handler cannot answer where the node's rights would serve the sender.
func TestMayAnswer(t *testing.T) {
	srv := startServer(t, "")
	b := connect(t, Config{InProcess: srv, MayAnswer: subject.Names{}.MayAnswer})
	got := make(chan string, 4)
	if _, err := b.Subscribe("x", func(m bus.Msg) { got <- m.Reply }); err != nil {
		t.Fatal(err)
	}
	flush(t, b)
	sender := connect(t, Config{InProcess: srv})
	for reply, want := range map[string]string{"": "", "_INBOX.a": "_INBOX.a", "dnp.v1.store.3.own": "", "$JS.API.INFO": ""} {
		if err := sender.Publish(bus.Msg{Subject: "x", Reply: reply}); err != nil {
			t.Fatal(err)
		}
		if r := receive(t, got, "the message itself arrives"); r != want {
			t.Errorf("a message that wants its answer on %q is answered on %q, want %q", reply, r, want)
		}
	}
	if st := b.Stats(); st.Errors != 2 {
		t.Errorf("%d errors are counted, want 2", st.Errors)
	}
}

// TestConsumed checks that handlers get no message that a consumer of JetStream delivers. Servers take such messages
// from no client; TestConsumersDeliverAnywhere of internal/systest has a real consumer.
func TestConsumed(t *testing.T) {
	b := connect(t, Config{InProcess: startServer(t, "")})
	var got []string
	s := &subscription{bus: b, handle: func(m bus.Msg) { got = append(got, m.Reply) }}
	for _, reply := range []string{"$JS.ACK.DNP_FROM.x.1.1.1.1.0", "", "$JS.ACK.domain.hash.DNP_FROM.x.1.1.1.1.0.x", "_INBOX.x"} {
		s.received(&nats.Msg{Subject: "dnp.v1.from.demo.c", Reply: reply, Data: []byte("forged")})
	}
	if st := b.Stats(); !slices.Equal(got, []string{"", "_INBOX.x"}) || st.Errors != 2 {
		t.Errorf("handlers get messages with the replies %q, %d errors are counted; want those from no consumer, and 2", got, st.Errors)
	}
}

func TestOutgoingQueueIsBounded(t *testing.T) {
	b := connect(t, Config{InProcess: startServer(t, ""), OutgoingBytes: 2000})
	hold, holding := make(chan struct{}), make(chan struct{})
	if err := b.out.push(op{do: func() { close(holding); <-hold }}); err != nil { // a server that does not read
		t.Fatal(err)
	}
	receive(t, holding, "the sender waits")
	sent := 0
	for ; ; sent++ {
		err := b.Publish(bus.Msg{Subject: "x", Data: make([]byte, 400)})
		if err == nil {
			continue
		}
		if !errors.Is(err, bus.ErrBusy) {
			t.Errorf("got %v, want ErrBusBusy", err)
		}
		break
	}
	if sent != 3 {
		t.Errorf("%d messages of 400 B went into 2,000 B", sent)
	}
	close(hold)
	flush(t, b)
	if err := b.Publish(bus.Msg{Subject: "x", Data: make([]byte, 4000)}); err != nil {
		t.Errorf("an empty queue must accept any message: %v", err)
	}
	if st := b.Stats(); st.DroppedBusy != 1 || st.Published != 3 {
		t.Errorf("stats %+v", st)
	}
}

// TestPeerInbox checks that the answers of peers come to their own inbox, and all others to the usual one.
func TestPeerInbox(t *testing.T) {
	b := connect(t, Config{InProcess: startServer(t, ""), InboxPrefix: "_INBOX.edge", PeerInbox: "_INBOX.peer"})
	if _, err := b.Subscribe("question", func(m bus.Msg) { _ = b.Publish(bus.Msg{Subject: m.Reply, Data: []byte(m.Reply)}) }); err != nil {
		t.Fatal(err)
	}
	flush(t, b)
	for reply, want := range map[string]string{"": "_INBOX.edge.", "_INBOX.peer": "_INBOX.peer.", "_INBOX.other": "_INBOX.edge."} {
		got := make(chan string, 1)
		b.Request(bus.Msg{Subject: "question", Reply: reply}, patience, func(m bus.Msg, err error) { got <- fmt.Sprint(string(m.Data), err) })
		if a := receive(t, got, "the answer"); !strings.HasPrefix(a, want) || !strings.HasSuffix(a, "<nil>") {
			t.Errorf("a request with the reply %q is answered %q, want below %s", reply, a, want)
		}
	}
}

// TestForgedAnswers: who may listen to the answers of others of its role, and send to their inboxes, does
// not know where the next answer is awaited.
func TestForgedAnswers(t *testing.T) {
	srv := startServer(t, "")
	b, thief := connect(t, Config{InProcess: srv, InboxPrefix: "_INBOX.role"}), connect(t, Config{InProcess: srv})
	asked, heard, got := make(chan string, 8), make(chan string, 200), make(chan string, 8)
	if _, err := b.Subscribe("question", func(m bus.Msg) { asked <- m.Reply }); err != nil {
		t.Fatal(err)
	}
	if _, err := thief.Subscribe("_INBOX.role.>", func(m bus.Msg) { heard <- m.Subject }); err != nil {
		t.Fatal(err)
	}
	flush(t, b)
	flush(t, thief)
	answer := func() {
		if err := b.Publish(bus.Msg{Subject: receive(t, asked, "the question"), Data: []byte("true")}); err != nil {
			t.Fatal(err)
		}
	}
	answered := func(m bus.Msg, err error) { got <- fmt.Sprint(string(m.Data), " ", err) }
	b.Request(bus.Msg{Subject: "question"}, patience, answered)
	answer()
	receive(t, got, "the first answer")
	last := receive(t, heard, "the thief hears it")
	dot := strings.LastIndexByte(last, '.') + 1
	token, err := strconv.ParseUint(last[dot:], 36, 64)
	if err != nil {
		t.Fatal(err)
	}
	b.Request(bus.Msg{Subject: "question"}, patience, answered)
	for n := range uint64(100) {
		if err := thief.Publish(bus.Msg{Subject: last[:dot] + strconv.FormatUint(token+n, 36), Data: []byte("forged")}); err != nil {
			t.Fatal(err)
		}
	}
	flush(t, thief)
	answer()
	if r := receive(t, got, "the second answer"); r != "true <nil>" {
		t.Errorf("the answer is %q: the thief knew where it was awaited", r)
	}
}

func TestRequestsAreBounded(t *testing.T) {
	b := connect(t, Config{InProcess: startServer(t, ""), RequestsMax: 2})
	if _, err := b.Subscribe("silent", func(bus.Msg) {}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 8)
	for range 3 {
		b.Request(bus.Msg{Subject: "silent"}, time.Hour, func(_ bus.Msg, err error) { ended <- err })
	}
	if err := receive(t, ended, "the third"); !errors.Is(err, bus.ErrBusy) {
		t.Errorf("the third request ended with %v", err)
	}
	b.Close()
	for range 2 {
		if err := receive(t, ended, "Close ends the waiting requests"); !errors.Is(err, bus.ErrClosed) {
			t.Errorf("ended with %v", err)
		}
	}
	b.Request(bus.Msg{Subject: "silent"}, time.Hour, func(_ bus.Msg, err error) { ended <- err })
	if err := receive(t, ended, "after Close"); !errors.Is(err, bus.ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestClose(t *testing.T) {
	s := startServer(t, "")
	a, err := Connect(Config{InProcess: s})
	if err != nil {
		t.Fatal(err)
	}
	b := connect(t, Config{InProcess: s})
	got := make(chan string, 1)
	if _, err := b.Subscribe("bye", func(m bus.Msg) { got <- string(m.Data) }); err != nil {
		t.Fatal(err)
	}
	flush(t, b)
	running, entered := make(chan struct{}), make(chan struct{})
	var ended atomic.Bool
	if _, err := a.Subscribe("x", func(bus.Msg) { close(entered); <-running; ended.Store(true) }); err != nil {
		t.Fatal(err)
	}
	stop, err := a.Subscribe("y", func(bus.Msg) {})
	if err != nil {
		t.Fatal(err)
	}
	for _, subject := range []string{"x", "bye"} {
		if err := a.Publish(bus.Msg{Subject: subject, Data: []byte("last words")}); err != nil {
			t.Fatal(err)
		}
	}
	receive(t, entered, "the handler runs")
	down := a.nc.StatusChanged(nats.CLOSED)
	closed := make(chan bool, 1)
	go func() { a.Close(); closed <- ended.Load() }()
	if m := receive(t, got, "messages published before Close are sent"); m != "last words" {
		t.Errorf("got %q", m)
	}
	receive(t, down, "the end of the connection")
	close(running)
	if !receive(t, closed, "Close") {
		t.Error("Close returned while a handler ran")
	}
	stop()
	if err := a.Publish(bus.Msg{Subject: "x"}); err == nil {
		t.Error("published after Close")
	}
	if _, err := a.Subscribe("x", func(bus.Msg) {}); !errors.Is(err, bus.ErrClosed) {
		t.Errorf("subscribe after Close: %v", err)
	}
	if err := a.Flush(patience); !errors.Is(err, bus.ErrClosed) {
		t.Errorf("flush after Close: %v", err)
	}
}

func TestConnectErrors(t *testing.T) {
	if _, err := Connect(Config{URL: "nats://127.0.0.1:1"}); err == nil || errors.Is(err, ErrCredentials) || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("no server: %v", err)
	}
	if _, err := Connect(Config{Security: Security{Credentials: "/does/not/exist"}}); !errors.Is(err, ErrCredentials) || !strings.Contains(err.Error(), "/does/not/exist") {
		t.Errorf("credentials that cannot be read: %v", err)
	}
	const password = "p/%2f#,@:$?" // which a URL could have only in escaped form
	srv, err := server.NewServer(&server.Options{Host: "127.0.0.1", Port: server.RANDOM_PORT, Username: "u", Password: password, NoSigs: true})
	if err != nil {
		t.Fatal(err)
	}
	srv.Start()
	defer srv.WaitForShutdown()
	defer srv.Shutdown()
	if !srv.ReadyForConnections(patience) {
		t.Fatal("no server")
	}
	if _, err := Connect(Config{URL: srv.ClientURL()}); !errors.Is(err, ErrCredentials) {
		t.Errorf("wrong credentials: %v", err)
	}
	if bus, err := Connect(Config{URL: srv.ClientURL(), Security: Security{User: "u", Password: password}}); err != nil {
		t.Errorf("user and password: %v", err)
	} else {
		bus.Close()
	}
	log := slog.New(slog.DiscardHandler)
	if _, err := Dial(t.Context(), Config{URL: srv.ClientURL()}, time.Minute, log); !errors.Is(err, ErrCredentials) {
		t.Errorf("wrong credentials, with a minute to wait: %v", err)
	}
	// Without a timeout, Dial also waits for other credentials.
	ctx, cancel := context.WithCancel(t.Context())
	said := make(chan string, 1)
	log = slog.New(slog.NewTextHandler(writer(func(line string) { said <- line; cancel() }), nil))
	if _, err := Dial(ctx, Config{URL: srv.ClientURL()}, 0, log); !errors.Is(err, context.Canceled) {
		t.Errorf("wrong credentials, for ever: %v", err)
	}
	if line := <-said; !strings.Contains(line, ErrCredentials.Error()) {
		t.Errorf("the log says %q", line)
	}
}

// A writer collects the lines of a log.
type writer func(line string)

func (w writer) Write(p []byte) (int, error) { w(string(p)); return len(p), nil }

// TestRedacted: logged addresses must not contain passwords or tokens.
func TestRedacted(t *testing.T) {
	for urls, want := range map[string]string{
		"nats://a:4222":                         "nats://a:4222",
		"nats://u:p@a:4222,tls://token@b,c:422": "nats://***@a:4222,tls://***@b,c:422",
		"u:p@ss@a":                              "***@a",
		"":                                      "",
	} {
		if got := Redacted(urls); got != want {
			t.Errorf("%q is shown as %q, want %q", urls, got, want)
		}
	}
}

// TestRefusals changes the credentials of a client in their file while the server refuses the former ones, which the client reports
// once, and not at each attempt.
func TestRefusals(t *testing.T) {
	file := filepath.Join(t.TempDir(), "login")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for text, ok := range map[string]bool{"a:b": true, "a:b:c\n": true, "": false, "a": false, ":b": false, "a:": false, "a:b\nc:d": false} {
		if write(text); (CheckCredentials(file) == nil) != ok {
			t.Errorf("CheckCredentials of %q: %v", text, CheckCredentials(file))
		}
	}
	write("former:secret\n")
	users := []*server.User{{Username: "former", Password: "secret"}}
	c := natstest.Start(t, 1, func(o *server.Options) { o.Users = users })
	var errs, refusals atomic.Int64
	changes := make(chan bool, 16)
	b, err := Connect(Config{URL: c.URL(), Security: Security{Credentials: file}, OnError: func(err error) {
		errs.Add(1)
		if errors.Is(err, nats.ErrAuthorization) {
			refusals.Add(1)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	b.OnChange(func(connected bool) { changes <- connected })
	users = []*server.User{{Username: "next", Password: "with:colon"}}
	c.Stop(0)
	changed := func(connected bool) {
		t.Helper()
		select {
		case is := <-changes:
			if is != connected {
				t.Fatalf("connected: %v, want %v", is, connected)
			}
		case <-time.After(patience):
			t.Fatalf("connected is not %v within %v", connected, patience)
		}
	}
	changed(false)
	c.Restart(t, 0)
	for end := time.Now().Add(patience); b.Stats().Errors < 3; time.Sleep(time.Millisecond) { // three attempts with the former ones
		if time.Now().After(end) {
			t.Fatal("the server does not refuse the former credentials")
		}
	}
	write("next:with:colon\n")
	changed(true)
	if errs.Load() != 1 || refusals.Load() != 1 {
		t.Errorf("the client reports %d errors, %d of them refusals, want one", errs.Load(), refusals.Load())
	}
}
