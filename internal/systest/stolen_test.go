package systest

import (
	"context"
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/dnp/dnptest"
	"github.com/dnprelay/dnprelay/dnp/netstate"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/dnprelay/dnprelay/subject"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A robbed deployment is a real NATS server with the roles of deployments, a relay with all shards,
// and a space with one state; a thief has the user of one role.
type robbed struct {
	*testing.T
	server   *server.Server
	relay    *process
	subjects subject.Names
	thief    *nats.Conn
	game     *nats.Conn
	admin    *nats.Conn
	store    jetstream.JetStream // of the admin
	shard    int                 // of space s
	before   looked
}

// A looked is the states of space s, and the sequences of the lease records.
type looked struct {
	states string
	leases map[int]uint64
}

// changing is the number of the last batch, which checksums change, too, and the epoch, which is that
// of the lease record.
var changing = regexp.MustCompile(`"(seq|epoch)":\d+`)

// serving is what the relay logs about all shards that it serves.
var serving = regexp.MustCompile(`msg="serving shards" node=r1 count=(\d+)`)

// lost is what the relay logs at debug when it loses a shard.
var lost = regexp.MustCompile(`msg="shard lost" shard=(\d+)(.*)`)

func rob(t *testing.T, role string) *robbed {
	r := &robbed{T: t, server: secureServer(t), shard: cluster.Shard("s", 64)}
	r.relay = start(t, "relay", "serve", "--nats-url", as(r.server, "relay"), "--http", "", "--gossip-bind", "127.0.0.1:0", "--node", "r1", "--log-level", "debug")
	r.game = connectAs(t, r.server, "publisher")
	r.thief, r.admin = connectAs(t, r.server, role), connectAs(t, r.server, "admin")
	r.store = jetStream(t, r.admin)
	accepted(t, r.game, r.subjects, []byte(`{"op":"put","key":"k","access":"read-write","values":[{"type":"uint8","value":7}]}`))
	accepted(t, r.game, r.subjects, []byte(`{"op":"put","key":"own","values":[{"type":"uint8","value":7}]}`))
	eventually(t, "the relay serves every shard", func() bool { return r.served() == 64 }) // a record alone may be one that the relay does not know of yet
	r.before = r.look()
	return r
}

// served returns how many shards the relay serves, as it logs once that has come to rest.
func (r *robbed) served() (n int) {
	if all := serving.FindAllStringSubmatch(r.relay.output.String(), -1); len(all) > 0 {
		n, _ = strconv.Atoi(all[len(all)-1][1]) // digits
	}
	return n
}

// leases returns the sequence of the lease record of each shard that has one.
func (r *robbed) leases() map[int]uint64 {
	r.Helper()
	all := map[int]uint64{}
	for g := range 4 {
		s, err := r.store.Stream(r.Context(), fmt.Sprint("DNP_STORE_", g))
		if err != nil {
			r.Fatalf("stream %d: %v", g, err)
		}
		for n := g; n < 64; n += 4 {
			if m, err := s.GetLastMsgForSubject(r.Context(), r.subjects.StoreOwn(n)); err == nil {
				all[n] = m.Sequence
			}
		}
	}
	return all
}

func (r *robbed) look() (l looked) {
	r.Helper()
	eventually(r.T, "the relay answers", func() bool {
		m, err := r.game.Request(r.subjects.Get("s", ""), nil, time.Second)
		if err == nil {
			l = looked{states: string(changing.ReplaceAll(m.Data, nil)), leases: r.leases()}
		}
		return err == nil
	})
	return l
}

// unharmed wants every value as it was, and every shard held in the same epoch. A machine may be so
// slow that the relay hears nothing of the store, or its worker does nothing, for too long; then it
// gives a shard up by itself.
func (r *robbed) unharmed() {
	r.Helper()
	got := r.look()
	if got.states != r.before.states {
		r.Errorf("the thief changed the states: they are\n%s, were\n%s", got.states, r.before.states)
	}
	slow := map[int]bool{}
	for _, m := range lost.FindAllStringSubmatch(r.relay.output.String(), -1) {
		n, _ := strconv.Atoi(m[1])
		if slow[n] = strings.Contains(m[2], "store silent") || strings.Contains(m[2], "worker hangs"); !slow[n] {
			r.Errorf("the relay lost a shard: %s", m[0])
		}
	}
	for n, seq := range r.before.leases {
		if got.leases[n] != seq && !slow[n] {
			r.Errorf("the thief changed the lease of shard %d: it is %d, was %d", n, got.leases[n], seq)
		}
	}
}

// refused tries subjects that the role must not publish.
func (r *robbed) refused(data string, subjects ...string) {
	r.Helper()
	for _, s := range subjects {
		if allowed(r.T, r.thief, func() error { return r.thief.Publish(s, []byte(data)) }) {
			r.Errorf("the thief may publish on %s", s)
		}
	}
}

// deaf tries subjects to which the role must not listen.
func (r *robbed) deaf(subjects ...string) {
	r.Helper()
	for _, s := range subjects {
		if allowed(r.T, r.thief, func() error { _, err := r.thief.SubscribeSync(s); return err }) {
			r.Errorf("the thief may listen to %s", s)
		}
	}
}

// can wants the role to be able to publish, so that SECURITY.md does not promise too much.
func (r *robbed) can(subjects ...string) {
	r.Helper()
	for _, s := range subjects {
		if !allowed(r.T, r.thief, func() error { return r.thief.Publish(s, nil) }) {
			r.Errorf("the thief cannot publish on %s, so SECURITY.md promises too little", s)
		}
	}
}

// misanswered sends a request that names, as the place for its answer, a subject on which only the
// relay may publish. The relay must not publish there in the thief's stead. The thief may listen to inbox.
func (r *robbed) misanswered(to string, data []byte, inbox string) {
	r.Helper()
	places := []string{ // the relay itself publishes on none of them now
		r.subjects.StoreOwn(3), r.subjects.StoreOwn(r.shard), r.subjects.StoreLease(3, "r2"), r.subjects.StoreKeyframe(r.shard, "s", 1),
		r.subjects.Live("quiet"), r.subjects.Head(64), r.subjects.To("s", "c"), r.subjects.Event("quiet"),
	}
	heard, err := r.admin.SubscribeSync(r.subjects.All())
	if err != nil || r.admin.Flush() != nil {
		r.Fatal(err)
	}
	answer, err := r.thief.SubscribeSync(inbox)
	if err != nil {
		r.Fatal(err)
	}
	for _, place := range append(places, inbox) { // the answer to the last one says that the relay has seen all
		if err := r.thief.PublishMsg(&nats.Msg{Subject: to, Reply: place, Data: data}); err != nil {
			r.Fatal(err)
		}
	}
	if _, err := answer.NextMsg(patience); err != nil {
		r.Fatalf("the relay does not answer on %s: %v", inbox, err)
	}
	_ = r.admin.Flush()
	for {
		m, err := heard.NextMsg(time.Millisecond)
		if err != nil {
			return
		}
		for _, place := range places {
			if m.Subject == place {
				r.Errorf("a request on %s makes the relay say %q on %s, where the thief may not", to, m.Data, place)
			}
		}
	}
}

// changes are publishes that change a space.
var changes = []string{
	`{"op":"put","key":"k","values":[{"type":"uint8","value":8}]}`, `{"op":"set","key":"k","values":{"0":8}}`, `{"op":"remove","key":"k"}`,
	`{"op":"clear"}`, `{"op":"kick","client":"c"}`, `{"op":"group","client":"c","join":["red"]}`, `{"op":"audience","key":"k","audience":{"groups":["none"]}}`,
}

// streams are requests that change or end streams.
func streams(names ...string) (all []string) {
	for _, name := range names {
		for _, verb := range []string{"STREAM.UPDATE", "STREAM.DELETE", "STREAM.PURGE", "STREAM.MSG.DELETE", "STREAM.LEADER.STEPDOWN"} {
			all = append(all, "$JS.API."+verb+"."+name)
		}
	}
	return all
}

// secretive tries whatever shows the subjects on which the store's streams listen, or what is published there. The
// relay does not log them either.
func (r *robbed) secretive() {
	r.Helper()
	stream, err := r.store.Stream(r.Context(), "DNP_STORE_0")
	if err != nil {
		r.Fatal(err)
	}
	listens := stream.CachedInfo().Config.Subjects[0]
	secret := strings.TrimSuffix(strings.TrimPrefix(listens, strings.TrimSuffix(r.subjects.StoreAll(0), ">")), ".>")
	if len(secret) < 26 || strings.Contains(r.relay.output.String(), secret) {
		r.Errorf("the stream listens on %q, the relay says\n%s", listens, r.relay.output)
	}
	r.refused(`{}`, "$JS.API.STREAM.INFO.DNP_STORE_0", "$JS.API.STREAM.LIST", "$JS.API.STREAM.NAMES", "$JS.API.INFO", "$JS.API.STREAM.SNAPSHOT.DNP_STORE_0", "$JS.API.STREAM.CREATE.DNP_STORE_0",
		"$JS.API.STREAM.MSG.GET.DNP_STORE_0", "$JS.API.DIRECT.GET.DNP_STORE_0", "$JS.API.DIRECT.GET.DNP_STORE_0."+r.subjects.StoreOwn(0),
		"$JS.API.CONSUMER.CREATE.DNP_STORE_0", "$JS.API.CONSUMER.CREATE.DNP_STORE_0.x", "$JS.API.CONSUMER.LIST.DNP_STORE_0", "$JS.API.CONSUMER.NAMES.DNP_STORE_0", "$JS.API.CONSUMER.INFO.DNP_STORE_0.x",
		"$SYS.REQ.SERVER.PING.JSZ", "$SYS.REQ.SERVER.PING.SUBSZ", r.subjects.StoreInput(r.subjects.StoreOwn(0), secret))
	r.deaf(listens, r.subjects.StoreAllShards(), r.subjects.StoreInput(r.subjects.StoreOwn(0), "*"), "$JS.EVENT.ADVISORY.API", "$JS.EVENT.ADVISORY.STREAM.CREATED.DNP_STORE_0", "$JS.>", "$SYS.>", ">")
}

// TestStolenEdge is a thief with the NATS user of an edge. It cannot publish, announce a relay, or take
// part in the leases of shards, by itself or by way of the relay; it can do what clients may.
func TestStolenEdge(t *testing.T) {
	t.Parallel()
	r := rob(t, "edge")
	s := r.subjects
	for _, op := range changes {
		r.refused(op, s.Publish("s", ""), s.Publish("s", "k"), s.ShardPublish(r.shard, "s", ""), s.ShardPublish(r.shard, "s", "k"), s.ShardPublish(r.shard, "_probe-s", ""))
	}
	r.refused(`{}`, s.Live("s"), s.Head(r.shard), s.StoreOwn(r.shard), s.StoreLease(r.shard%4, "r1"), s.StoreKeyframe(r.shard, "s", 1),
		s.Get("s", ""), s.Who("s"), s.ToAll("s"), s.EventIn("s", "godot4"), subject.Inbox("relay")+".x", subject.Inbox("edge")+".x", "dnp.v1.anything", "$SYS.REQ.SERVER.PING")
	r.refused(`{}`, streams("DNP_STORE_0", "DNP_LOG_0", "DNP_FROM")...)
	r.refused(`{}`, streams("DNP_LOG_C1_0")...)
	r.refused(`{}`, "$JS.API.STREAM.CREATE.DNP_STORE_0", "$JS.API.STREAM.CREATE.X", "$JS.API.STREAM.MSG.GET.DNP_STORE_0", "$JS.API.CONSUMER.CREATE.DNP_LOG_0.x", "$JS.API.CONSUMER.CREATE.DNP_FROM.x",
		"$JS.API.DIRECT.GET.DNP_LOG_C1_0", "$JS.API.DIRECT.GET.DNP_LOG_C1_0."+s.LogCopy(1, 3, "x"))
	r.deaf(s.All(), s.PublishAll(), s.ShardPublishAll(r.shard), s.Write(r.shard), s.StoreAll(r.shard), s.LogAllShards(), s.LogCopies(), s.Event("*"), s.FromAll(), s.Auth(),
		"_INBOX.>", subject.Inbox("relay")+".>", subject.InboxWho+".>")
	r.secretive()
	r.unharmed()

	request, _ := replication.NewReplica("s", ignorant{}).Advance(time.Now())
	write := func(w replication.Write) []byte {
		w.Client, w.Session, w.Space = "c", "x", "s"
		return replication.AppendWrite(nil, &w)
	}
	r.misanswered(s.Repair(r.shard), request, subject.Inbox("edge")+".a")
	r.misanswered(s.Write(r.shard), write(replication.Write{Kind: replication.WriteDrop}), subject.Inbox("edge")+".b")
	r.misanswered(s.Probe(), nil, subject.Inbox("edge")+".c")
	r.unharmed()

	r.can(s.To("s", "c"), s.From("s", "c"), s.Auth(), s.Log(3, "x"), s.LogCopy(1, 3, "x"), s.Edge("e1"), subject.InboxPeer+".x", "_INBOX.x")
	_ = r.thief.Publish(s.Event("s"), []byte(`{"v":1,"type":"joined","space":"s","client":"c","session":"x"}`))
	k, own := r.stateNumbers()
	value := []replication.WriteValue{{Type: 1, Value: []byte{9}}}
	for _, c := range []struct {
		why  string
		w    replication.Write
		want replication.WriteCode
	}{
		{"it puts a client that it announced into groups", replication.Write{Kind: replication.WriteJoin, Join: []string{"red"}}, replication.WriteOK},
		{"it writes what clients may", replication.Write{Kind: replication.WriteValues, State: k, Number: 1, Values: value}, replication.WriteOK},
		{"it does not write what only game servers may", replication.Write{Kind: replication.WriteValues, State: own, Number: 2, Values: value}, replication.WriteRefused},
	} {
		answers, err := r.thief.SubscribeSync(subject.Inbox("edge") + "." + fmt.Sprint(c.w.Number))
		if err != nil {
			t.Fatal(err)
		}
		var got replication.WriteResult
		eventually(t, c.why, func() bool {
			_ = r.thief.PublishMsg(&nats.Msg{Subject: s.Write(r.shard), Reply: answers.Subject, Data: write(c.w)})
			m, err := answers.NextMsg(patience)
			if err == nil {
				got, err = replication.ParseWriteResult(m.Data)
			}
			return err == nil && got.Code != replication.WriteBusy // until the relay has heard that the client joined
		})
		if got.Code != c.want {
			t.Errorf("%s: the relay answers %d, want %d", c.why, got.Code, c.want)
		}
	}
}

// stateNumbers follows space s, as an edge does, and returns the numbers of its states.
func (r *robbed) stateNumbers() (k, own uint64) {
	r.Helper()
	replica := replication.NewReplica("s", ignorant{})
	request, _ := replica.Advance(time.Now())
	sub, err := r.thief.SubscribeSync(subject.Inbox("edge") + ".states")
	if err != nil {
		r.Fatal(err)
	}
	_ = r.thief.PublishMsg(&nats.Msg{Subject: r.subjects.Repair(r.shard), Reply: sub.Subject, Data: request})
	for replica.ByKey("k") == nil || replica.ByKey("own") == nil {
		m, err := sub.NextMsg(patience)
		if err != nil {
			r.Fatal(err)
		}
		replica.ApplyReply(time.Now(), m.Data)
	}
	return replica.ByKey("k").Number, replica.ByKey("own").Number
}

// An ignorant observer of a replica looks at its states later.
type ignorant struct{}

func (ignorant) Added(*replication.State)                  {}
func (ignorant) Changed(*replication.State, netstate.Mask) {}
func (ignorant) Described(*replication.State)              {}
func (ignorant) Removed(*replication.State)                {}
func (ignorant) Groups(string, []string)                   {}
func (ignorant) Interest(string, *replication.Interest)    {}
func (ignorant) Eyes(string)                               {}

// TestStolenRelay is a thief with the NATS user of a relay. It has authority over all spaces, and over
// nothing else: not over sessions, messages of clients and logins.
func TestStolenRelay(t *testing.T) {
	t.Parallel()
	r := rob(t, "relay")
	s := r.subjects
	r.refused(`{}`, s.Publish("s", ""), s.Log(3, "x"), s.From("s", "c"), s.ToAll("s"), s.Auth(), s.Edge("e1"), s.Repair(r.shard), s.Write(r.shard), "dnp.v1.anything")
	r.refused(`{}`, streams("DNP_STORE_0", "DNP_LOG_0", "DNP_FROM")...)
	r.refused(`{}`, "$JS.API.STREAM.CREATE.DNP_LOG_0", "$JS.API.STREAM.MSG.GET.DNP_LOG_0", "$JS.API.STREAM.INFO.DNP_FROM", "$JS.API.CONSUMER.CREATE.DNP_LOG_0.x", "$JS.API.CONSUMER.CREATE.DNP_FROM.x")
	r.deaf(s.All(), s.LogAllShards(), s.FromAll(), s.To("s", "c"), s.ToAll("s"), s.Auth(), s.Edge("e1"), s.Who("s"), "_INBOX.>", subject.Inbox("edge")+".>")
	r.unharmed()
	r.can(s.Live("s"), s.Head(r.shard), s.To("s", "c"), s.StoreLease(r.shard%4, "r1"), s.Event("s"), "_INBOX.x", subject.Inbox("edge")+".x")
}

// TestStolenGameServer is a thief with the NATS user of game servers. It can do what they may in every space, and
// has no part in leases, logs and the traffic between nodes.
func TestStolenGameServer(t *testing.T) {
	t.Parallel()
	r := rob(t, "publisher")
	s := r.subjects
	r.refused(`{}`, s.Live("s"), s.Head(r.shard), s.StoreOwn(r.shard), s.StoreLease(r.shard%4, "r1"), s.StoreKeyframe(r.shard, "s", 1), s.Repair(r.shard), s.Write(r.shard),
		s.Event("s"), s.From("s", "c"), s.Auth(), s.Log(3, "x"), s.Edge("e1"), "_INBOX.x", subject.Inbox("edge")+".x", subject.Inbox("relay")+".x", "dnp.v1.anything")
	r.refused(`{}`, streams("DNP_STORE_0", "DNP_LOG_0", "DNP_FROM")...)
	r.refused(`{}`, "$JS.API.STREAM.CREATE.DNP_FROM", "$JS.API.STREAM.CREATE.X", "$JS.API.STREAM.MSG.GET.DNP_LOG_0", "$JS.API.STREAM.MSG.GET.DNP_STORE_0", "$JS.API.CONSUMER.CREATE.DNP_LOG_0.x")
	r.deaf(s.All(), s.Live("s"), s.Head(r.shard), s.To("s", "c"), s.ShardPublishAll(r.shard), s.StoreAll(r.shard), s.LogAllShards(), s.Edge("e1"),
		subject.Inbox("edge")+".>", subject.Inbox("relay")+".>", subject.InboxWho+".>")
	r.misanswered(s.Get("s", "k"), nil, "_INBOX.a")
	r.misanswered(s.Publish("s", ""), []byte(`{"op":"nonsense"}`), "_INBOX.b")
	r.secretive()
	r.unharmed()
	r.can(s.To("s", "c"), s.ToAll("s"))
	accepted(t, r.thief, s, []byte(`{"op":"clear"}`))
}

// TestStolenObserver is a thief with the NATS user of a dashboard. It can read, and changes nothing, also by
// way of the relay, which would publish its answer wherever the thief says.
func TestStolenObserver(t *testing.T) {
	t.Parallel()
	r := rob(t, "observer")
	s := r.subjects
	for _, op := range changes {
		r.refused(op, s.Publish("s", ""), s.ShardPublish(r.shard, "s", ""))
	}
	r.refused(`{}`, s.Live("s"), s.Head(r.shard), s.StoreOwn(r.shard), s.StoreLease(r.shard%4, "r1"), s.Write(r.shard), s.To("s", "c"), s.ToAll("s"),
		s.Event("s"), s.From("s", "c"), s.Auth(), s.Log(3, "x"), s.Edge("e1"), "_INBOX.x", "$JS.API.INFO", "$JS.API.STREAM.INFO.DNP_FROM", "dnp.v1.anything")
	r.refused(`{}`, streams("DNP_STORE_0", "DNP_LOG_0", "DNP_FROM")...)
	r.deaf(s.All(), s.FromAll(), s.To("s", "c"), s.Auth(), s.ShardPublishAll(r.shard), s.StoreAll(r.shard), s.LogAllShards(), subject.Inbox("edge")+".>", subject.Inbox("relay")+".>", subject.InboxWho+".>")
	r.misanswered(s.Get("s", ""), nil, "_INBOX.a")
	r.misanswered(s.Get("s", "k"), []byte(`{"after":"k"}`), "_INBOX.b")
	request, ok := replication.NewReplica("s", ignorant{}).Advance(time.Now())
	if !ok {
		t.Fatal("a new replica asks for nothing")
	}
	r.misanswered(s.Repair(r.shard), request, "_INBOX.c")
	r.secretive()
	r.unharmed()
	r.can(s.Get("s", ""), s.Who("s"))
}

// TestLoginWithRoles has a client log in at an edge that may not publish. The relay learns its groups all the
// same, and the client sees what they may see.
func TestLoginWithRoles(t *testing.T) {
	t.Parallel()
	r := rob(t, "edge")
	port := freePorts(t, 1)[0]
	e := start(t, "edge", "serve", "--nats-url", as(r.server, "edge"), "--auth", "callout", "--http", "", "--gossip-bind", "127.0.0.1:0", "--listen", "udp://"+port, "--node", "e1")
	e.says("bus reached")
	_, err := r.game.Subscribe(r.subjects.Auth(), func(m *nats.Msg) {
		_ = m.Respond([]byte(`{"client":"c","space":"s","groups":["red"]}`))
	})
	if err != nil {
		t.Fatal(err)
	}
	accepted(t, r.game, r.subjects, []byte(`{"op":"put","key":"flag","message":"F","audience":{"groups":["red"]},"values":[{"type":"uint8","value":7}]}`))
	patient := dnptest.Cpp()
	patient.GiveUp = patience
	player := runClient(t, netip.MustParseAddrPort(port), patient, dnptest.App{})
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	until := func(ok func(c *dnptest.Client) bool) error { return player.Until(ctx, ok) }
	if err := until(func(c *dnptest.Client) bool { return c.Phase() == dnptest.Connected }); err != nil {
		t.Fatalf("the client does not connect: %v", err)
	}
	_ = player.Do(func(now time.Time, c *dnptest.Client) { err = c.Send(now, []byte("who I am")) })
	if err != nil {
		t.Fatal(err)
	}
	if err := until(func(c *dnptest.Client) bool { return string(c.Value("F", 0)) == "\x07" }); err != nil {
		t.Fatalf("the client does not see the state of its group: %v\n%s", err, e.output)
	}
	for _, p := range []*process{r.relay, e} {
		if strings.Contains(strings.ToLower(p.output.String()), "violation") {
			t.Errorf("a role lacks a right:\n%s", p.output)
		}
	}
}

// TestStreamsOfAnotherForm is a thief with the user of an edge that asks JetStream to publish, in its stead, what
// it writes to a log. It cannot, because the streams that edges may make exist.
func TestStreamsOfAnotherForm(t *testing.T) {
	t.Parallel()
	r := rob(t, "edge")
	e := start(t, "edge", "serve", "--nats-url", as(r.server, "edge"), "--session-durability", "log", "--http", "", "--gossip-bind", "127.0.0.1:0", "--listen", "udp://127.0.0.1:0", "--node", "e1")
	e.says("bus reached")
	answers, err := r.thief.SubscribeSync(subject.Inbox("edge") + ".made")
	if err != nil {
		t.Fatal(err)
	}
	streams := map[string]string{"DNP_FROM": r.subjects.FromAll()}
	for n := range 16 {
		streams[fmt.Sprint("DNP_LOG_", n)] = r.subjects.LogAll(n)
	}
	for name, from := range streams {
		body := fmt.Sprintf(`{"name":%q,"subjects":[%q],"republish":{"src":%q,"dest":%q}}`, name, from, from, r.subjects.ShardPublish(r.shard, "s", ""))
		_ = r.thief.PublishMsg(&nats.Msg{Subject: "$JS.API.STREAM.CREATE." + name, Reply: answers.Subject, Data: []byte(body)})
		if m, err := answers.NextMsg(patience); err != nil || !strings.Contains(string(m.Data), `"error"`) {
			t.Fatalf("the thief makes stream %s: %v, %s", name, err, m.Data)
		}
		_ = r.thief.Publish(strings.ReplaceAll(from, "*", "x"), []byte(`{"op":"clear"}`))
	}
	r.unharmed()
}

// renews waits until the holder of the shard has renewed its lease twice more, so that it has acted on what it
// heard before.
func (r *robbed) renews() {
	r.Helper()
	heartbeat := func() (seq uint64) {
		s, err := r.store.Stream(r.Context(), fmt.Sprint("DNP_STORE_", r.shard%4))
		if err != nil {
			r.Fatal(err)
		}
		if m, err := s.GetLastMsgForSubject(r.Context(), r.subjects.StoreLease(r.shard%4, "r1")); err == nil {
			seq = m.Sequence
		}
		return seq
	}
	for range 2 {
		before := heartbeat()
		eventually(r.T, "the lease is renewed", func() bool { return heartbeat() > before })
	}
}

// hears does something that makes JetStream publish on a subject, and waits until it has, if the admin may listen there.
func (r *robbed) hears(subject string, do func()) {
	r.Helper()
	if !strings.HasPrefix(subject, r.subjects.All()[:4]) || strings.ContainsAny(subject, "*>") {
		do()
		return
	}
	heard, err := r.admin.SubscribeSync(subject)
	if err != nil || r.admin.Flush() != nil {
		r.Fatal(err)
	}
	defer func() { _ = heard.Unsubscribe() }()
	eventually(r.T, "JetStream publishes on "+subject, func() bool {
		do() // again after a second: NATS delivers a request at most once
		m, err := heard.NextMsg(time.Second)
		return err == nil && (strings.HasPrefix(m.Reply, "$JS.") || strings.HasPrefix(string(m.Data), `{"type":"io.nats`) || strings.HasPrefix(string(m.Data), `{"stream":`))
	})
}

// places are subjects on which the thief has JetStream publish: those of leases with and without what a secret might
// be, what relays tell each other and edges, and requests to JetStream itself.
func (r *robbed) places() []string {
	s, n := r.subjects, r.shard
	return []string{
		s.StoreOwn(n), s.StoreLease(n%4, "r1"), s.StoreKeyframe(n, "s", 1), s.StoreInput(s.StoreOwn(n), "*"), s.StoreInput(s.StoreOwn(n), ">"), s.StoreInput(s.StoreOwn(n), "x"), s.StoreAll(n),
		s.Head(n), s.Live("s"), s.Relay("r1"), s.Relay("ghost"), s.Event("s"), s.Write(n), s.Repair(n), s.ShardPublish(n, "s", ""),
		fmt.Sprint("$JS.API.STREAM.PURGE.DNP_STORE_", n%4), fmt.Sprint("$JS.API.STREAM.DELETE.DNP_STORE_", n%4),
	}
}

// TestConsumersDeliverAnywhere is a thief with the user of game servers who has a client write messages, and JetStream
// deliver them wherever its consumer says. Relays take none of them for one of a relay or an edge.
func TestConsumersDeliverAnywhere(t *testing.T) {
	t.Parallel()
	r := rob(t, "publisher")
	s, n := r.subjects, r.shard
	if _, err := r.store.CreateStream(t.Context(), jetstream.StreamConfig{Name: "DNP_FROM", Subjects: []string{s.FromAll()}}); err != nil {
		t.Fatal(err)
	}
	edge := connectAs(t, r.server, "edge", nats.CustomInboxPrefix(subject.Inbox("edge")))
	player := *r
	player.thief = edge
	k, _ := player.stateNumbers()
	_ = edge.Publish(s.Event("s"), []byte(`{"v":1,"type":"joined","space":"s","client":"c","session":"x"}`))
	next := r.leases()[n] + 1000
	forged := map[string][]byte{
		s.Head(n):        replication.AppendHead(nil, next, nil),
		s.Relay("ghost"): []byte(`{"ready":true}`),
		s.Write(n): replication.AppendWrite(nil, &replication.Write{
			Client: "c", Session: "x", Space: "s", Kind: replication.WriteValues, State: k, Number: 1, Values: []replication.WriteValue{{Type: 1, Value: []byte{9}}},
		}),
	}
	for i, place := range r.places() {
		from := s.From("s", fmt.Sprint("c", i))
		if place == s.ShardPublish(n, "s", "") {
			continue // a game server may publish there
		}
		if _, err := edge.Request(from, forged[place], patience); err != nil {
			t.Fatalf("the message of a client is not stored: %v", err)
		}
		body := fmt.Sprintf(`{"stream_name":"DNP_FROM","config":{"name":"x%d","deliver_policy":"all","ack_policy":"none","filter_subject":%q}}`, i, from)
		if m, err := r.thief.Request(fmt.Sprint("$JS.API.CONSUMER.CREATE.DNP_FROM.x", i, ".", from), []byte(body), patience); err != nil || strings.Contains(string(m.Data), `"error"`) {
			t.Fatalf("the thief makes no consumer: %v, %s", err, m.Data)
		}
		r.hears(place, func() {
			_ = r.thief.PublishMsg(&nats.Msg{Subject: fmt.Sprint("$JS.API.CONSUMER.MSG.NEXT.DNP_FROM.x", i), Reply: place, Data: []byte("1")})
		})
	}
	r.renews()
	r.unharmed()
}

// TestAnswersOfJetStream is a thief with the user of an edge who has JetStream answer where it may not publish itself. No
// answer is stored as a lease or taken for a message of a relay.
func TestAnswersOfJetStream(t *testing.T) {
	t.Parallel()
	r := rob(t, "edge")
	e := start(t, "edge", "serve", "--nats-url", as(r.server, "edge"), "--session-durability", "log", "--http", "", "--gossip-bind", "127.0.0.1:0", "--listen", "udp://127.0.0.1:0", "--node", "e1")
	e.says("bus reached")
	for _, place := range r.places() {
		for _, request := range []string{"$JS.API.STREAM.INFO.DNP_LOG_0", "$JS.API.STREAM.CREATE.DNP_FROM", "$JS.API.STREAM.INFO.DNP_LOG_C1_0", r.subjects.Log(3, "x")} {
			r.hears(place, func() { _ = r.thief.PublishMsg(&nats.Msg{Subject: request, Reply: place}) })
		}
	}
	r.renews()
	r.unharmed()
}
