package natslease

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/jetstream"
	"github.com/dnprelay/dnprelay/internal/natstest"
	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// oldStreams makes the streams that a relay of a release without seals makes.
func oldStreams(t *testing.T, c *natstest.Cluster, cfg Config) {
	t.Helper()
	cfg = cfg.withDefaults()
	store := cfg.store()
	store.Seal = nil
	eventually(t, "the streams are made", func() bool {
		_, err := store.Open(t.Context(), c.Connect(t), nil)
		return err == nil
	})
}

// streamConfig returns the configuration of the g-th stream.
func streamConfig(t *testing.T, c *natstest.Cluster, g int) natsjs.StreamConfig {
	t.Helper()
	js, err := natsjs.New(c.Connect(t))
	if err != nil {
		t.Fatal(err)
	}
	var s natsjs.Stream
	eventually(t, "the stream answers", func() bool { s, err = js.Stream(t.Context(), StreamName(g)); return err == nil })
	return s.CachedInfo().Config
}

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
	a.Want(1, 0)
	e := a.want(cluster.ShardAcquired, 1, "the shard never had a holder")
	s := a.cfg.Subjects
	for _, subject := range []string{s.StoreOwn(1), s.StoreHeartbeat(1), s.StoreKeyframe(1, "demo", 1), "dnp.v1.store.1.*.own", "dnp.v1.store.1.>", s.StoreInput(s.StoreOwn(1), *a.secrets[0].Load())} {
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

// TestSealWhileHeld seals the streams of a deployment that a release without seals made, opens them
// and seals them again. A relay keeps its shard and stores on, and what is stored stays.
func TestSealWhileHeld(t *testing.T) {
	forReplicas(t, func(t *testing.T, c *natstest.Cluster, replicas int) {
		oldStreams(t, c, Config{Shards: 4, Streams: 2, Replicas: replicas})
		a := start(t, c, "a", replicas)
		a.Want(1, 0)
		first := a.want(cluster.ShardAcquired, 1, "the shard never had a holder")
		own, secret, stored := a.cfg.Subjects.StoreOwn(1), "", 0
		set := func(sealed bool) {
			t.Helper()
			eventually(t, "the streams are changed", func() bool { // a copy may be behind
				return SetSealed(t.Context(), c.Connect(t), a.cfg.Subjects, sealed) == nil
			})
			begin := time.Now()
			if err := a.store(1, first.Epoch, keyframes(stored+1, "x")); err != nil {
				t.Fatalf("storing after sealed=%v: %v", sealed, err)
			}
			t.Logf("stores again %v after sealed=%v", time.Since(begin), sealed)
			stored++
			if a.taken(own) == sealed {
				t.Errorf("with sealed=%v the store takes a message on %s: %v", sealed, own, !sealed)
			}
			is := streamConfig(t, c, 1).Metadata["dnprelay-store-secret"]
			if secret != "" && is != secret || is == "" {
				t.Errorf("the stream has the secret %q, had %q", is, secret)
			}
			secret = is
		}
		if !a.taken(own) {
			t.Errorf("the streams of a release without seals do not take a message on %s", own)
		}
		set(true)
		set(true) // again changes nothing
		set(false)
		if want := a.cfg.store(); !slices.Equal(streamConfig(t, c, 1).Subjects, want.Stream(1, time.Time{}, 0).Subjects) {
			t.Errorf("opened, the stream has other subjects than a release without seals wants: %v", streamConfig(t, c, 1).Subjects)
		}
		eventually(t, "the relay writes without the secret", func() bool { return *a.secrets[1].Load() == "" })
		set(true)
		if epoch := a.shards[1].held.Load(); epoch != first.Epoch || a.Stats().Replaced != 0 {
			t.Errorf("the shard is held in epoch %d, was %d; %d streams count as made again", epoch, first.Epoch, a.Stats().Replaced)
		}
		b := start(t, c, "b", replicas)
		b.Want(1, 0)
		a.Release(1, first.Epoch, "b")
		if got := b.load(1, b.want(cluster.ShardAcquired, 1, "a gave it to b").Epoch); len(got) != stored {
			t.Errorf("the store has %d states, want %d", len(got), stored)
		}
	})
}

// TestMadeAgainAsItWas deletes a sealed stream and one that is not. A relay makes each as it was, the
// sealed one with another secret.
func TestMadeAgainAsItWas(t *testing.T) {
	for _, sealed := range []bool{true, false} {
		c := natstest.Start(t, 1)
		if !sealed {
			oldStreams(t, c, Config{Shards: 4, Streams: 2})
		}
		a := start(t, c, "a", 1)
		a.Want(1, 0)
		a.want(cluster.ShardAcquired, 1, "the shard never had a holder")
		before := *a.secrets[1].Load()
		deleteStreams(t, c)
		a.want(cluster.ShardLost, 1, "the store is another one")
		a.want(cluster.ShardAcquired, 1, "the stream is made again")
		if is := *a.secrets[1].Load(); (is != "") != sealed || sealed && is == before {
			t.Errorf("with sealed=%v the stream has the secret %q, had %q", sealed, is, before)
		}
		a.kill()
	}
}

// TestOpenForTheLastRelease starts a relay without streams while shards have holders. They may be relays that know
// no seals, so it seals nothing.
func TestOpenForTheLastRelease(t *testing.T) {
	c := natstest.Start(t, 1)
	open(t, c.Connect(t), Config{Node: "a", Shards: 4, Streams: 2, Epochs: func() uint64 { return 1 }})
	if is := streamConfig(t, c, 1); is.SubjectTransform != nil || is.Subjects[0] != "dnp.v1.store.1.>" {
		t.Errorf("a stream for relays that know no seals is %+v", is)
	}
}
