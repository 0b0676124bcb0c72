package natslease

import (
	"context"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	natsjs "github.com/nats-io/nats.go/jetstream"
)

// Bounds of the lists of what is stored. Both are arbitrary.
const (
	listTimeout = 5 * time.Second
	listsMax    = 64 // that wait
)

// A list is a request for what is stored of a shard.
type list struct {
	shard int
	done  func([]cluster.Keyframe, error)
}

// Stored lists the states of a shard for which the store has a message, without data and in no order, and calls done once, unless Run
// ends before. States that were removed are among them for as long as the store remembers them. A subject that no relay can have
// stored is a Keyframe without a space. The lists of all shards are made one after the other: the server looks through all subjects of the shard.
func (l *Leases) Stored(shard int, done func([]cluster.Keyframe, error)) {
	select {
	case l.lists <- list{shard, done}:
	default:
		done(nil, cluster.ErrQueueFull)
	}
}

// serveLists makes one list after the other, until ctx ends. It does not wait for one that hangs in the library.
func (l *Leases) serveLists(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case q := <-l.lists:
			ended := make(chan struct{})
			go func() {
				q.done(l.list(ctx, q.shard))
				close(ended)
			}()
			select {
			case <-ended:
			case <-ctx.Done():
			}
		}
	}
}

func (l *Leases) list(ctx context.Context, shard int) ([]cluster.Keyframe, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	info, err := l.streams[shard%l.cfg.Streams].Info(ctx, natsjs.WithSubjectFilter(l.cfg.Subjects.StoreKeyframeAll(shard)))
	if err != nil {
		return nil, err
	}
	all := make([]cluster.Keyframe, 0, len(info.State.Subjects))
	for subject := range info.State.Subjects {
		var k cluster.Keyframe
		if space, number, ok := l.cfg.Subjects.ParseStoreKeyframe(subject); ok {
			k.Space, k.Number = space, number
		}
		all = append(all, k)
	}
	return all, nil
}
