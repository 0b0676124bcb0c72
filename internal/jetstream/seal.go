package jetstream

import (
	"crypto/rand"
	"slices"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// A Seal describes streams that listen on subjects with a secret, and store messages under the subjects without it.
// JetStream publishes its answers, and the messages of a consumer, wherever a request says, whatever the sender may
// publish; but only those who may read the configuration of such a stream can name its subjects.
type Seal struct {
	Key     string                                // metadata key of the secret
	Subject func(shard int, secret string) string // pattern of all subjects of a shard, with the secret
	Remove  func(secret string) (from, to string) // the mapping that takes the secret out of a subject
}

// seal seals the g-th stream with a new secret: 130 random bits.
func (s *Shards) seal(g int, c *natsjs.StreamConfig) {
	secret := rand.Text()
	from, to := s.Seal.Remove(secret)
	c.SubjectTransform = &natsjs.SubjectTransformConfig{Source: from, Destination: to}
	c.Metadata[s.Seal.Key] = secret
	c.Subjects = s.sealed(g, secret)
}

// sealed returns the pattern of each shard of the g-th stream, with a secret.
func (s *Shards) sealed(g int, secret string) []string {
	return s.subjects(g, func(n int) string { return s.Seal.Subject(n, secret) })
}

// subjects returns the pattern of each shard of the g-th stream.
func (s *Shards) subjects(g int, pattern func(n int) string) (all []string) {
	for n := g; n < s.Shards.N; n += s.Streams.N {
		all = append(all, pattern(n))
	}
	return all
}

// SecretOf returns the secret of the g-th stream; empty if it is not sealed.
func (s *Shards) SecretOf(g int, c natsjs.StreamConfig) string {
	if s.Seal == nil || c.SubjectTransform == nil {
		return ""
	}
	secret := c.Metadata[s.Seal.Key]
	from, to := s.Seal.Remove(secret)
	if secret == "" || c.SubjectTransform.Source != from || c.SubjectTransform.Destination != to || !slices.Equal(c.Subjects, s.sealed(g, secret)) {
		return ""
	}
	return secret
}
