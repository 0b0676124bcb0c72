package jetstream

import (
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

func sealable() Shards {
	return Shards{
		Shards: Count{N: 4, Key: "n", Name: "shards"}, Streams: Count{N: 2, Key: "g", Name: "streams"},
		StreamName: func(g int) string { return []string{"A", "B"}[g] },
		Seal: &Seal{
			Key: "secret", Subject: func(n int, secret string) string { return []string{"a", "b", "c", "d"}[n] + "." + secret + ".>" },
			Remove: func(secret string) (from, to string) { return "*." + secret + ".>", "{{wildcard(1)}}.>" },
		},
	}
}

// TestSecretOf checks which streams count as sealed, and which are refused. No error tells a secret.
func TestSecretOf(t *testing.T) {
	s := sealable()
	for _, c := range []struct {
		why    string
		change func(c *natsjs.StreamConfig)
		sealed bool
		ok     bool
	}{
		{"sealed", func(*natsjs.StreamConfig) {}, true, true},
		{"it listens without the secret", func(c *natsjs.StreamConfig) { c.Subjects = []string{"b.>", "d.>"} }, false, false},
		{"it would store under the subjects with the secret", func(c *natsjs.StreamConfig) { c.SubjectTransform = nil }, false, false},
		{"it takes the secret out of other subjects", func(c *natsjs.StreamConfig) { c.SubjectTransform.Source = "*.x.>" }, false, false},
		{"it stores under other subjects", func(c *natsjs.StreamConfig) { c.SubjectTransform.Destination = "x.{{wildcard(1)}}.>" }, false, false},
		{"its metadata have another secret", func(c *natsjs.StreamConfig) { c.Metadata["secret"] = "x" }, false, false},
		{"its metadata have no secret", func(c *natsjs.StreamConfig) { delete(c.Metadata, "secret") }, false, false},
		{"it listens on half", func(c *natsjs.StreamConfig) { c.Subjects = c.Subjects[:1] }, false, false},
		{"it listens on more", func(c *natsjs.StreamConfig) { c.Subjects = append(c.Subjects, "b.>") }, false, false},
		{"another stream's subjects", func(c *natsjs.StreamConfig) { c.Subjects = s.sealed(0, c.Metadata["secret"]) }, false, false},
		{"a stream of another deployment", func(c *natsjs.StreamConfig) { c.Metadata["n"] = "8" }, true, false},
	} {
		is := s.Stream(1, time.Now(), 0)
		secret := is.Metadata["secret"]
		if len(secret) < 26 || !slices.Equal(is.Subjects, []string{"b." + secret + ".>", "d." + secret + ".>"}) {
			t.Fatalf("a sealed stream is %+v", is)
		}
		transform := *is.SubjectTransform
		is.SubjectTransform, is.Metadata = &transform, maps.Clone(is.Metadata)
		c.change(&is)
		if got := s.SecretOf(1, is); (got != "") != c.sealed || c.sealed && got != secret {
			t.Errorf("%s: the secret is %q, want sealed=%v", c.why, got, c.sealed)
		}
		err := s.Check(1, is)
		if (err == nil) != c.ok || err != nil && (!errors.Is(err, ErrDeployment) || strings.Contains(err.Error(), secret)) {
			t.Errorf("%s: the check says %v, want ok=%v", c.why, err, c.ok)
		}
	}
	if first, second := s.Stream(0, time.Now(), 0), s.Stream(0, time.Now(), 0); s.SecretOf(0, first) == s.SecretOf(0, second) {
		t.Error("two streams have the same secret")
	}
}
