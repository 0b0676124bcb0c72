package jetstream

import (
	"errors"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/fence"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// TestFirstSequence checks where the sequences of a stream begin.
func TestFirstSequence(t *testing.T) {
	const clock = 1_790_000_000_000
	for _, c := range []struct {
		highest, want uint64
		why           string
	}{
		{0, clock, "nothing is known of a former stream"},
		{clock - 2*sequenceMargin, clock, "the time is ahead"},
		{clock - 10, clock - 10 + sequenceMargin, "the former stream may have had some more messages"},
		{clock + 153_000, clock + 153_000 + sequenceMargin, "the former stream outran the time"},
		{clock + 1<<39 - 1, clock + 1<<39 - 1 + sequenceMargin, "a stream may have come as far in 17 years"},
		{clock + 1<<39, clock, "no stream comes as far, so that the number is forged or damaged"},
	} {
		if got := firstSequence(time.UnixMilli(clock), c.highest); got != c.want {
			t.Errorf("behind %d a stream begins at %d, want %d: %s", c.highest, got, c.want, c.why)
		}
	}
}

// TestSecretText checks that a stream which is made again has the former secret, and that one
// with another secret is refused.
func TestSecretText(t *testing.T) {
	s := Shards{
		Shards: Count{N: 2, Key: "n", Name: "shards"}, Streams: Count{N: 2, Key: "g", Name: "streams"}, Secret: "secret",
		StreamName: func(g int) string { return []string{"A", "B"}[g] }, Subject: func(n int) string { return []string{"a", "b"}[n] },
	}
	first := s.Stream(0, time.Now(), 0)
	s.SecretText = first.Metadata["secret"]
	again := s.Stream(0, time.Now(), 0)
	if s.SecretText == "" || again.Metadata["secret"] != s.SecretText {
		t.Errorf("the stream has the secret %q, want %q", again.Metadata["secret"], s.SecretText)
	}
	again.AllowMsgTTL = true
	if err := s.Check(0, again); err != nil {
		t.Errorf("the stream that was made again is refused: %v", err)
	}
	again.Metadata["secret"] = "another"
	if err := s.Check(0, again); !errors.Is(err, ErrDeployment) {
		t.Errorf("a stream with another secret is judged %v", err)
	}
}

// TestRefusals checks for how long a stream that takes no writes is missing.
func TestRefusals(t *testing.T) {
	m := NewMaintainer(MaintainerConfig{Streams: make([]natsjs.Stream, 0)})
	m.streams, m.refusals = make([]maintained, 1), make([]refusals, 1)
	m.streams[0].name = "S"
	missing := func(after time.Duration, want bool, why string) {
		t.Helper()
		if got := m.refusals[0].missing(time.Now().Add(after)); got != want {
			t.Errorf("after %v missing is %v, want %v: %s", after, got, want, why)
		}
	}
	missing(time.Hour, false, "nothing was written")
	m.Wrote(0, fence.Unknown)
	missing(missingAfter/2, false, "an election may be under way")
	missing(missingAfter, true, "the stream takes no writes")
	missing(refusalCounts+time.Second, false, "no write was repeated")
	m.Wrote(0, fence.Busy)
	missing(missingAfter, true, "another write may be under way for as long")
	m.Wrote(0, fence.OK)
	missing(missingAfter, false, "the stream takes writes")
}

// TestCheckReplicas refuses streams with fewer copies than a node counts on, and no others.
func TestCheckReplicas(t *testing.T) {
	for _, c := range []struct {
		has, want int
		ok        bool
	}{{0, 1, true}, {1, 1, true}, {3, 1, true}, {3, 3, true}, {0, 2, false}, {1, 3, false}} {
		err := CheckReplicas(natsjs.StreamConfig{Name: "S", Replicas: c.has}, c.want)
		if (err == nil) != c.ok || err != nil && !errors.Is(err, ErrReplicas) {
			t.Errorf("a stream with %d replicas, where %d are wanted: %v", c.has, c.want, err)
		}
	}
}
