package natsconn

import (
	"fmt"
	"net"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A scriptedConn gives as many bytes to each read as its script says, at once.
type scriptedConn struct {
	net.Conn
	script []int
}

func (c *scriptedConn) Read([]byte) (n int, err error) {
	n, c.script = c.script[0], c.script[1:]
	return n, nil
}

// TestPacedConn wants a pause after each read but those that filled the buffer.
func TestPacedConn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const every = 50 * time.Millisecond
		c := &pacedConn{Conn: &scriptedConn{script: []int{3, 8, 8, 7, 1, 2}}, every: every}
		began := time.Now()
		var got []string
		read := func() {
			n, err := c.Read(make([]byte, 8))
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, fmt.Sprint(n, " at ", time.Since(began)))
		}
		for range 5 {
			read()
		}
		time.Sleep(2 * every)
		read()
		want := []string{"3 at 0s", "8 at 50ms", "8 at 50ms", "7 at 50ms", "1 at 100ms", "2 at 200ms"}
		if !slices.Equal(got, want) {
			t.Errorf("bytes and times of reads: %q, want %q", got, want)
		}
	})
}
