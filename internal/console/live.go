package console

import (
	"context"
	crand "crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/coder/websocket"
	"github.com/dnprelay/dnprelay/bus"
	"github.com/dnprelay/dnprelay/cluster"
	"github.com/dnprelay/dnprelay/internal/turn"
	"github.com/dnprelay/dnprelay/replication"
)

const (
	frameInterval = 200 * time.Millisecond // between frames; what waits longer is told at once
	idleInterval  = 2 * time.Second        // between frames that tell nothing, by which a page knows that it is connected
	writeTimeout  = 10 * time.Second       // a page that takes a frame no faster is gone
	silentAfter   = 3 * time.Second        // without a word of the holder, which tells four times a second how far its spaces are
	queueMax      = 4096                   // messages of NATS that wait for the copy; it asks anew for what does not fit
)

// ReadEvery is how long messages of NATS may wait for others, for connections that only a Server uses: most change only what
// the next frame tells.
const ReadEvery = frameInterval / 4

// live serves the frames of one space as messages of a WebSocket.
func (s *Server) live(w http.ResponseWriter, r *http.Request) {
	space, ok := spaceOf(w, r)
	if !ok {
		return
	}
	select {
	case s.pages <- struct{}{}:
		defer func() { <-s.pages }()
	default:
		problem(w, http.StatusServiceUnavailable, "busy", fmt.Sprintf("%d pages are open already", cap(s.pages)))
		return
	}
	conn, err := websocket.Accept(w, r, nil) // refuses pages of other origins
	if err != nil {
		return // Accept has answered
	}
	defer conn.CloseNow()
	ctx := conn.CloseRead(r.Context()) // a page says nothing
	err = s.follow(ctx, space, func(frame []byte) error { return show(ctx, conn, frame) })
	if err != nil && ctx.Err() == nil {
		s.cfg.Log.Debug("a page of the console is gone", "space", space, "err", err)
		_ = conn.Close(websocket.StatusInternalError, "the copy of the space ended") // the page asks again
	}
}

// show sends a page a frame. It fails if the page takes it no faster than within writeTimeout.
func show(ctx context.Context, conn *websocket.Conn, frame []byte) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	return conn.Write(ctx, websocket.MessageText, frame)
}

// A follower keeps a copy of a space, in one goroutine.
type follower struct {
	feed    *feed
	replica *replication.Replica
	queue   chan func(f *follower, now time.Time) // from the goroutines of the bus
	crowded turn.Wake                             // the queue is half full
	begun   time.Time
	heard   time.Time // the holder, or the beginning
	unheard bool      // no relay listened to the last request
}

// post has the follower do something. What does not fit is lost; the copy notices.
func (f *follower) post(do func(f *follower, now time.Time)) {
	select {
	case f.queue <- do:
	default:
	}
	if len(f.queue) > queueMax/2 {
		f.crowded.Wake()
	}
}

// take does what was posted.
func (f *follower) take(now time.Time) {
	for range len(f.queue) {
		(<-f.queue)(f, now)
	}
}

// newFollower returns a follower that has nothing.
func newFollower(space string) *follower {
	now := time.Now()
	f := &follower{feed: newFeed(space), queue: make(chan func(*follower, time.Time), queueMax), crowded: turn.NewWake(), begun: now, heard: now}
	f.replica = replication.NewReplica(space, f.feed)
	return f
}

// follow keeps a copy of a space and writes frames until ctx ends or one cannot be written.
func (s *Server) follow(ctx context.Context, space string, write func(frame []byte) error) error {
	f := newFollower(space)
	shard := cluster.Shard(space, s.cfg.Shards)
	inbox := "_INBOX." + crand.Text()
	end, err := s.subscribe(f, space, shard, inbox)
	defer end()
	if err != nil {
		return err
	}
	ask := func(request []byte) error {
		return s.cfg.Bus.Publish(bus.Msg{Subject: s.cfg.Subjects.Repair(shard), Reply: inbox, Data: request})
	}
	return f.run(ctx, ask, s.cfg.Bus.Connected, write)
}

// run does what is posted and writes frames until ctx ends or one cannot be written. While one is being written the copy
// goes on, and what changes goes into the next. A copy that lacks nothing leaves messages in the queue until the next frame is due.
func (f *follower) run(ctx context.Context, ask func(request []byte) error, connected func() bool, write func(frame []byte) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	frames, written := make(chan []byte), make(chan struct{})
	var failed error // why frames cannot be written, once written is closed
	go func() {
		defer close(written)
		failed = writeAll(ctx, frames, write)
	}()
	defer func() { cancel(); <-written }()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var frame, writing, spare []byte // is ready to be written; is being written; was written
	next := f.begun
	for {
		now := time.Now()
		f.take(now)
		if request, ok := f.replica.Advance(now); ok {
			if err := ask(request); err != nil && !lossy(err) {
				return err
			}
		}
		if frame == nil && (!now.Before(next) && f.feed.waits() || !now.Before(next.Add(idleInterval))) {
			frame = f.feed.frame(spare[:0], f.position(now, connected()))
			next = now.Add(frameInterval)
			if f.feed.full() {
				next = now
			}
		}
		out, in := frames, f.queue
		if frame == nil {
			out = nil
		}
		rests := f.replica.Complete() && now.Before(next)
		if rests {
			in = nil
		}
		timer.Reset(f.wait(now, next, rests, frame != nil))
		select {
		case <-ctx.Done():
			return nil
		case <-written:
			return failed
		case out <- frame:
			frame, writing, spare = nil, frame, writing // the one before has been written
		case do := <-in:
			do(f, time.Now())
		case <-f.crowded:
		case <-timer.C:
		}
	}
}

// writeAll writes frames until ctx ends or one cannot be written.
func writeAll(ctx context.Context, frames <-chan []byte, write func([]byte) error) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case frame := <-frames:
			if err := write(frame); err != nil {
				return err
			}
		}
	}
}

// wait returns how long a follower has nothing to do, if nothing comes.
func (f *follower) wait(now, next time.Time, rests, ready bool) time.Duration {
	until := now.Add(idleInterval)
	if !ready {
		until = next.Add(idleInterval)
	}
	if at, ok := f.replica.NextTimeout(); ok && at.Before(until) {
		until = at
	}
	if (rests || !ready && f.feed.waits()) && next.Before(until) {
		until = next
	}
	return max(0, until.Sub(now))
}

// position returns what a frame says of the copy. One that hears of no changes is not complete.
func (f *follower) position(now time.Time, connected bool) position {
	epoch, seq := f.replica.Position()
	silent := now.Sub(f.heard) > silentAfter
	p := position{Epoch: epoch, Seq: seq, Complete: f.replica.Complete() && connected && !silent, Eyes: f.replica.Eyes}
	switch {
	case p.Complete:
	case !connected:
		p.Waiting = "no connection to NATS; what is here is old"
	case f.unheard:
		p.Waiting = "no relay listens: none is running, or the deployment has another number of shards"
	case epoch == 0:
		p.Waiting = "the relay that holds the space has not answered"
	case silent:
		p.Waiting = "the relay that holds the space is silent; what is here is old"
	default:
		p.Waiting = "changes are missing, and are asked for"
	}
	return p
}

// subscribe has everything that NATS has about a space go to a follower.
func (s *Server) subscribe(f *follower, space string, shard int, inbox string) (end func(), err error) {
	var ends []func()
	end = func() {
		for _, e := range ends {
			e()
		}
	}
	for subject, handle := range map[string]func(f *follower, now time.Time, m bus.Msg){
		s.cfg.Subjects.Live(space): func(f *follower, now time.Time, m bus.Msg) {
			f.heard = now
			f.replica.Apply(now, m.Data)
		},
		s.cfg.Subjects.Head(shard): func(f *follower, now time.Time, m bus.Msg) {
			if epoch, seqs, err := replication.ParseHead(m.Data); err == nil {
				if seq, ok := seqs[space]; ok {
					f.heard = now
					f.replica.ApplyHead(now, epoch, seq)
				}
			}
		},
		inbox: func(f *follower, now time.Time, m bus.Msg) {
			if f.unheard = m.NoResponders(); !f.unheard {
				f.replica.ApplyReply(now, m.Data)
			}
		},
		s.cfg.Subjects.Event(space): func(f *follower, _ time.Time, m bus.Msg) { f.feed.event(m.Data) },
	} {
		unsubscribe, err := s.cfg.Bus.Subscribe(subject, func(m bus.Msg) {
			f.post(func(f *follower, now time.Time) { handle(f, now, m) })
		})
		if err != nil {
			return end, fmt.Errorf("subscribe to %s: %w", subject, err)
		}
		ends = append(ends, unsubscribe)
	}
	return end, nil
}

// lossy reports whether an error of the bus only means that a message is lost.
func lossy(err error) bool { return errors.Is(err, bus.ErrDisconnected) || errors.Is(err, bus.ErrBusy) }
