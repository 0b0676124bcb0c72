package jetstream

import (
	"context"
	"errors"
	"fmt"
	"slices"

	natsjs "github.com/nats-io/nats.go/jetstream"
)

// ErrDeployment says that a stream was made for another deployment than the configured one,
// so that waiting does not help.
var ErrDeployment = errors.New("the stream belongs to another deployment")

// APIPrefix returns the prefix of the subjects of JetStream's API.
func APIPrefix(o natsjs.JetStreamOptions) string {
	switch {
	case o.APIPrefix != "":
		return o.APIPrefix
	case o.Domain != "":
		return "$JS." + o.Domain + ".API"
	}
	return "$JS.API"
}

// OpenStream returns the stream of this name, and makes it if it does not exist. One that
// exists is not changed and may have another configuration.
func OpenStream(ctx context.Context, js natsjs.JetStream, want natsjs.StreamConfig) (natsjs.Stream, error) {
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

// A Label is a key of a stream's metadata that counts something of the deployment, and the
// name of what it counts.
type Label struct{ Key, Name string }

// CheckStream returns an error that wraps ErrDeployment unless got has the subjects, the
// labels and the features of want. features describes these for the error.
func CheckStream(got, want natsjs.StreamConfig, features string, labels ...Label) error {
	for _, l := range labels {
		if has := got.Metadata[l.Key]; has != want.Metadata[l.Key] {
			if has == "" {
				has = "no number of"
			}
			return fmt.Errorf("%w: stream %s was made for %s %s, this node is configured for %s", ErrDeployment, got.Name, has, l.Name, want.Metadata[l.Key])
		}
	}
	if !slices.Equal(got.Subjects, want.Subjects) {
		return fmt.Errorf("%w: stream %s has the subjects %v, this node wants %v", ErrDeployment, got.Name, got.Subjects, want.Subjects)
	}
	if max(got.MaxMsgsPerSubject, 0) != max(want.MaxMsgsPerSubject, 0) || // 0 and -1 are no limit
		want.AllowRollup && !got.AllowRollup || want.AllowAtomicPublish && !got.AllowAtomicPublish || want.AllowMsgTTL && !got.AllowMsgTTL ||
		got.AllowDirect && !want.AllowDirect {
		return fmt.Errorf("%w: stream %s must have %s", ErrDeployment, got.Name, features)
	}
	return nil
}
