package jetstream

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// A Seal describes streams that can be sealed. A sealed stream listens on subjects with a secret,
// and stores messages under the subjects without it. JetStream publishes its answers, and the
// messages of a consumer, wherever a request says, whatever the sender may publish; but only those
// who may read the configuration of a sealed stream can name its subjects.
type Seal struct {
	Key     string                                // metadata key of the secret
	Subject func(shard int, secret string) string // pattern of all subjects of a shard, with the secret
	Remove  func(secret string) (from, to string) // the mapping that takes the secret out of a subject
}

// newSecret returns a secret: 130 random bits.
func newSecret() string { return rand.Text() }

// Sealed returns the configuration c of the g-th stream with a new secret.
func (s *Shards) Sealed(g int, c natsjs.StreamConfig) natsjs.StreamConfig {
	return s.seal(g, s.withSecret(c, newSecret()))
}

// withSecret returns c with a secret that the stream takes out of subjects.
func (s *Shards) withSecret(c natsjs.StreamConfig, secret string) natsjs.StreamConfig {
	from, to := s.Seal.Remove(secret)
	c.SubjectTransform = &natsjs.SubjectTransformConfig{Source: from, Destination: to}
	c.Metadata = maps.Clone(c.Metadata)
	c.Metadata[s.Seal.Key] = secret
	return c
}

// seal returns c, which has a secret, listening on nothing but subjects with it.
func (s *Shards) seal(g int, c natsjs.StreamConfig) natsjs.StreamConfig {
	c.Subjects = s.subjects(g, func(n int) string { return s.Seal.Subject(n, c.Metadata[s.Seal.Key]) })
	return c
}

// subjects returns the pattern of each shard of the g-th stream.
func (s *Shards) subjects(g int, pattern func(n int) string) (all []string) {
	for n := g; n < s.Shards.N; n += s.Streams.N {
		all = append(all, pattern(n))
	}
	return all
}

// secret returns the secret of a configuration, if the stream takes it out of subjects.
func (s *Shards) secret(c *natsjs.StreamConfig) string {
	if s.Seal == nil || c.SubjectTransform == nil {
		return ""
	}
	secret := c.Metadata[s.Seal.Key]
	from, to := s.Seal.Remove(secret)
	if c.SubjectTransform.Source != from || c.SubjectTransform.Destination != to {
		return ""
	}
	return secret
}

// SecretOf returns the secret of the g-th stream; empty if it is not sealed.
func (s *Shards) SecretOf(g int, c natsjs.StreamConfig) string {
	secret := s.secret(&c)
	if secret == "" || !slices.Equal(c.Subjects, s.seal(g, c).Subjects) {
		return ""
	}
	return secret
}

// sealPause is how long the streams have their secret until they listen on nothing else. Each
// server takes the secret out when it stores a message, so all must have heard of it before the
// first one arrives.
const sealPause = 5 * time.Second

// SetSealed seals the streams of a deployment, or opens them again, while nodes use them. It takes the
// numbers of shards and streams from the first stream. An opened stream still takes subjects with its
// secret, so nodes change over when they notice. Nodes of a release that knows no seals cannot use
// sealed streams.
func (s Shards) SetSealed(ctx context.Context, nc *nats.Conn, sealed bool) error {
	js, err := natsjs.New(nc)
	if err != nil {
		return fmt.Errorf("JetStream: %w", err)
	}
	first, err := js.Stream(ctx, s.StreamName(0))
	if err != nil {
		return fmt.Errorf("stream %s: %w", s.StreamName(0), err)
	}
	for _, c := range [...]*Count{&s.Shards, &s.Streams} {
		if c.N, err = strconv.Atoi(first.CachedInfo().Config.Metadata[c.Key]); err != nil || c.N < 1 {
			return fmt.Errorf("%w: stream %s has no number of %s", ErrDeployment, s.StreamName(0), c.Name)
		}
	}
	added, err := s.update(ctx, js, func(_ int, c natsjs.StreamConfig) natsjs.StreamConfig {
		if sealed && s.secret(&c) == "" {
			return s.withSecret(c, newSecret())
		}
		return c
	})
	if err != nil {
		return err
	}
	if added && first.CachedInfo().Config.Replicas > 1 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(sealPause):
		}
	}
	_, err = s.update(ctx, js, func(g int, c natsjs.StreamConfig) natsjs.StreamConfig {
		if sealed {
			return s.seal(g, c)
		}
		c.Subjects = s.subjects(g, s.Subject)
		return c
	})
	return err
}

// update changes the configurations of all streams, and reports whether one was different.
func (s *Shards) update(ctx context.Context, js natsjs.JetStream, change func(g int, c natsjs.StreamConfig) natsjs.StreamConfig) (changed bool, err error) {
	for g := range s.Streams.N {
		name := s.StreamName(g)
		stream, err := js.Stream(ctx, name)
		if err != nil {
			return changed, fmt.Errorf("stream %s: %w", name, err)
		}
		info := stream.CachedInfo()
		if err := errors.Join(s.Check(g, info.Config), current(info)); err != nil {
			return changed, err
		}
		want := change(g, info.Config)
		if want.SubjectTransform == info.Config.SubjectTransform && slices.Equal(want.Subjects, info.Config.Subjects) {
			continue
		}
		if _, err := js.UpdateStream(ctx, want); err != nil {
			return changed, fmt.Errorf("change stream %s: %w", name, err)
		}
		changed = true
	}
	return changed, nil
}

// current returns an error if a copy of a stream is away or behind.
func current(info *natsjs.StreamInfo) error {
	if info.Cluster == nil {
		return nil
	}
	for _, r := range info.Cluster.Replicas {
		if r.Offline || !r.Current {
			return fmt.Errorf("the copy of stream %s at server %s is away or behind; try again when it has caught up", info.Config.Name, r.Name)
		}
	}
	return nil
}
