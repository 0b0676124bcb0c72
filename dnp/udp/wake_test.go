package udp

import (
	"errors"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

func TestWakeBefore(t *testing.T) {
	eachKind(t, func(t *testing.T, open func(string, Config) *Socket) {
		s := open("127.0.0.1:0", Config{})
		s.Wake()
		s.Wake()
		if n, err := s.ReadBatch(make([]Datagram, 1)); n != 0 || err != ErrWoken {
			t.Fatalf("ReadBatch after Wake = %d, %v, want ErrWoken", n, err)
		}
		s.SetReadDeadline(time.Now().Add(time.Millisecond))
		if _, err := s.ReadBatch(make([]Datagram, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatalf("next ReadBatch = %v, want the deadline: two calls of Wake are one", err)
		}
	})
}

// TestWakeWaiting wakes a worker that waits, again and again. The worker has no deadline
// and gets no datagrams, so a lost wake-up hangs it.
func TestWakeWaiting(t *testing.T) {
	eachKind(t, func(t *testing.T, open func(string, Config) *Socket) {
		s := open("127.0.0.1:0", Config{})
		const rounds = 500
		woken := make(chan error)
		go func() {
			ds := make([]Datagram, 1)
			for range rounds {
				_, err := s.ReadBatch(ds)
				woken <- err
			}
		}()
		watchdog := time.AfterFunc(patience, func() { _ = s.Close() })
		defer watchdog.Stop()
		for i := range rounds {
			runtime.Gosched() // the worker most likely waits
			s.Wake()
			if err := <-woken; err != ErrWoken {
				t.Errorf("ReadBatch %d: %v, want ErrWoken", i, err)
			}
		}
	})
}

func TestWakeGivesDatagramsFirst(t *testing.T) {
	eachKind(t, func(t *testing.T, open func(string, Config) *Socket) {
		a, b := open("127.0.0.1:0", Config{}), open("127.0.0.1:0", Config{})
		send(t, a, b.LocalAddr(), []byte("x"))
		b.Wake()
		b.SetReadDeadline(time.Now().Add(patience))
		n, err := b.ReadBatch(make([]Datagram, 1))
		if err == ErrWoken { // the portable socket reports the wake first; the datagram is not lost
			n, err = b.ReadBatch(make([]Datagram, 1))
		}
		if n != 1 || err != nil {
			t.Fatalf("ReadBatch = %d, %v, want the datagram", n, err)
		}
	})
}

// TestWakeModel posts numbers to a worker's inbox from several goroutines while
// datagrams arrive. The worker has no deadline, so a lost wake-up hangs it, and after a
// lost datagram it waits for the last ones for ever.
func TestWakeModel(t *testing.T) {
	eachKind(t, func(t *testing.T, open func(string, Config) *Socket) {
		a, b := open("127.0.0.1:0", Config{}), open("127.0.0.1:0", Config{})
		const posters, posts, datagrams = 4, 3000, 2000
		var (
			inbox    atomic.Int64
			credit   = make(chan struct{}, 32) // datagrams under way, never more than the buffer holds
			group    sync.WaitGroup
			posted   int64
			received int
		)
		for range posters {
			group.Go(func() {
				for range posts {
					inbox.Add(1)
					b.Wake()
				}
			})
		}
		group.Go(func() {
			w := a.Writer()
			for range datagrams {
				credit <- struct{}{}
				w.Send(b.LocalAddr(), append(w.Datagram(1), 'x'))
				if err := w.Flush(); err != nil {
					t.Error(err)
				}
			}
		})
		watchdog := time.AfterFunc(patience, func() { _ = b.Close() })
		defer watchdog.Stop()
		ds := make([]Datagram, 8)
		for posted < posters*posts || received < datagrams {
			n, err := b.ReadBatch(ds)
			if err != nil && err != ErrWoken {
				t.Errorf("%v after %d of %d posts and %d of %d datagrams: a wake-up or a datagram was lost",
					err, posted, posters*posts, received, datagrams)
				for len(credit) > 0 {
					<-credit
				}
				break
			}
			received += n
			for range n {
				<-credit
			}
			posted += inbox.Swap(0)
		}
		group.Wait()
	})
}

// TestWakeAllocs: waking a worker that waits allocates nothing on either side.
func TestWakeAllocs(t *testing.T) {
	s, err := Open(Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	ds := make([]Datagram, 1)
	if n := testing.AllocsPerRun(100, func() {
		s.SetReadDeadline(time.Time{})
		s.Wake()
		if _, err := s.ReadBatch(ds); err != ErrWoken {
			t.Fatal(err)
		}
		s.SetReadDeadline(time.Now().Add(time.Microsecond))
		if _, err := s.ReadBatch(ds); err != os.ErrDeadlineExceeded {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}
