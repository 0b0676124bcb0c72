package natslease

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Keys of the metadata of a store stream.
const (
	metaShards  = "dnprelay-shards"
	metaStreams = "dnprelay-store-streams"
)

// ErrDeployment says that the streams were made for another deployment than the
// one that is configured, so that waiting does not help.
var ErrDeployment = errors.New("the store belongs to another deployment")

// StreamName returns the name of the g-th store stream.
func StreamName(g int) string { return "DNP_STORE_" + strconv.Itoa(g) }

// open returns the g-th stream, and makes it if it does not exist.
func (c *Config) open(ctx context.Context, js jetstream.JetStream, g int) (jetstream.Stream, error) {
	name := StreamName(g)
	s, err := js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		s, err = js.CreateStream(ctx, c.stream(g, time.Now()))
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another relay was faster
			s, err = js.Stream(ctx, name)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("store stream %s: %w", name, err)
	}
	return s, c.check(s.CachedInfo().Config, g)
}

// stream returns the configuration of the g-th stream. Its first sequence is the
// time, so that epochs do not run backwards when the streams are wiped and made
// again.
func (c *Config) stream(g int, now time.Time) jetstream.StreamConfig {
	var subjects []string
	for n := g; n < c.Shards; n += c.Streams {
		subjects = append(subjects, c.Subjects.StoreAll(n))
	}
	return jetstream.StreamConfig{
		Name: StreamName(g), Subjects: subjects, Replicas: c.Replicas, Storage: jetstream.FileStorage,
		Description:       "dnprelay: who holds which shard, and the keyframes of its states",
		MaxMsgsPerSubject: 1, AllowAtomicPublish: true, AllowMsgTTL: true, AllowDirect: false,
		FirstSeq: uint64(now.UnixMilli()),
		Metadata: map[string]string{metaShards: strconv.Itoa(c.Shards), metaStreams: strconv.Itoa(c.Streams)},
	}
}

// check refuses a stream that is not what this relay would have made.
func (c *Config) check(got jetstream.StreamConfig, g int) error {
	want := c.stream(g, time.Time{})
	for _, m := range []struct{ key, what string }{{metaShards, "shards"}, {metaStreams, "store streams"}} {
		if got.Metadata[m.key] != want.Metadata[m.key] {
			return fmt.Errorf("%w: stream %s was made for %s %s, this relay is configured for %s",
				ErrDeployment, got.Name, orNone(got.Metadata[m.key]), m.what, want.Metadata[m.key])
		}
	}
	if a, b := strings.Join(got.Subjects, " "), strings.Join(want.Subjects, " "); a != b {
		return fmt.Errorf("%w: stream %s has the subjects %s, this relay wants %s", ErrDeployment, got.Name, a, b)
	}
	if got.MaxMsgsPerSubject != 1 || !got.AllowAtomicPublish || !got.AllowMsgTTL || got.AllowDirect {
		return fmt.Errorf("%w: stream %s must have one message per subject, atomic batches, message TTLs and no direct get",
			ErrDeployment, got.Name)
	}
	return nil
}

func orNone(s string) string {
	if s == "" {
		return "no number of"
	}
	return s
}
