package jetstream

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// ErrDeployment says that a stream was made for another deployment than the configured one,
// so that waiting does not help.
var ErrDeployment = errors.New("the stream belongs to another deployment")

// OpenStream returns the stream of this name, and makes it if it does not exist. One that
// exists is not changed and may have another configuration.
func OpenStream(ctx context.Context, nc *nats.Conn, want natsjs.StreamConfig) (natsjs.Stream, error) {
	js, err := natsjs.New(nc)
	if err != nil {
		return nil, fmt.Errorf("JetStream: %w", err)
	}
	s, err := js.Stream(ctx, want.Name)
	if errors.Is(err, natsjs.ErrStreamNotFound) {
		s, err = js.CreateStream(ctx, want)
		if errors.Is(err, natsjs.ErrStreamNameAlreadyInUse) { // another node was faster
			s, err = js.Stream(ctx, want.Name)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", want.Name, err)
	}
	return s, nil
}

// A Count is a number of the deployment that the metadata of its streams has under Key. Name
// is the name of what it counts.
type Count struct {
	N         int
	Key, Name string
}

// Shards are the shards of a deployment, which lie in its streams in turn. Each stream has its
// leader at one server, so several streams spread the load and what a dead server interrupts.
type Shards struct {
	Shards, Streams Count
	StreamName      func(g int) string
	Subject         func(shard int) string // pattern of all subjects of a shard

	// Config has what is special about the streams, and Features describes that for errors.
	// Secret is the metadata key of a random text that the first stream has; empty for none.
	Config   natsjs.StreamConfig
	Features string
	Secret   string
}

// Open opens the streams, and makes those that do not exist. The error wraps ErrDeployment if a
// stream has other subjects, counts or features.
func (s *Shards) Open(ctx context.Context, nc *nats.Conn) (all []natsjs.Stream, err error) {
	for g := range s.Streams.N {
		want := s.stream(g, time.Now())
		stream, err := OpenStream(ctx, nc, want)
		if err == nil {
			err = s.check(stream.CachedInfo().Config, want)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, stream)
	}
	return all, nil
}

// stream returns the configuration of the g-th stream. Its first sequence is the time, so that
// sequences do not run backwards when the streams are wiped and made again: neither do the
// epochs that are sequences, and the store refuses a write that expects an old sequence.
// Direct get is off, because it answers with an old state.
func (s *Shards) stream(g int, now time.Time) natsjs.StreamConfig {
	c := s.Config
	c.Name = s.StreamName(g)
	c.Storage = natsjs.FileStorage
	c.FirstSeq = uint64(now.UnixMilli())
	c.AllowMsgTTL = true
	c.AllowDirect = false
	for n := g; n < s.Shards.N; n += s.Streams.N {
		c.Subjects = append(c.Subjects, s.Subject(n))
	}
	c.Metadata = map[string]string{s.Shards.Key: strconv.Itoa(s.Shards.N), s.Streams.Key: strconv.Itoa(s.Streams.N)}
	if g == 0 && s.Secret != "" {
		c.Metadata[s.Secret] = rand.Text()
	}
	return c
}

func (s *Shards) check(got, want natsjs.StreamConfig) error {
	if want.Metadata[s.Secret] != "" && got.Metadata[s.Secret] == "" {
		return fmt.Errorf("%w: stream %s has no secret", ErrDeployment, got.Name)
	}
	for _, c := range [...]Count{s.Shards, s.Streams} {
		if has := got.Metadata[c.Key]; has != want.Metadata[c.Key] {
			if has == "" {
				has = "no number of"
			}
			return fmt.Errorf("%w: stream %s was made for %s %s, this node is configured for %d", ErrDeployment, got.Name, has, c.Name, c.N)
		}
	}
	if !slices.Equal(got.Subjects, want.Subjects) {
		return fmt.Errorf("%w: stream %s has the subjects %v, this node wants %v", ErrDeployment, got.Name, got.Subjects, want.Subjects)
	}
	if max(got.MaxMsgsPerSubject, 0) != max(want.MaxMsgsPerSubject, 0) || // 0 and -1 are no limit
		want.AllowRollup && !got.AllowRollup || want.AllowAtomicPublish && !got.AllowAtomicPublish || !got.AllowMsgTTL || got.AllowDirect {
		return fmt.Errorf("%w: stream %s must have %s", ErrDeployment, got.Name, s.Features)
	}
	return nil
}
