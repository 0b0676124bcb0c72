package udp

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestWatchedForReading asks the kernel for which events a socket is watched. Watching
// for room to write would wake a thread whenever datagrams have left.
func TestWatchedForReading(t *testing.T) {
	s := open(t, "127.0.0.1:0")
	sock, watched := s.conn.(*mmsgConn).descriptor.sock, 0
	files, err := filepath.Glob("/proc/self/fdinfo/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, _ := os.ReadFile(file) // descriptors come and go
		for _, line := range strings.Split(string(text), "\n") {
			var fd int
			var events uint32
			if n, _ := fmt.Sscanf(line, "tfd: %d events: %x", &fd, &events); n != 2 || fd != sock {
				continue
			}
			watched++
			if events&unix.EPOLLOUT != 0 || events&unix.EPOLLIN == 0 {
				t.Errorf("the socket is watched for events %x, want reading only", events)
			}
		}
	}
	if watched != 1 {
		t.Errorf("the socket is watched by %d, want 1", watched)
	}
}

// TestCloseRaces closes descriptors while other goroutines read, write, wake and query
// them. Every call returns, and none uses a descriptor number that means another file by
// then.
func TestCloseRaces(t *testing.T) {
	for range 200 {
		s := open(t, "127.0.0.1:0")
		d := s.conn.(*mmsgConn).descriptor
		var users sync.WaitGroup
		users.Go(func() {
			ds := make([]Datagram, 4)
			for {
				if _, err := s.ReadBatch(ds); err != nil && err != ErrWoken {
					if !errors.Is(err, net.ErrClosed) {
						t.Errorf("ReadBatch: %v, want net.ErrClosed", err)
					}
					return
				}
			}
		})
		users.Go(func() {
			for w := s.Writer(); ; {
				w.Send(s.LocalAddr(), append(w.Datagram(1), 'x'))
				if err := w.Flush(); err != nil {
					if !errors.Is(err, net.ErrClosed) {
						t.Errorf("Flush: %v, want net.ErrClosed", err)
					}
					return
				}
			}
		})
		users.Go(func() {
			for d.users.Load() >= 0 {
				s.Wake()
				s.Stats()
			}
		})
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		users.Wait()
		if n := d.users.Load(); n != 2*closedMark {
			t.Fatalf("%d users are left, or the descriptors were not closed", n-closedMark)
		}
		if err := s.Close(); !errors.Is(err, net.ErrClosed) {
			t.Fatalf("second Close: %v, want net.ErrClosed", err)
		}
	}
}

// TestDeadlinePassed: after its deadline ReadBatch returns what has arrived and does not
// wait.
func TestDeadlinePassed(t *testing.T) {
	s := open(t, "127.0.0.1:0")
	s.SetReadDeadline(time.Now().Add(-time.Hour))
	if _, err := s.ReadBatch(make([]Datagram, 1)); err != os.ErrDeadlineExceeded {
		t.Errorf("ReadBatch after its deadline: %v", err)
	}
}
