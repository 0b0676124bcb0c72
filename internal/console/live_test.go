package console

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// A runRig is a rig whose copy a follower keeps. The page takes a frame from taken for each that it reads.
type runRig struct {
	*rig
	follower *follower
	taken    chan []byte // frames, as they were when their writing began
	written  chan struct{}
}

// runs has a follower run with the copy of r until the test ends.
func runs(t *testing.T, r *rig) *runRig {
	x := &runRig{rig: r, follower: newFollower("s"), taken: make(chan []byte), written: make(chan struct{})}
	x.follower.feed, x.follower.replica = r.feed, r.replica
	ask := func([]byte) error { return nil } // an audit, which the holder does not answer
	write := func(frame []byte) error {
		was := bytes.Clone(frame)
		x.taken <- was
		<-x.written
		if !bytes.Equal(was, frame) {
			t.Error("a frame changed while it was written")
		}
		return nil
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- x.follower.run(ctx, ask, func() bool { return true }, write) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return x
}

// move posts that the state moved.
func (x *runRig) move(to int) {
	x.Helper()
	batches := x.batches(fmt.Sprintf(`{"op":"set","key":"npc","values":{"x":%d}}`, to))
	x.follower.post(func(f *follower, now time.Time) {
		for _, b := range batches {
			f.replica.Apply(now, b)
		}
	})
}

// wants has the page read the next frame, which has to come after d.
func (x *runRig) wants(why string, d time.Duration, value string) {
	x.Helper()
	began := time.Now()
	x.page.apply(<-x.taken)
	synctest.Wait() // the follower sleeps
	if took := time.Since(began); took != d {
		x.Errorf("%s: the frame came after %v, want %v", why, took, d)
	}
	if got := x.page.values[1][0]; got != value {
		x.Errorf("%s: the page has %s, want %s", why, got, value)
	}
}

func newRunRig(t *testing.T) *runRig {
	r := newRig(t)
	r.now = time.Now()
	r.publish(`{"op":"put","key":"npc","values":[{"name":"x","type":"sint32","value":0}]}`)
	r.follow() // now the copy lacks nothing
	x := runs(t, r)
	x.wants("what is there", 0, "0")
	x.written <- struct{}{}
	return x
}

// TestRest: messages wait until the next frame is due, but not in a queue that is half full.
func TestRest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newRunRig(t)
		x.move(1)
		synctest.Wait()
		if n := len(x.follower.queue); n != 1 {
			t.Errorf("%d messages wait, want 1: no frame is due", n)
		}
		time.Sleep(50 * time.Millisecond)
		x.move(2)
		x.wants("two changes", frameInterval-50*time.Millisecond, "2")
		x.written <- struct{}{}
		for range queueMax/2 + 1 {
			x.follower.post(func(*follower, time.Time) {})
		}
		synctest.Wait()
		if n := len(x.follower.queue); n > 0 {
			t.Errorf("%d messages wait, want none: the queue was half full", n)
		}
		time.Sleep(time.Second)
		x.move(3)
		x.wants("a change after a while", 0, "3")
		x.written <- struct{}{}
	})
}

// TestSlowPage: while a page takes a frame, the next one is made in another buffer, and has the newest values.
func TestSlowPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newRunRig(t)
		for i := range 5 {
			x.move(10 + i)
			x.wants("a change", frameInterval, fmt.Sprint(10+i))
			x.move(20 + i)
			time.Sleep(3 * frameInterval / 2) // the next frame is made
			synctest.Wait()
			x.move(30 + i)
			x.written <- struct{}{}
			x.wants("a change while the page took a frame", 0, fmt.Sprint(20+i))
			x.written <- struct{}{}
			x.wants("a change after that", frameInterval/2, fmt.Sprint(30+i))
			x.written <- struct{}{}
		}
	})
}
