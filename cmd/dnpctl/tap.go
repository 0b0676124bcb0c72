package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/config"
	"github.com/dnprelay/dnprelay/replication"
	"github.com/nats-io/nats.go"
)

type tapCommand struct {
	SpaceFlags `set:"space=Space whose records to show."`

	JSON   bool `name:"json" env:"-" help:"Print one JSON object per line: epoch, seq, repair, record (assign, describe, describe_part, keyframe, update, checksum, remove), ref, state, view, key, values [{index,name,type,value}], crc, ok, have, error."`
	Verify bool `env:"-" help:"Compare each checksum with that of a copy of the space, which the command keeps. The exit code is 1 if any differs, or a record cannot be applied."`

	LimitFlags
	config.Sharding `set:"shards=64"`
}

// Bounds of what waits for the command. What is beyond gets lost, and the copy asks for it again.
const (
	tapMessages = 4096
	tapBytes    = 64 << 20
)

// Run shows records until it is interrupted or a limit is reached.
func (c *tapCommand) Run(ctx context.Context, _ *slog.Logger) error {
	ctx, cancel := c.limit(ctx)
	defer cancel()
	shown := 0
	var f *tapFeed
	f = c.feed(os.Stdout, os.Stderr, func(r tapRecord) {
		if c.full(shown) {
			return
		}
		shown++
		fmt.Fprintln(f.out, lineOf(c.JSON, r, r.text())) // Flush returns the error
	})
	f.enough = func() bool { return c.full(shown) }
	return f.end(f.run(ctx, &c.NATSFlags))
}

// feed returns what follows the space, and gives records to show.
func (c *tapCommand) feed(out, notes io.Writer, show func(r tapRecord)) *tapFeed {
	f := newFeed(c.Space, c.Sharding, c.Timeout)
	f.out, f.notes = bufio.NewWriter(out), notes
	f.tap, f.replica = newTap(c.Space, c.Verify, show)
	return f
}

// A tapFeed brings what NATS has about a space to a tap.
type tapFeed struct {
	space   string
	shard   int
	timeout time.Duration
	tap     *tap
	replica *replication.Replica
	out     *bufio.Writer
	notes   io.Writer // for people: progress
	enough  func() bool

	live, heads, answers chan *nats.Msg
	trouble              chan error    // what NATS refuses
	again                chan struct{} // one slot: the connection was made again
	inbox                string
	publish              func(subject, reply string, data []byte) error
	repair               string

	begun    time.Time
	progress time.Time // when something came last, before the copy was complete
	note     time.Time // when to tell that the command waits
	complete bool      // the copy was, once
	nobody   bool      // no relay listened to the last request
}

// newFeed returns a feed without a replica, which prints nothing and runs until its context ends.
func newFeed(space string, s config.Sharding, timeout time.Duration) *tapFeed {
	return &tapFeed{
		space: space, shard: cluster.Shard(space, max(1, s.Shards)), timeout: timeout,
		out: bufio.NewWriter(io.Discard), notes: io.Discard, enough: func() bool { return false },
	}
}

// end tells what the command has seen, and returns how it ends.
func (f *tapFeed) end(err error) error {
	if err == nil {
		err = f.tap.result()
	}
	fmt.Fprintf(f.notes, "%s\n", f.tap.summary(f.replica))
	return errors.Join(err, f.out.Flush())
}

// run follows the space.
func (f *tapFeed) run(ctx context.Context, flags *NATSFlags) error {
	nc, err := flags.connect()
	if err != nil {
		return err
	}
	defer nc.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	f.trouble, f.again = make(chan error, 1), make(chan struct{}, 1)
	nc.SetErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) {
		select {
		case f.trouble <- err:
		default: // the command ends with the first that matters
		}
	})
	nc.SetReconnectHandler(func(*nats.Conn) {
		select {
		case f.again <- struct{}{}:
		default:
		}
	})
	subjects := flags.subjects()
	f.inbox, f.repair = nc.NewInbox(), subjects.Repair(f.shard)
	f.publish = nc.PublishRequest
	for subject, messages := range map[string]*chan *nats.Msg{
		subjects.Live(f.space): &f.live, subjects.Head(f.shard): &f.heads, f.inbox: &f.answers,
	} {
		if *messages, err = listen(ctx, nc, subject); err != nil {
			return err
		}
	}
	if err := nc.FlushTimeout(flags.Timeout); err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	return f.follow(ctx)
}

// listen subscribes to a subject within the bounds.
func listen(ctx context.Context, nc *nats.Conn, subject string) (chan *nats.Msg, error) {
	messages := make(chan *nats.Msg)
	sub, err := nc.Subscribe(subject, func(m *nats.Msg) {
		select {
		case messages <- m:
		case <-ctx.Done():
		}
	})
	if err == nil {
		err = sub.SetPendingLimits(tapMessages, tapBytes)
	}
	if err != nil {
		return nil, fmt.Errorf("subscribe to %s: %w", subject, err)
	}
	return messages, nil
}

// follow applies what comes, and asks for what is missing, until the context ends or there is enough.
func (f *tapFeed) follow(ctx context.Context) error {
	f.begin(time.Now())
	for !f.enough() {
		now := time.Now()
		wait, err := f.advance(now)
		if err != nil {
			return err
		}
		if len(f.live)+len(f.answers) == 0 {
			if err := f.out.Flush(); err != nil {
				return err
			}
		}
		done, err := f.next(ctx, time.After(wait))
		if done || err != nil {
			return err
		}
	}
	return nil
}

// next waits for the next message, at most until a time.
func (f *tapFeed) next(ctx context.Context, until <-chan time.Time) (done bool, err error) {
	select {
	case <-ctx.Done():
		return true, nil
	case <-until:
	case err := <-f.trouble:
		return false, f.refused(err)
	case <-f.again:
		f.replica.Reconnected(time.Now())
	case m := <-f.live:
		f.replica.Apply(time.Now(), m.Data)
	case m := <-f.heads:
		f.head(time.Now(), m.Data)
	case m := <-f.answers:
		f.answer(time.Now(), m)
	}
	return false, nil
}

func (f *tapFeed) head(now time.Time, data []byte) {
	if epoch, seqs, err := replication.ParseHead(data); err == nil {
		if seq, ok := seqs[f.space]; ok {
			f.replica.ApplyHead(now, epoch, seq)
		}
	}
}

func (f *tapFeed) answer(now time.Time, m *nats.Msg) {
	if f.nobody = m.Header.Get("Status") == "503"; f.nobody {
		return
	}
	f.progress = now
	f.replica.ApplyReply(now, m.Data)
}

// Pauses between notes that the command waits. The first comes soon, because people look at it.
const (
	tapQuiet = time.Second
	tapNotes = 5 * time.Second
)

func (f *tapFeed) begin(now time.Time) { f.begun, f.progress, f.note = now, now, now.Add(tapQuiet) }

// advance asks for what is missing, and returns how long nothing is to be done. It fails if the space is not
// there at all.
func (f *tapFeed) advance(now time.Time) (wait time.Duration, err error) {
	if request, ok := f.replica.Advance(now); ok {
		if err := f.publish(f.repair, f.inbox, request); err != nil && !errors.Is(err, nats.ErrReconnectBufExceeded) {
			return 0, err
		}
	}
	next := now.Add(tapNotes)
	if at, ok := f.replica.NextTimeout(); ok && at.Before(next) {
		next = at
	}
	if f.replica.Complete() {
		f.complete, f.note = true, now.Add(tapQuiet)
		return max(0, next.Sub(now)), nil
	}
	if !f.complete && now.Sub(f.progress) >= f.timeout {
		return 0, f.absent()
	}
	if !now.Before(f.note) {
		fmt.Fprintln(f.notes, f.waiting(now))
		f.note = now.Add(tapNotes)
	}
	if f.note.Before(next) {
		next = f.note
	}
	return max(0, next.Sub(now)), nil
}

// absent says why there is no copy.
func (f *tapFeed) absent() error {
	if f.nobody {
		return fmt.Errorf("no relay listens to %s: none is running, or the deployment has another number of --shards", f.repair)
	}
	return fmt.Errorf("no relay that holds space %s answered within %v; is --shards that of the deployment?", f.space, f.timeout)
}

// waiting says what the command waits for.
func (f *tapFeed) waiting(now time.Time) string {
	s := f.replica.Stats()
	return fmt.Sprintf("waiting for the relay that holds space %s: %d requests in %v, %d states so far",
		f.space, s.Requests(), now.Sub(f.begun).Round(time.Second), f.replica.Len())
}

// refused returns what an error of NATS means for the command; nil if it goes on.
func (f *tapFeed) refused(err error) error {
	text := err.Error()
	if errors.Is(err, nats.ErrPermissionViolation) || strings.Contains(strings.ToLower(text), "permissions violation") {
		return fmt.Errorf("the NATS user may not follow space %s (%s); users with the role observer or admin may", f.space, strings.TrimPrefix(text, "nats: "))
	}
	return nil // a slow consumer: the copy notices the gap
}
