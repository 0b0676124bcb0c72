package udp

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestWatchedForReading asks the kernel who watches a socket for what. Watching for
// room to write wakes a thread whenever datagrams have left.
func TestWatchedForReading(t *testing.T) {
	s := open(t, "127.0.0.1:0")
	sock := int(s.conn.(*mmsgConn).descriptor.sock)
	watched := 0
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
