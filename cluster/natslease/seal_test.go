package natslease

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/jetstream"
	"github.com/dnprelay/dnprelay/internal/natstest"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// taken reports whether a stream takes a message on a subject. The message is refused for its
// condition, so that it changes nothing.
func (r *relay) taken(subject string) bool {
	r.t.Helper()
	m := jetstream.Expect(&nats.Msg{Subject: subject, Header: nats.Header{}}, "", 1)
	_, err := r.cfg.Conn.RequestMsg(m, patience)
	if err != nil && !errors.Is(err, nats.ErrNoResponders) {
		r.t.Fatal(err)
	}
	return err == nil
}

// TestSealedFromTheStart wants a new deployment's streams to be deaf to everything without their
// secrets, which differ.
func TestSealedFromTheStart(t *testing.T) {
	c := natstest.Start(t, 1)
	a := start(t, c, "a", 1)
	a.Want(true)
	e := a.want(cluster.ShardAcquired, 1, "the shard never had a holder")
	s := a.cfg.Subjects
	for _, subject := range []string{s.StoreOwn(1), s.StoreLease(1, "a"), s.StoreKeyframe(1, "demo", 1), "dnp.v1.store.1.*.own", "dnp.v1.store.1.>", s.StoreInput(s.StoreOwn(1), *a.secrets[0].Load())} {
		if a.taken(subject) {
			t.Errorf("the store takes a message on %s", subject)
		}
	}
	secret := *a.secrets[1].Load()
	if !a.taken(s.StoreInput(s.StoreOwn(1), secret)) || len(secret) < 26 {
		t.Errorf("the store does not take a message with the secret %q", secret)
	}
	if err := a.store(1, e.Epoch, keyframes(3, "x")); err != nil {
		t.Fatal(err)
	}
	info, err := a.streams[1].Info(t.Context(), natsjs.WithSubjectFilter(">"))
	if err != nil {
		t.Fatal(err)
	}
	for subject := range info.State.Subjects {
		if strings.Contains(subject, secret) {
			t.Errorf("a message is stored under %s", subject)
		}
	}
}

// TestNewSecret deletes a stream. A relay makes it again, with another secret.
func TestNewSecret(t *testing.T) {
	c := natstest.Start(t, 1)
	a := start(t, c, "a", 1)
	a.Want(true)
	a.want(cluster.ShardAcquired, 1, "the shard never had a holder")
	before := *a.secrets[1].Load()
	deleteStreams(t, c)
	a.want(cluster.ShardLost, 1, "the store is another one")
	a.want(cluster.ShardAcquired, 1, "the stream is made again")
	if is := *a.secrets[1].Load(); is == "" || is == before {
		t.Errorf("the stream has the secret %q, had %q", is, before)
	}
}

// TestNotSealed starts a relay with a stream that takes records on subjects without a secret.
func TestNotSealed(t *testing.T) {
	c := natstest.Start(t, 1)
	cfg := Config{Conn: c.Connect(t), Node: "a", Shards: 4, Streams: 2}.withDefaults()
	js, err := natsjs.New(cfg.Conn)
	if err != nil {
		t.Fatal(err)
	}
	store := cfg.store()
	open := store.Stream(0, time.Now(), 0)
	open.SubjectTransform, open.Subjects = nil, []string{cfg.Subjects.StoreAll(0), cfg.Subjects.StoreAll(2)}
	if _, err := js.CreateStream(t.Context(), open); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), cfg); !errors.Is(err, jetstream.ErrDeployment) || strings.Contains(err.Error(), open.Metadata["dnprelay-store-secret"]) {
		t.Errorf("opening ends with %v, want %v without the secret", err, jetstream.ErrDeployment)
	}
}
