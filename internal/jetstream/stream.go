package jetstream

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// ErrDeployment says that a stream was made for another deployment than the configured one,
// so that waiting does not help.
var ErrDeployment = errors.New("the stream belongs to another deployment")

// ErrNoServer says that no NATS server that is up has the tag with which a stream is placed.
var ErrNoServer = errors.New("no NATS server has the tag")

// ErrReplicas says that a stream has, or can have, fewer replicas than the configured number, so that waiting does
// not help.
var ErrReplicas = errors.New("too few replicas")

// metaMade is the metadata key of a random text by which a stream differs from another one of the same name.
const metaMade = "dnprelay-made"

// identity returns by what a stream differs from another one of the same name. The time when it was made does not serve: of a stream that was
// restored from a backup, one server says the time of the original stream, and the others that of the restore.
func identity(i *natsjs.StreamInfo) string {
	return cmp.Or(i.Config.Metadata[metaMade], i.Created.String())
}

// OpenStream returns the stream of this name, and makes it as want says if it does not exist. One
// that exists is not changed and may have another configuration. The error wraps ErrNoServer if no
// server can take a stream that want places, and ErrReplicas if the server has no cluster.
func OpenStream(ctx context.Context, nc *nats.Conn, name string, want func() natsjs.StreamConfig) (natsjs.Stream, error) {
	js, err := natsjs.New(nc)
	if err != nil {
		return nil, fmt.Errorf("JetStream: %w", err)
	}
	s, err := js.Stream(ctx, name)
	if errors.Is(err, natsjs.ErrStreamNotFound) {
		c := want()
		c.Metadata = maps.Clone(c.Metadata)
		if c.Metadata == nil {
			c.Metadata = map[string]string{}
		}
		c.Metadata[metaMade] = rand.Text()
		s, err = js.CreateStream(ctx, c)
		if errors.Is(err, natsjs.ErrStreamNameAlreadyInUse) { // another node was faster
			s, err = js.Stream(ctx, name)
		}
		switch e, ok := errors.AsType[*natsjs.APIError](err); {
		case ok && e.ErrorCode == codeNoServer && c.Placement != nil:
			err = fmt.Errorf("%w %s: %w", ErrNoServer, strings.Join(c.Placement.Tags, " and "), err)
		case ok && e.ErrorCode == codeAlone:
			err = fmt.Errorf("%w: want %d, and the NATS server belongs to no cluster, so it makes 1", ErrReplicas, c.Replicas)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("stream %s: %w", name, err)
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
	Subject         func(shard int) string // pattern of all subjects of a shard, if the streams are not sealed

	// Config has what is special about the streams, with metadata besides the counts, and Features describes that
	// for errors. With AllowDirect any server that has a stream answers direct gets, all but one with an old state.
	Config   natsjs.StreamConfig
	Features string

	// Secret is the metadata key of a random text that the first stream has; empty for none.
	// SecretText is the text of a stream that is made again; empty for a new one.
	Secret, SecretText string

	// Seal says how the streams are sealed; nil for streams that are not.
	Seal *Seal
}

// Open opens the streams, and makes those that do not exist. highest is called before a stream
// is made, and returns the highest sequence that is known from former streams; nil stands for
// none. The error wraps ErrDeployment if a stream has other subjects, counts or features, or is not sealed.
func (s *Shards) Open(ctx context.Context, nc *nats.Conn, highest func() uint64) (all []natsjs.Stream, err error) {
	for g := range s.Streams.N {
		stream, err := OpenStream(ctx, nc, s.StreamName(g), func() natsjs.StreamConfig {
			var known uint64
			if highest != nil {
				known = highest()
			}
			return s.Stream(g, time.Now(), known)
		})
		if err == nil {
			err = s.Check(g, stream.CachedInfo().Config)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, stream)
	}
	return all, nil
}

// sequenceMargin is how far the sequences of a stream begin above the highest one that is known
// of the former stream, which had some more messages: nodes hear of them within seconds, and a
// stream takes some 10,000 messages a second.
const sequenceMargin = 1 << 20

// Believable reports whether a stream may have come to a sequence, which another node may have
// named: sequences begin at the time in Unix milliseconds, and none is 17 years ahead of it.
func Believable(now time.Time, seq uint64) bool { return seq < uint64(now.UnixMilli())+1<<39 }

// firstSequence returns the first sequence of a stream that is made: above all sequences of a
// stream of the same name that was wiped. The epochs that are sequences do not run backwards
// then, and the store refuses a write that expects an old sequence. The time does for a stream
// that took fewer than 1,000 messages a second, also if nothing is known of it.
func firstSequence(now time.Time, highest uint64) uint64 {
	clock := uint64(now.UnixMilli())
	if highest == 0 || !Believable(now, highest) {
		return clock
	}
	return max(clock, highest+sequenceMargin)
}

// Stream returns the configuration of the g-th stream, whose sequences begin above highest. A sealed one has a new
// secret each time.
func (s *Shards) Stream(g int, now time.Time, highest uint64) natsjs.StreamConfig {
	c := s.Config
	c.Name = s.StreamName(g)
	c.Storage = natsjs.FileStorage
	c.FirstSeq = firstSequence(now, highest)
	c.AllowMsgTTL = true
	c.Metadata = map[string]string{s.Shards.Key: strconv.Itoa(s.Shards.N), s.Streams.Key: strconv.Itoa(s.Streams.N)}
	maps.Copy(c.Metadata, s.Config.Metadata)
	if s.Seal != nil {
		s.seal(g, &c)
	} else {
		c.Subjects = s.subjects(g, s.Subject)
	}
	if g == 0 && s.Secret != "" {
		c.Metadata[s.Secret] = cmp.Or(s.SecretText, rand.Text())
	}
	return c
}

// Check returns an error that wraps ErrDeployment if the g-th stream has a configuration of
// another deployment.
func (s *Shards) Check(g int, got natsjs.StreamConfig) error {
	want := s.Stream(g, time.Time{}, 0)
	if want.Metadata[s.Secret] != "" && got.Metadata[s.Secret] == "" {
		return fmt.Errorf("%w: stream %s has no secret", ErrDeployment, got.Name)
	}
	if g == 0 && s.SecretText != "" && got.Metadata[s.Secret] != s.SecretText {
		return fmt.Errorf("%w: stream %s was made again with another secret", ErrDeployment, got.Name)
	}
	for _, c := range [...]Count{s.Shards, s.Streams} {
		if has := got.Metadata[c.Key]; has != want.Metadata[c.Key] {
			return fmt.Errorf("%w: stream %s was made for %s %s, this node is configured for %d", ErrDeployment, got.Name, cmp.Or(has, "no number of"), c.Name, c.N)
		}
	}
	switch {
	case s.Seal != nil && s.SecretOf(g, got) == "":
		return fmt.Errorf("%w: stream %s does not listen on just the subjects with its secret", ErrDeployment, got.Name)
	case s.Seal == nil && !slices.Equal(got.Subjects, want.Subjects):
		return fmt.Errorf("%w: stream %s does not listen on %v", ErrDeployment, got.Name, want.Subjects)
	}
	if max(got.MaxMsgsPerSubject, 0) != max(want.MaxMsgsPerSubject, 0) || // 0 and -1 are no limit
		want.AllowRollup && !got.AllowRollup || want.AllowAtomicPublish && !got.AllowAtomicPublish || !got.AllowMsgTTL ||
		got.AllowDirect != want.AllowDirect || !placedAs(got, want) {
		return fmt.Errorf("%w: stream %s must have %s", ErrDeployment, got.Name, s.Features)
	}
	return nil
}

// CheckReplicas returns an error that wraps ErrReplicas if a stream has fewer replicas than want. An operator may
// change those of a stream, and nodes do not.
func CheckReplicas(got natsjs.StreamConfig, want int) error {
	if has := max(got.Replicas, 1); has < want {
		return fmt.Errorf("%w: stream %s has %d, want %d; nodes do not change a stream, but `nats stream edit %s --replicas %d` does", ErrReplicas, got.Name, has, want, got.Name, want)
	}
	return nil
}

// placedAs reports whether a stream lies where it must: if want names servers by their tags, on just as many of
// those.
func placedAs(got, want natsjs.StreamConfig) bool {
	if want.Placement == nil {
		return true
	}
	return got.Placement != nil && slices.Equal(got.Placement.Tags, want.Placement.Tags) && max(got.Replicas, 1) == max(want.Replicas, 1)
}
