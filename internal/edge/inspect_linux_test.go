package edge

import (
	"context"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/dnprelay/dnprelay/internal/inspect/desk"
	"golang.org/x/sys/unix"
)

// BenchmarkObserved measures the turns of a worker with 1,000 clients in which it has nothing else to do, without people who look and
// with eight of them. What the second take longer is what people who look add to a turn. One operation is the answers to all eight.
func BenchmarkObserved(b *testing.B) {
	c := newCrowd(b, 1000)
	c.deaf = true
	c.edge.look.writing = make(chan func(), writingMax)
	ctx, stop := context.WithCancel(b.Context())
	written := make(chan struct{})
	go func() {
		defer close(written)
		c.edge.look.write(ctx)
	}()
	defer func() { stop(); <-written }()
	var quiet, observed []time.Duration
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	turn := func() time.Duration {
		begun := threadTime(b)
		c.turn()
		return threadTime(b) - begun
	}
	for b.Loop() {
		c.turn()                                        // what is due
		c.edge.look.Desk = desk.New(c.bus, "e", "edge") // which has not answered much lately
		c.bus.answers.Store(0)
		c.look()
		for c.bus.answers.Load() < 8 {
			if observed = append(observed, turn()); len(observed) > 1e6 {
				b.Fatal("not all are answered")
			}
		}
		for len(quiet) < len(observed) {
			quiet = append(quiet, turn())
		}
	}
	for name, list := range map[string][]time.Duration{"quiet": quiet, "observed": observed} {
		slices.Sort(list)
		for share, at := range map[string]int{"median": len(list) / 2, "p99": len(list) * 99 / 100, "longest": len(list) - 1} {
			b.ReportMetric(float64(list[at].Nanoseconds())/1e6, name+"-"+share+"-ms")
		}
	}
	b.ReportMetric(float64(len(observed))/float64(b.N), "turns/op")
}

// threadTime returns how long the thread of the caller has computed.
func threadTime(b *testing.B) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		b.Fatal(err)
	}
	return time.Duration(t.Nano())
}
