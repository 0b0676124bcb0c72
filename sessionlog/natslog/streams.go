package natslog

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// Keys of the metadata of a log stream.
const (
	metaShards  = "dnprelay-log-shards"
	metaStreams = "dnprelay-log-streams"
	metaSecret  = "dnprelay-log-secret" // of the first stream: what makes the names of logs
)

// ErrDeployment says that the streams were made for another deployment than the one
// that is configured, so that waiting does not help.
var ErrDeployment = errors.New("the session log belongs to another deployment")

// StreamName returns the name of the g-th log stream.
func StreamName(g int) string { return "DNP_LOG_" + strconv.Itoa(g) }

// open makes the g-th stream if it does not exist, and refuses one that is not what
// this edge would have made.
func (c *Config) open(ctx context.Context, js jetstream.JetStream, g int) (*jetstream.StreamConfig, error) {
	name := StreamName(g)
	s, err := js.Stream(ctx, name)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		s, err = js.CreateStream(ctx, c.stream(g, time.Now()))
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) { // another edge was faster
			s, err = js.Stream(ctx, name)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("log stream %s: %w", name, err)
	}
	cfg := s.CachedInfo().Config
	return &cfg, c.check(cfg, g)
}

// stream returns the configuration of the g-th stream.
//
// There is no limit of messages per subject, because it would delete the checkpoint
// that a log begins with; checkpoints themselves delete what precedes them. The first
// sequence is the time, so that sequences do not run backwards when the streams are
// wiped and made again: a write that expects one of before is refused.
func (c *Config) stream(g int, now time.Time) jetstream.StreamConfig {
	var subjects []string
	for n := g; n < c.Shards; n += c.Streams {
		subjects = append(subjects, c.Subjects.LogAll(n))
	}
	meta := map[string]string{metaShards: strconv.Itoa(c.Shards), metaStreams: strconv.Itoa(c.Streams)}
	if g == 0 {
		meta[metaSecret] = rand.Text()
	}
	return jetstream.StreamConfig{
		Name: StreamName(g), Subjects: subjects, Replicas: c.Replicas, Storage: jetstream.FileStorage,
		Description: "dnprelay: the logs of sessions", MaxAge: c.MaxAge,
		MaxMsgsPerSubject: -1, AllowRollup: true, AllowMsgTTL: true, AllowDirect: false,
		FirstSeq: uint64(now.UnixMilli()),
		Metadata: meta,
	}
}

func (c *Config) check(got jetstream.StreamConfig, g int) error {
	want := c.stream(g, time.Time{})
	for _, m := range []struct{ key, what string }{{metaShards, "log shards"}, {metaStreams, "log streams"}} {
		if got.Metadata[m.key] != want.Metadata[m.key] {
			return fmt.Errorf("%w: stream %s was made for %q %s, this edge is configured for %s",
				ErrDeployment, got.Name, got.Metadata[m.key], m.what, want.Metadata[m.key])
		}
	}
	if g == 0 && got.Metadata[metaSecret] == "" {
		return fmt.Errorf("%w: stream %s has no secret", ErrDeployment, got.Name)
	}
	if !slices.Equal(got.Subjects, want.Subjects) {
		return fmt.Errorf("%w: stream %s has the subjects %v, this edge wants %v", ErrDeployment, got.Name, got.Subjects, want.Subjects)
	}
	if got.MaxMsgsPerSubject > 0 || !got.AllowRollup || !got.AllowMsgTTL || got.AllowDirect {
		return fmt.Errorf("%w: stream %s must have rollups, message TTLs, no limit of messages per subject and no direct get", ErrDeployment, got.Name)
	}
	return nil
}
