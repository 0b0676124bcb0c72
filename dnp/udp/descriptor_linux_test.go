package udp

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// TestNotWatched: the runtime's poller must not know the socket. Its thread would
// wake up whenever datagrams have left, and for every deadline.
func TestNotWatched(t *testing.T) {
	s := open(t, "127.0.0.1:0")
	link, err := os.Readlink(filepath.Join("/proc/self/fd", strconv.Itoa(s.conn.(*mmsgConn).descriptor.sock)))
	if err != nil || !strings.HasPrefix(link, "socket:") {
		t.Fatalf("the socket is %q, %v", link, err)
	}
	files, err := filepath.Glob("/proc/self/fdinfo/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text, _ := os.ReadFile(file) // descriptors come and go
		for _, line := range strings.Split(string(text), "\n") {
			if f := strings.Fields(line); len(f) > 1 && f[0] == "tfd:" && f[1] == strconv.Itoa(s.conn.(*mmsgConn).descriptor.sock) {
				t.Errorf("%s watches the socket: %s", file, line)
			}
		}
	}
}

// TestCloseRaces closes descriptors while others read, write, wake and ask. Every
// call comes to an end, and nobody touches a number that means another file by then.
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

// TestDeadlinePassed: such a ReadBatch looks and does not wait.
func TestDeadlinePassed(t *testing.T) {
	s := open(t, "127.0.0.1:0")
	s.SetReadDeadline(time.Now().Add(-time.Hour))
	if _, err := s.ReadBatch(make([]Datagram, 1)); err != os.ErrDeadlineExceeded {
		t.Errorf("ReadBatch after its deadline: %v", err)
	}
}
